"""Download files into one cache folder. No other module opens a connection."""

import os
import sys
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import huggingface_hub
from tqdm import tqdm

from dino_model import files

CHUNK = 1 << 20  # bytes read at a time
TIMEOUT = 30  # seconds
BYTES: dict[str, Any] = {"unit": "B", "unit_scale": True}
Callback = Callable[[int, int], None]
"""Receives the bytes that have arrived and their total, 0 if unknown; may raise to end the download."""


class DownloadError(OSError):
    """A file could not be downloaded. The message names the place for a file put there by hand."""


def cache_folder() -> Path:
    """Return DINO_CACHE if set, else `dino-attention-lab` in the platform's cache folder."""
    if named := os.environ.get("DINO_CACHE"):
        return Path(named).expanduser()
    if sys.platform == "win32":
        parent = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        parent = Path.home() / "Library" / "Caches"
    else:
        parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return parent / "dino-attention-lab"


def cached_file(name: str, repository: str, file: str) -> Path | None:
    """Return a file that exists already: `name` in this cache, or a repository's in Hugging Face's cache."""
    own = cache_folder() / name
    shared = huggingface_hub.try_to_load_from_cache(repository, file)
    return own if own.is_file() else Path(shared) if isinstance(shared, str) else None


def fetch(
    address: str, name: str, accept: Callable[[Path], object], callback: Callback | None = None
) -> Path:
    """Return a file of the cache folder, downloaded unless it exists.

    The file appears under its name only when it is complete and `accept` has read it.

    Args:
        address: URL of the file.
        name: Its name in the cache folder.
        accept: Reads the file; a ValueError refuses it.
        callback: Receives the progress. Default: a line on stderr.

    Raises:
        DownloadError: No connection, no such file, a truncated response, or one that `accept` refuses.
    """
    target = cache_folder() / name
    if target.is_file():
        return target
    try:
        with files.replacing(target) as beside:
            _transfer(address, beside, name, callback)
            accept(beside)
    except (OSError, HTTPException, ValueError) as error:  # urllib's own errors are OSErrors
        reason = str(getattr(error, "reason", "") or error or type(error).__name__)
        raise DownloadError(
            f"could not download {name} from {address} ({reason.replace(str(beside), name)}): "
            f"connect and try again, or fetch it elsewhere and put it at {target}"
        ) from error
    return target


def _transfer(address: str, target: Path, name: str, callback: Callback | None) -> None:
    request = urllib.request.Request(address, headers={"User-Agent": "dino-attention-lab"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response, target.open("wb") as file:
        total = int(response.headers.get("Content-Length") or 0)
        progress = tqdm(total=total or None, desc=f"downloading {name}", disable=bool(callback), **BYTES)
        with progress:
            while chunk := response.read1(CHUNK):  # what has arrived: a slow connection can be interrupted
                file.write(chunk)
                progress.update(len(chunk))
                if callback:
                    callback(file.tell(), total)
        if total and file.tell() != total:
            raise OSError(f"the connection broke off after {file.tell():,} of {total:,} bytes")
