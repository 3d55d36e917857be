"""Files that are written whole or not at all."""

import errno
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; `path` is replaced when the block ends, left alone when it fails.

    The folder is made where it is missing. Whoever reads `path` finds the old file or the new one, whatever
    interrupts the writing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own for every writer, thread or process; the suffix tells some writers the format.
    beside = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file (UTF-8, line ends as they are in `text`) whole or not at all."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all; not-a-number and infinity become null, which every reader accepts."""
    write_text(path, json.dumps(_finite(content), indent=2, ensure_ascii=False) + "\n")


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    if isinstance(content, bool):
        return content
    if isinstance(content, Integral):  # NumPy's whole numbers too
        return int(content)
    if isinstance(content, Real):
        return float(content) if math.isfinite(content) else None
    return content


def make_room(*paths: Path | None) -> None:
    """Make the folders of files that are written at the end: what cannot be written is known before the work.

    Raises:
        OSError: a folder that cannot be, or a file that is a folder.
    """
    for path in paths:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
