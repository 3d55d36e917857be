"""A page in a process of its own, and a browser, for benchmarks, tools and tests."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STARTS_WITHIN = 180  # seconds
ENDS_WITHIN = 60
CAMERA = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
CHROMIUM_OPTIONS = ["--disable-gpu", "--disable-quic", "--disable-sync", *CAMERA]


@dataclass(frozen=True)
class Served:
    """A page that runs."""

    address: str
    """Address without a slash at the end."""
    process: subprocess.Popen[bytes]
    log: Path
    """Output of the process."""


@contextmanager
def serving(*options: str, env: Mapping[str, str] = MappingProxyType({})) -> Iterator[Served]:
    """Run `python -m app` with these options until the block ends.

    Raises:
        RuntimeError: It ends, or prints no address within three minutes.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "app", *options],
                cwd=ROOT,
                env=os.environ | env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield Served(_wait_for_address(process, log), process, log)
        finally:
            process.terminate()
            process.wait(ENDS_WITHIN)


def _wait_for_address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < until:
        if match := re.search(r"http://\S+", log.read_text()):
            return match.group()
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"the page did not start: {log.read_text().strip()}")


def missing_for_browser() -> str:
    """Name what a browser needs and this machine lacks; empty if nothing is missing."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: pip install -r requirements-dev.txt"
    if shutil.which("chromium") is None:
        return "Chromium is not installed: make browser"
    return ""


@contextmanager
def browser() -> Iterator[Any]:
    """Start the system's Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_OPTIONS)
        yield chromium
        chromium.close()
