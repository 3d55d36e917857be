"""Files fetched from the network, kept in one cache folder: the only place that opens a connection."""

import os
import sys
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dino_model import files

CHUNK = 1 << 20  # bytes read at a time
TIMEOUT = 30  # seconds without an answer
BYTES: dict[str, Any] = {"unit": "B", "unit_scale": True}  # how a line of progress counts


Told = Callable[[int, int], None]
"""Hears how many bytes have come and how many there will be, 0 where nobody knows; may raise to end it."""


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


def fetch(address: str, name: str, accept: Callable[[Path], object], told: Told | None = None) -> Path:
    """The file `name` of the cache folder, fetched from `address` unless it is there already.

    Progress goes to stderr. The file appears under its name only when all of it has come and `accept` has
    taken it: a sign-in page that is sent with a good conscience does not stay.

    Args:
        address: where it is published.
        name: in the cache folder.
        accept: reads the file; a ValueError refuses it.
        told: hears of the progress instead of stderr.

    Raises:
        DownloadError: no connection, no such file, an answer shorter than announced, or one that `accept`
            refuses.
    """
    target = cache_folder() / name
    if target.is_file():
        return target
    try:
        with files.replacing(target) as beside:
            _transfer(address, beside, name, told)
            _check(accept, beside, name)
    except (OSError, HTTPException) as error:  # urllib's own errors are OSErrors
        raise DownloadError(
            f"could not download {name} from {address} ({_reason(error)}): "
            f"connect and try again, or fetch it elsewhere and put it at {target}"
        ) from error
    return target


def _check(accept: Callable[[Path], object], file: Path, name: str) -> None:
    try:
        accept(file)
    except ValueError as error:
        raise OSError(f"what came is no such file: {str(error).replace(str(file), name)}") from error


def _transfer(address: str, target: Path, name: str, told: Told | None) -> None:
    request = urllib.request.Request(address, headers={"User-Agent": "dino-attention-lab"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, target.open("wb") as file:
        announced = int(answer.headers.get("Content-Length") or 0)
        shown = tqdm(total=announced or None, desc=f"downloading {name}", disable=bool(told), **BYTES)
        with shown as progress:
            while chunk := answer.read1(CHUNK):  # what is there: a slow connection is told of, can be ended
                file.write(chunk)
                progress.update(len(chunk))
                if told:
                    told(file.tell(), announced)
        if announced and file.tell() != announced:
            raise OSError(f"the connection broke off after {file.tell():,} of {announced:,} bytes")


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", "") or error or type(error).__name__)
