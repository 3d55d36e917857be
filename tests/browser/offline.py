"""Run by test_offline.py in an empty network namespace: serves the page and opens each tab."""

import json
import socket
import struct
from fcntl import ioctl

from benchmarks.serving import browser, serving
from tests.browser.conftest import Pages

SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x1 | 0x40  # of the kernel's interface to network devices


def walk(address: str) -> dict[str, object]:
    """Open the page and every tab; what was shown, asked of other machines, and went wrong."""
    tabs = []
    with browser() as chromium, chromium.new_context() as desk:
        pages = Pages(chromium, desk, address)
        page = pages(query="", ready="#explore .lab-view[data-token]")
        for tab in page.get_by_role("tab").all():
            tab.click()
            page.locator("[role=tabpanel]:visible .lab-view[data-token]").first.wait_for(timeout=120_000)
            tabs.append(tab.inner_text())
        encoded = page.evaluate("lab('explore').encoding.name")
    interfaces = [name for _, name in socket.if_nameindex()]
    return {"interfaces": interfaces, "encoded": encoded, "tabs": tabs, "faults": pages.faults}


if __name__ == "__main__":
    with socket.socket() as any_socket:
        ioctl(any_socket, SET_FLAGS, struct.pack("16sh", b"lo", UP_AND_RUNNING))
    with serving("--port", "7860", "--precision", "fp32", "--device", "cpu") as served:
        print(json.dumps(walk(served.address + "/")))
