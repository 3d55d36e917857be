"""Several tars as one collection: patterns of names, and an index of each tar that is made once."""

import glob
import json
import posixpath
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path

from dino_model import files
from dino_model.download import cache_folder

_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class TarIndex:
    """What lies where in an uncompressed tar."""

    members: dict[str, tuple[int, int]]
    """Offset and size in bytes of every file, by its name."""
    classes: dict[str, str]
    """Of members without their suffix, what a file of that name and the suffix .cls says (WebDataset)."""


def tars_of(pattern: str) -> list[Path]:
    """The files that a pattern such as 'train/*.tar' or 'shard-{000..127}.tar' stands for; a name's: none.

    Raises:
        FileNotFoundError: one that braces tell is not there.
    """
    if not re.search(r"[*?\[{]", pattern) or Path(pattern).exists():
        return []
    found: list[Path] = []
    for name in expanded(pattern):
        here = sorted(glob.glob(name)) if glob.has_magic(name) else [name]  # noqa: PTH207 (of any root)
        found += map(Path, here)
    for path in found:
        path.stat()
    return found


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


def index(path: Path) -> TarIndex:
    """The index of a tar, from the cache where the tar has its size and time of change of then.

    Raises:
        tarfile.TarError: it is damaged.
        OSError: it cannot be read.
    """
    stat = path.stat()
    key = sha256(f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}".encode()).hexdigest()[:32]
    cached = cache_folder() / "tars" / f"{key}.json"
    if cached.is_file():
        found = json.loads(cached.read_text(encoding="utf-8"))
        return TarIndex(
            {name: (place[0], place[1]) for name, place in found["members"].items()}, found["classes"]
        )
    made = _read(path)
    files.write_text(cached, json.dumps({"members": made.members, "classes": made.classes}))
    return made


def _read(path: Path) -> TarIndex:
    members, classes = {}, {}
    with tarfile.open(path, "r:") as tar:
        for member in tar:
            if member.isreg():
                name = posixpath.normpath(member.name)
                members[name] = (member.offset_data, member.size)
                if name.endswith(".cls") and member.size < 100:
                    content = tar.extractfile(member)
                    assert content is not None
                    classes[name.removesuffix(".cls")] = content.read().decode("utf-8", "replace").strip()
    return TarIndex(members, classes)
