"""Tars here or elsewhere as one collection: patterns of names, and an index of each that is made once."""

import glob
import json
import os
import posixpath
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np

from dino_model import files, remote
from dino_model.download import cache_folder
from dino_model.index import keep, mapped
from dino_model.remote import is_remote

Shard = Path | str
"""A tar here, or the URL of one elsewhere."""
Stamp = tuple[int, int | str]
VERSION = 1
"""Of what `joint` keeps."""
_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class TarIndex:
    """What lies where in an uncompressed tar."""

    members: dict[str, tuple[int, int]]
    """Offset and size in bytes of every file, by its name."""
    classes: dict[str, str]
    """Of members without their suffix, what a file of that name and the suffix .cls says (WebDataset)."""


def tars_of(source: str) -> list[Shard]:
    """The tars that a source stands for; of what is no source of tars: none.

    A tar, a pattern such as 'train/*.tar' or 'shard-{000..127}.tar', or a text file that lists tars, relative
    to its own folder.

    Raises:
        OSError: one that is named is not there.
    """
    here = Path(source)
    if not is_remote(source) and here.is_dir():
        return []
    if not is_remote(source) and here.is_file():
        return [here] if tarfile.is_tarfile(here) else _listed(here)
    if not is_remote(source) and not re.search(r"[*?\[{]", source):
        return []
    shards: list[Shard] = []
    for name in expanded(source):
        if is_remote(name):
            shards += remote.found(name) if "*" in name else [name]
        else:
            shards += map(Path, sorted(glob.glob(name)) if glob.has_magic(name) else [name])  # noqa: PTH207
    for shard in shards:
        stamp(shard)
    return shards


def _listed(path: Path) -> list[Shard]:
    """The tars that a text file lists; none where it is no text, or lists anything else."""
    with path.open("rb") as file:
        if b"\0" in file.read(4096):
            return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not names or not all(name.endswith(".tar") for name in names):
        return []
    shards: list[Shard] = [name if is_remote(name) else path.parent / name for name in names]
    for shard in shards:
        stamp(shard)
    return shards


def titles(shards: Sequence[Shard]) -> list[str]:
    """What the folder of each one's pictures is called: its name, with folders above if names are alike."""
    whole = [str(shard).partition("://")[2] or str(shard) for shard in shards]
    names = [PurePosixPath(name.removesuffix(".tar").removesuffix(".txt")) for name in whole]
    for depth in range(1, max(len(name.parts) for name in names) + 1):
        found = ["/".join(name.parts[-depth:]).lstrip("/") for name in names]
        if len(set(found)) == len(set(names)):
            break
    return found


@contextmanager
def opened(shard: Shard) -> Iterator[BinaryIO]:
    """The file. Raises OSError."""
    with remote.opened(shard) if isinstance(shard, str) else shard.open("rb") as file:
        yield file


def read(shard: Shard, offset: int, size: int, known: Stamp) -> bytes:
    """A part of a shard that had the stamp `known` when it was indexed; less of it where the shard is cut.

    Raises:
        OSError: it cannot be read, or was changed since.
    """
    if isinstance(shard, str):
        return remote.read(shard, offset, size, known)
    with shard.open("rb") as file:
        file.seek(offset)
        data = file.read(size)
        if len(data) == size and _stamp(os.fstat(file.fileno())) != known:
            raise OSError(f"{shard} was changed while it was in use: leave it as it is, or begin again")
        return data


def expanded(pattern: str) -> Iterator[str]:
    """Braces as a shell expands them: {a,b} and {000..127}, whose numbers keep their leading zeros."""
    parts = _BRACES.split(pattern)
    choices = [_choices(part) if i % 2 else [part] for i, part in enumerate(parts)]
    return ("".join(words) for words in product(*choices))


def _choices(inside: str) -> list[str]:
    numbers = re.fullmatch(r"(\d+)\.\.(\d+)", inside)
    if not numbers:
        return inside.split(",")
    first, last = numbers.groups()
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def index(shard: Shard) -> TarIndex:
    """The index of a tar, from the cache where the tar has its size and time of change of then.

    Raises:
        tarfile.TarError: it is damaged.
        OSError: it cannot be read.
    """
    cached = cache_folder() / "tars" / f"{_digest(_place(shard), *stamp(shard))}.json"
    if cached.is_file():
        found = json.loads(cached.read_text(encoding="utf-8"))
        return TarIndex(
            {name: (place[0], place[1]) for name, place in found["members"].items()}, found["classes"]
        )
    made = _read(shard)
    with suppress(OSError):  # where nothing can be kept it is made anew each time
        files.write_text(cached, json.dumps({"members": made.members, "classes": made.classes}))
    return made


def stamp(shard: Shard) -> Stamp:
    """What tells that a shard was not changed: size in bytes and time of change, or a name of its state.

    Raises:
        OSError: it is not there.
    """
    return remote.stamp(shard) if isinstance(shard, str) else _stamp(shard.stat())


def _stamp(stat: os.stat_result) -> Stamp:
    return stat.st_size, stat.st_mtime_ns


def joint(
    tars: Sequence[Shard],
    stamps: Sequence[Stamp],
    make: Callable[[], tuple[dict[str, np.ndarray], dict[str, str]]],
    *more: str,
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """What `make` makes of these tars, and of what `more` tells, mapped from the cache once it was made.

    `stamps` are taken before: a tar that changes while its index is made is found out when it is read.
    """
    places = (str((_place(shard), *known)) for shard, known in zip(tars, stamps, strict=True))
    kept = cache_folder() / "tars" / f"{_digest(VERSION, *places, *more)}.safetensors"
    if not kept.is_file():
        arrays, told = make()
        try:
            keep(kept, arrays, told)
        except OSError:  # as above
            return arrays, told
    return mapped(kept)


def _place(shard: Shard) -> str:
    return shard if isinstance(shard, str) else str(shard.resolve())


def _digest(*parts: object) -> str:
    return sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def _read(shard: Shard) -> TarIndex:
    members, classes = {}, {}
    with opened(shard) as file, tarfile.open(fileobj=file, mode="r:") as tar:
        for member in tar:
            if member.isreg():
                name = posixpath.normpath(member.name)
                members[name] = (member.offset_data, member.size)
                if name.endswith(".cls") and member.size < 100:
                    content = tar.extractfile(member)
                    assert content is not None
                    classes[name.removesuffix(".cls")] = content.read().decode("utf-8", "replace").strip()
    if members and all(name.endswith(".tar") for name in members):
        members = _inside(shard, members)
    return TarIndex(members, classes)


def _inside(shard: Shard, tars: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """A tar of tars, as ImageNet's training pictures come: each inner tar is a folder of its name."""
    found: dict[str, tuple[int, int]] = {}
    with opened(shard) as file:
        for name, (offset, _) in tars.items():
            file.seek(offset)
            with tarfile.open(fileobj=file, mode="r:") as tar:
                inside = {posixpath.basename(m.name): (m.offset_data, m.size) for m in tar if m.isreg()}
            found |= {f"{name.removesuffix('.tar')}/{picture}": at for picture, at in inside.items()}
    return found
