"""Shards on object storage or behind http, read in ranges through fsspec, with a bounded cache of pictures.

A global shuffle jumps from shard to shard: pictures are fetched one by one, not shards. They are kept in the
cache folder, up to DINO_SHARD_CACHE gigabytes (20 if not set); what was kept longest goes first.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, cast

import fsspec

from dino_model import files
from dino_model.download import cache_folder

BUCKETS = 256
"""Folders of the cache, each with its share of the room: only one is looked through for what is to go."""


def is_remote(place: object) -> bool:
    """Whether it is a URL, such as s3://bucket/shard.tar or https://…"""
    return "://" in str(place)


def found(pattern: str) -> list[str]:
    """The URLs that a pattern with * stands for, sorted.

    Raises:
        OSError: the storage cannot be asked.
    """
    with _plain(pattern):
        system, path = fsspec.url_to_fs(pattern)
        return sorted(system.unstrip_protocol(one) for one in system.glob(path))


def stamp(url: str) -> tuple[int, str]:
    """Size in bytes, and what tells that the file is still the same.

    Raises:
        OSError: it is not there, or cannot be asked for.
    """
    with _plain(url):
        system, path = fsspec.url_to_fs(url)
        return int(system.info(path)["size"]), str(system.ukey(path))


@contextmanager
def opened(url: str) -> Iterator[BinaryIO]:
    """The file, to be read from anywhere.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    with _plain(url), fsspec.open(url, "rb") as file:
        yield cast(BinaryIO, file)


def read(url: str, offset: int, size: int, version: object) -> bytes:
    """A part of a file, from the cache where it was read before; `version` is the file's `stamp`.

    Raises:
        OSError: it cannot be read.
    """
    key = sha256(f"{url}\0{version}\0{offset}\0{size}".encode()).hexdigest()
    kept = cache_folder() / "shards" / key[:2] / key[2:34]
    with suppress(OSError):  # most often: it is not there
        return kept.read_bytes()
    with _plain(url):
        system, path = fsspec.url_to_fs(url)
        data = cast(bytes, system.cat_file(path, offset, offset + size))
    room = room_in_bytes() // BUCKETS
    if len(data) == size <= room:  # what is cut short may be whole the next time
        with suppress(OSError):  # where nothing can be kept it is read anew each time
            with files.replacing(kept) as beside:
                beside.write_bytes(data)
            _make_room(kept.parent, room)
    return data


def room_in_bytes() -> int:
    """Of the cache.

    Raises:
        OSError: DINO_SHARD_CACHE is no number.
    """
    given = os.environ.get("DINO_SHARD_CACHE", "20")
    try:
        return int(float(given) * 1e9)
    except ValueError:
        raise OSError(f"DINO_SHARD_CACHE is {given!r}, expected gigabytes") from None


def _make_room(folder: Path, room: int) -> None:
    """Remove what has been kept longest until the folder takes no more than `room` bytes."""
    kept = []
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # another process makes room, too
            kept.append((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path))
    taken = sum(size for _, size, _ in kept)
    for _, size, path in sorted(kept):
        if taken <= room:
            break
        Path(path).unlink(missing_ok=True)
        taken -= size


@contextmanager
def _plain(url: str) -> Iterator[None]:
    """What libraries of storage raise, as an OSError that names the URL."""
    try:
        yield
    except ImportError as error:
        raise OSError(f"{url}: {error}") from error
    except OSError as error:
        raise OSError(f"{url} cannot be opened: {error.strerror or error}") from error
    except Exception as error:  # of any client: an open set
        raise OSError(f"{url} cannot be read: {type(error).__name__}: {error}") from error
