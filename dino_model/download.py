"""Files fetched from the network, kept in one cache folder: the only place that opens a connection."""

import os
import sys
import time
import urllib.request
from http.client import HTTPException
from pathlib import Path

from dino_model import files

CHUNK = 1 << 20  # bytes read at a time
TIMEOUT = 30  # seconds without an answer


class DownloadError(OSError):
    """A file could not be fetched; the message says where to put it by hand."""


def cache_folder() -> Path:
    """Folder for downloads: DINO_CACHE when set, else `dino-attention-lab` in the platform's cache folder."""
    if named := os.environ.get("DINO_CACHE"):
        return Path(named).expanduser()
    if sys.platform == "win32":
        parent = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        parent = Path.home() / "Library" / "Caches"
    else:
        parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return parent / "dino-attention-lab"


def fetch(address: str, name: str) -> Path:
    """The file `name` of the cache folder, fetched from `address` unless it is there already.

    Progress goes to stderr. The file appears under its name only when all of it has come.

    Raises:
        DownloadError: no connection, no such file, or an answer shorter than announced.
    """
    target = cache_folder() / name
    if target.is_file():
        return target
    try:
        with files.replacing(target) as beside:
            _transfer(address, beside, name)
    except (OSError, HTTPException) as error:  # urllib's own errors are OSErrors
        raise DownloadError(
            f"could not download {name} from {address} ({_reason(error)}): "
            f"connect and try again, or fetch it elsewhere and put it at {target}"
        ) from error
    return target


def _transfer(address: str, target: Path, name: str) -> None:
    request = urllib.request.Request(address, headers={"User-Agent": "dino-attention-lab"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, target.open("wb") as file:
        announced = int(answer.headers.get("Content-Length") or 0)
        progress = _Progress(name, announced)
        while chunk := answer.read(CHUNK):
            file.write(chunk)
            progress.show(file.tell())
        progress.end()
        if announced and file.tell() != announced:
            raise OSError(f"the connection broke off after {file.tell():,} of {announced:,} bytes")


class _Progress:
    """One line on stderr, rewritten in place on a terminal; elsewhere one line at the start."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.shown = name, total, 0.0
        self.live = sys.stderr.isatty()
        if not self.live:
            print(
                f"downloading {name} ({total / 1e6:.1f} MB)" if total else f"downloading {name}",
                file=sys.stderr,
            )

    def show(self, done: int) -> None:
        if not self.live or time.monotonic() - self.shown < 0.2:
            return
        self.shown = time.monotonic()
        share = f" of {self.total / 1e6:.1f} MB, {done / self.total:.0%}" if self.total else " MB"
        print(f"\rdownloading {self.name}: {done / 1e6:.1f}{share}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.live:
            print(file=sys.stderr)


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", "") or error or type(error).__name__)
