"""A private folder for the files that Gradio writes, bounded in size and removed at the end."""

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from app.limits import MEGABYTE

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


@contextlib.contextmanager
def take_upload(path: object, max_bytes: int) -> Iterator[Path]:
    """Check a file in the folder of uploads, of at most `max_bytes`; delete it after use."""
    from app.errors import LabError, NotHere  # importing gradio takes seconds

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
        yield file
    finally:
        file.unlink(missing_ok=True)
