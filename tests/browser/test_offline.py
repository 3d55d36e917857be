"""The page without a network: in a network namespace that has only the loopback interface."""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path

import pytest

from benchmarks import serving
from tests.browser.conftest import Pages, serving_here

ROOT = Path(__file__).parents[2]
COMMANDS = (("unshare", "--net"), ("unshare", "--map-root-user", "--net"))
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x1 | 0x40  # of the kernel's interface to network devices
TABS = ["Explore", "Segment", "Compare", "Match", "Class map", "Video", "Training", "Learn"]


def test_page_works_in_an_empty_network_namespace(browser):
    possible = (
        one for one in COMMANDS if subprocess.run([*one, "true"], capture_output=True).returncode == 0
    )
    command = next(possible, None) if shutil.which("unshare") else None
    if command is None:
        pytest.skip("network namespaces are not permitted here (unshare --net): offline use is not tested")
    done = subprocess.run(
        [*command, sys.executable, "-m", "tests.browser.test_offline"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"interfaces": ["lo"], "encoded": "sheep", "tabs": TABS, "faults": []}


def main() -> None:
    """Serve the page, open every tab and print what is shown, requested elsewhere, and fails."""
    with socket.socket() as device:
        ioctl(device, SET_FLAGS, struct.pack("16sh", b"lo", UP_AND_RUNNING))
    with serving_here(size=96) as address, serving.browser() as chromium, chromium.new_context() as desk:
        pages = Pages(desk, lambda: address)
        page = pages(query="", ready="#explore .lab-view[data-token]")
        found = {"tabs": [], "faults": pages.faults}
        for tab in page.get_by_role("tab").all():
            tab.click()
            page.locator("[role=tabpanel]:visible .lab-view[data-token]").first.wait_for()
            found["tabs"].append(tab.inner_text())
        found["encoded"] = page.evaluate("viewOf('explore').encoding.name")
        found["interfaces"] = [name for _, name in socket.if_nameindex()]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
