"""Run by test_offline.py in an empty network namespace: serves the page and opens each tab."""

import json
import socket
import struct
from fcntl import ioctl

from benchmarks.serving import browser, serving

SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x1 | 0x40  # of the kernel's interface to network devices


def main() -> None:
    """Print what was seen as one line of JSON."""
    with socket.socket() as any_socket:
        ioctl(any_socket, SET_FLAGS, struct.pack("16sh", b"lo", UP_AND_RUNNING))
    with serving("--port", "7860", "--precision", "fp32", "--device", "cpu") as page:
        print(json.dumps(walk(page.address + "/")))


def walk(address: str) -> dict[str, object]:
    """Open the page and every tab; what was asked of other machines, and what went wrong."""
    elsewhere, errors, tabs = [], [], []
    with browser() as chromium:
        page = chromium.new_page()
        own = (address, "data:", "blob:" + address.rstrip("/"))
        page.on("request", lambda request: request.url.startswith(own) or elsewhere.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        page.wait_for_selector("#explore .lab-view[data-token]", timeout=120_000)
        for tab in page.get_by_role("tab").all():
            tab.click()
            page.locator("[role=tabpanel]:visible .lab-view[data-token]").first.wait_for(timeout=120_000)
            tabs.append(tab.inner_text())
        encoded = page.evaluate("lab('explore').encoding.name")
    interfaces = [name for _, name in socket.if_nameindex()]
    return {
        "interfaces": interfaces,
        "encoded": encoded,
        "tabs": tabs,
        "elsewhere": elsewhere,
        "errors": errors,
    }


if __name__ == "__main__":
    main()
