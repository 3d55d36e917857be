"""Upper bounds on memory, disk and requests of the app; each of `Limits` is an option of the command."""

import contextlib
import os
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

MEGABYTE = 1_000_000
SIZES = (32, 2048)
"""Smallest and largest resolution: pixels of the short side."""
RESOLUTIONS = (224, 336, 480, 640)
"""Resolutions that the page offers."""


@dataclass(frozen=True)
class Limits:
    """Upper bounds that keep the server alive under any input."""

    max_upload_mb: int = 25
    """Largest file that may be uploaded, in MB."""
    max_megapixels: int = 50
    """Largest image that is decoded, in millions of pixels."""
    max_patches: int = 8192
    """Most patches of an image; attention compares all pairs of patches."""
    max_memory_mb: int = 1000
    """Memory for images and their encodings, in MB. The least recently used are dropped first."""
    max_weights_mb: int = 2000
    """Memory for the weights of models, in MB. The least recently used model is dropped first."""
    max_waiting: int = 64
    """Requests that wait for the model; beyond them, each client may have one waiting."""
    max_frames: int = 120
    """Most frames of a clip that are used; the rest is left out with a note."""
    max_clip_seconds: int = 10
    """Most seconds of a clip that are used."""
    max_frame_megapixels: int = 9
    """Largest frame of a clip that is decoded, in millions of pixels; 4K has 8.3."""
    max_clips_mb: int = 400
    """Memory for clips and their masks, in MB. The least recently used are dropped first."""
    max_disk_mb: int = 1000
    """Disk space for uploaded files, in MB. The oldest are deleted first."""
    max_requests_per_address: int = 400
    """Most HTTP requests of one address that are answered at the same time."""
    max_calls_per_address: int = 8
    """Most calls of the API outside of Gradio's queue, /run and /api, that one address may have under way."""

    @property
    def max_upload_bytes(self) -> int:
        """Largest file that may be uploaded."""
        return self.max_upload_mb * MEGABYTE

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"--{name.replace('_', '-')} is {value}, expected at least 1")


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Values by key, each with a weight; safe for several threads.

    Args:
        capacity: Largest sum of weights. The newest value stays even if it alone is heavier.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._pinned: Counter[Key] = Counter()
        self.weight = 0
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """Return the value of a key and mark it as used; None if the cache does not have it."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Key, value: Value, weight: int = 1) -> list[Value]:
        """Add or replace a value; return the values that were removed to make room."""
        forgotten = []
        with self._lock:
            self.weight += weight - self._entries.pop(key, (None, 0))[1]
            self._entries[key] = (value, weight)
            while self.weight > self.capacity and len(self._entries) > 1:
                others = [other for other in self._entries if other != key]  # the least recently used first
                removed = next((other for other in others if not self._pinned[other]), others[0])
                value, lighter = self._entries.pop(removed)
                self.weight -= lighter
                forgotten.append(value)
        return forgotten

    @contextlib.contextmanager
    def pinned(self, keys: Collection[Key]) -> Iterator[None]:
        """Until the end of the block, remove the values of these keys only after all others."""
        with self._lock:
            self._pinned.update(keys)
        try:
            yield
        finally:
            with self._lock:
                self._pinned -= Counter(keys)  # drops those that are not pinned any more

    def drop(self, which: Callable[[Key, Value], bool]) -> None:
        """Remove every entry for which `which` returns True."""
        with self._lock:
            for key in [key for key, (value, _) in self._entries.items() if which(key, value)]:
                self.weight -= self._entries.pop(key)[1]


VARIABLE = "GRADIO_TEMP_DIR"
TRIM_SECONDS = 5.0


@contextlib.contextmanager
def temporary_folder(max_bytes: int) -> Iterator[Path]:
    """Let Gradio keep uploads and downloads in a new folder; the oldest are deleted beyond `max_bytes`."""
    ended = threading.Event()
    with tempfile.TemporaryDirectory(prefix="dino-lab-", ignore_cleanup_errors=True) as folder:
        os.environ[VARIABLE] = folder

        def keep_small() -> None:
            while not ended.wait(TRIM_SECONDS):
                trim(Path(folder), max_bytes)

        threading.Thread(target=keep_small, name="trim uploads", daemon=True).start()
        try:
            yield Path(folder)
        finally:
            ended.set()


def trim(folder: Path, max_bytes: int) -> None:
    """Delete the oldest files below a folder until the rest has at most `max_bytes`."""
    files = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # another thread deleted it meanwhile
            if path.is_file():
                files.append((path.stat().st_mtime, path.stat().st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= max_bytes:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def take_upload(path: object, max_bytes: int) -> bytes:
    """Read a file in the folder of uploads, of at most `max_bytes`, and delete it."""
    from app.limits.errors import LabError, NotHere  # importing gradio takes seconds

    folder = Path(os.environ.get(VARIABLE) or Path(tempfile.gettempdir(), "gradio")).resolve()
    try:
        file = Path(str(path)).resolve(strict=True)
        size = file.stat().st_size
    except (OSError, ValueError) as error:
        raise NotHere("This file is no longer on the server: open it again.") from error
    if not file.is_relative_to(folder) or not file.is_file():
        raise LabError("This is no file of yours: open it again.")
    try:
        if size > max_bytes:
            raise LabError(f"This file is larger than the {max_bytes // MEGABYTE} MB allowed.")
        return file.read_bytes()
    finally:
        file.unlink(missing_ok=True)
