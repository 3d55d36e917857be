"""Read parts of remote files through fsspec, with a bounded cache on disk.

Parts are kept in the cache folder, up to DINO_SHARD_CACHE gigabytes (default 20). The oldest go first.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, cast

import fsspec

from dino_model.runtime import files
from dino_model.runtime.download import cache_folder

BUCKETS = 256
"""Folders of the cache, each with its share of the space: making space lists one of them only."""


def is_remote(place: object) -> bool:
    """Return whether a name is a URL, such as s3://bucket/shard.tar or https://…"""
    return "://" in str(place)


def glob(pattern: str) -> list[str]:
    """Return the URLs that a pattern with * matches, sorted. Raises OSError, as all functions here."""
    with _os_errors(pattern):
        system, path = fsspec.url_to_fs(pattern)
        return sorted(system.unstrip_protocol(match) for match in system.glob(path))


def stamp(url: str) -> tuple[int, str]:
    """Return the size of a file in bytes, and a mark of its state."""
    with _os_errors(url):
        system, path = fsspec.url_to_fs(url)
        return int(system.info(path)["size"]), str(system.ukey(path))


@contextmanager
def open_url(url: str) -> Iterator[BinaryIO]:
    """Open a file that can seek."""
    with _os_errors(url), fsspec.open(url, "rb") as file:
        yield cast(BinaryIO, file)


def read(url: str, offset: int, size: int, version: object) -> bytes:
    """Read a part of a file, from the cache if it was read before; `version` is the file's `stamp`."""
    key = sha256(f"{url}\0{version}\0{offset}\0{size}".encode()).hexdigest()
    cached = cache_folder() / "shards" / key[:2] / key[2:34]
    with suppress(OSError):
        return cached.read_bytes()
    with _os_errors(url):
        system, path = fsspec.url_to_fs(url)
        data = cast(bytes, system.cat_file(path, offset, offset + size))
    gigabytes = os.environ.get("DINO_SHARD_CACHE", "20")
    try:
        limit = int(float(gigabytes) * 1e9) // BUCKETS
    except ValueError:
        raise OSError(f"DINO_SHARD_CACHE is {gigabytes!r}, expected gigabytes") from None
    if len(data) == size <= limit:  # a part that was cut short may be whole the next time
        with suppress(OSError):  # the cache cannot be written
            with files.replace_file(cached) as temporary:
                temporary.write_bytes(data)
            _remove_oldest(cached.parent, limit)
    return data


def _remove_oldest(folder: Path, limit: int) -> None:
    """Remove the oldest files until the folder takes at most `limit` bytes."""
    files = []
    for file in folder.iterdir():
        with suppress(FileNotFoundError):  # another process removes files too
            files.append((file.stat().st_mtime_ns, file.stat().st_size, file))
    total = sum(size for _, size, _ in files)
    for _, size, file in sorted(files):
        if total <= limit:
            break
        file.unlink(missing_ok=True)
        total -= size


@contextmanager
def _os_errors(url: str) -> Iterator[None]:
    """Turn any error of a storage library into an OSError that names the URL."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{url} cannot be opened: {error.strerror or error}") from error
    except Exception as error:  # no library for the protocol, or an error of its own
        raise OSError(f"{url} cannot be read: {type(error).__name__}: {error}") from error
