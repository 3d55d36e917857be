"""Write files whole or not at all, and lock them."""

import csv
import errno
import io
import json
import math
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_FAR = 2**30


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` when the block ends, and is removed when it fails.

    The folder is created if it is missing. Readers of `path` find the old file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Unique for every writer; the suffix is the format for some libraries.
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class FileLocked(Exception):
    """A file that another process holds. The message names the process."""


@contextmanager
def file_lock(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file while the block runs; it is created here and removed afterwards.

    The system releases it when this process ends in any way. Forked processes do not hold it. `wait` for the
    process that holds it, else FileLocked is raised.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a+", encoding="utf-8") as file:
            try:
                _lock(file)
            except OSError as error:
                if error.errno in (errno.ENOLCK, errno.ENOTSUP):
                    raise OSError(error.errno, "its file system keeps no locks", str(path)) from None
                if wait:
                    time.sleep(0.5)
                    continue
                file.seek(0)  # not by its name: the holder may end, and take the file away, any moment
                raise FileLocked(file.read().strip() or "another process") from None
            if not _is_at(file, path):  # the former holder removed it: another process may hold a new one
                continue
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            try:
                yield
            finally:
                with suppress(PermissionError):  # Windows keeps open files
                    path.unlink(missing_ok=True)
            return


def _lock(file: TextIO) -> None:
    """Lock a byte far behind the end: where locks are strict, others can still read the holder's name."""
    if sys.platform == "win32":
        file.seek(_FAR)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _FAR)


def _is_at(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def printable(name: str) -> str:
    """Return a name of a file as it is printed and written: bytes that are not UTF-8 become `\\xE9`-like.

    Python holds such bytes as lone surrogates, which no encoding accepts.
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace") if not name.isascii() else name


def write_text(path: Path, text: str) -> None:
    """Write a text file (UTF-8, names as `printable`, line ends as in `text`) whole or not at all."""
    with replace_file(path) as temporary:
        temporary.write_text(printable(text), encoding="utf-8", newline="")


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all: names as `printable`, not-a-number and infinity as null."""
    write_text(path, json.dumps(_plain(content), indent=2, ensure_ascii=False) + "\n")


def write_csv(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write rows as CSV, whole or not at all; the first one has the names of the columns."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_text(path, text.getvalue())


def _plain(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {_plain(key): _plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    if isinstance(content, str):
        return printable(content)
    if hasattr(content, "item"):  # a number of NumPy's
        content = content.item()
    return None if isinstance(content, float) and not math.isfinite(content) else content


def as_tuples(content: Any) -> Any:
    """Return what JSON gave, with tuples in place of its lists."""
    return tuple(map(as_tuples, content)) if isinstance(content, list) else content


def make_room(*paths: Path | None) -> None:
    """Create the folders of output files before the work; OSError if one cannot be, or a file is a folder."""
    for path in paths:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
