"""Run by test_offline.py in an empty network namespace: serves the page and opens each tab."""

import json
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from fcntl import ioctl
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x1 | 0x40  # of the kernel's interface to network devices
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def main() -> None:
    """Print what was seen as one line of JSON."""
    with socket.socket() as any_socket:
        ioctl(any_socket, SET_FLAGS, struct.pack("16sh", b"lo", UP_AND_RUNNING))
    with tempfile.TemporaryFile("w+") as log:
        options = ["--port", "7860", "--precision", "fp32", "--device", "cpu"]
        server = subprocess.Popen(
            [sys.executable, "-m", "app", *options], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            print(json.dumps(walk(announced(server, log))))
        finally:
            server.terminate()
            server.wait(20)


def announced(server: subprocess.Popen, log) -> str:
    """The address that the server prints when it is ready."""
    for _ in range(1800):
        log.seek(0)
        if found := re.search(r"http://\S+", log.read()):
            return found.group() + "/"
        if server.poll() is not None:
            break
        time.sleep(0.1)
    log.seek(0)
    sys.exit(f"the page did not start: {log.read()}")


def walk(address: str) -> dict[str, object]:
    """Open the page and every tab; what was asked of other machines, and what went wrong."""
    elsewhere, errors, tabs = [], [], []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=OPTIONS)
        page = chromium.new_page()
        own = (address, "data:", "blob:" + address.rstrip("/"))
        page.on("request", lambda request: request.url.startswith(own) or elsewhere.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        page.wait_for_selector(".lab[data-token]", timeout=120_000)
        for tab in page.get_by_role("tab").all():
            tab.click()
            page.locator("[role=tabpanel]:visible .html-container > *").first.wait_for()
            tabs.append(tab.inner_text())
        encoded = page.evaluate("document.querySelector('.lab').explorer.encoding.name")
        chromium.close()
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
