"""Download files into one cache folder. No other module opens a connection."""

import os
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import huggingface_hub
from tqdm import tqdm

from dino_model.runtime import files

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


@dataclass(frozen=True)
class PublishedFile:
    """A file that is downloaded once to `name` in the cache folder.

    Attributes:
        accept: Reads the file; a ValueError refuses it.
        repository: Repository of Hugging Face; the file may be in the cache of huggingface_hub.
    """

    address: str
    name: str
    accept: Callable[[Path], object]
    repository: str = ""

    def path(self) -> Path | None:
        """Return the file on this machine, None if it is missing."""
        path = cache_folder() / self.name
        if path.is_file() or not self.repository:
            return path if path.is_file() else None
        shared = huggingface_hub.try_to_load_from_cache(self.repository, Path(self.address).name)
        return Path(shared) if isinstance(shared, str) else None

    def fetch(self, callback: Callback | None = None) -> Path:
        """Return the file, downloaded if it is missing.

        It appears under its name only when it is complete and `accept` has read it. `callback` receives the
        progress; by default it is a line on stderr.

        Raises:
            DownloadError: No connection, no such file, a truncated response, or one that `accept` refuses.
        """
        if existing := self.path():
            return existing
        target = cache_folder() / self.name
        temporary = target
        try:
            with files.replace_file(target) as temporary:
                self._transfer(temporary, callback)
                self.accept(temporary)
        except (OSError, HTTPException, ValueError) as error:  # urllib's own errors are OSErrors
            reason = str(getattr(error, "reason", "") or error or type(error).__name__)
            raise DownloadError(
                f"could not download {self.name} from {self.address} "
                f"({reason.replace(str(temporary), self.name)}): "
                f"connect and try again, or fetch it elsewhere and put it at {target}"
            ) from error
        return target

    def _transfer(self, target: Path, callback: Callback | None) -> None:
        request = urllib.request.Request(self.address, headers={"User-Agent": "dino-attention-lab"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response, target.open("wb") as file:
            total = int(response.headers.get("Content-Length") or 0)
            description = f"downloading {self.name}"
            with tqdm(total=total or None, desc=description, disable=bool(callback), **BYTES) as progress:
                while chunk := response.read1(CHUNK):  # a slow connection can be interrupted
                    file.write(chunk)
                    progress.update(len(chunk))
                    if callback:
                        callback(file.tell(), total)
            if total and file.tell() != total:
                raise OSError(f"the connection broke off after {file.tell():,} of {total:,} bytes")
