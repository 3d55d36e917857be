"""Index uncompressed tars, and read parts of them: tars of images, tars of tars, WebDataset shards."""

import json
import os
import posixpath
import tarfile
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dino_model.data import remote
from dino_model.data.classes import LabelOptions, Row, Rows, UnclearError, divide_cells
from dino_model.data.folders import is_image, left_out_folder
from dino_model.data.images import SUFFIXES, ImageError, suffix_of
from dino_model.runtime.errors import count_names
from dino_model.runtime.files import printable

Stamp = tuple[int, int | str]
"""Size in bytes, and time of change or another mark of the file's state."""
KEY_HINT = (
    "pass --class-key with an extension such as cls or txt, with json:FIELD, or none for classes by folders"
)
LABEL_SUFFIXES = (".cls", ".json", ".txt")
_MAX_LABEL_BYTES = 1_000_000
_OPEN_TARS = 256
"""Tars that a process holds open, below the usual limit of 1,024 files."""


class Members(NamedTuple):
    """Files of a tar.

    Attributes:
        places: Offset and size in bytes of each file, or of the one that it is a link to; zeros for a link
            to none.
        texts: Content of the files that can hold classes: .cls and .json, and what `class_key` names.
        repeated: Names that occur again. The last file counts, as when the tar is unpacked.
    """

    places: dict[str, tuple[int, int]]
    texts: dict[str, str]
    repeated: list[str]


def read_tar(tar: Path | str, suffixes: Collection[str], options: LabelOptions, *, alone: bool) -> Rows:
    """Read the images of a tar or of its address; of a WebDataset shard with their classes.

    `alone`: leave out of the names the top folder that holds everything.

    Raises:
        ImageError: Not a whole, uncompressed tar, or no image has the key.
    """
    members = _read_members(tar, options.class_key)
    tops = {name.partition("/")[0] for name in members.places} if alone else set()
    top = f"{tops.pop()}/" if len(tops) == 1 else ""
    short = {name: name.removeprefix(top) for name in members.places}
    images = [name for name in short if is_image(short[name], suffixes)]
    notes = count_names("folder", "left out", sorted({*map(left_out_folder, short.values())} - {""}))
    notes += count_names("file", "replaced by a later one of its name", members.repeated)
    ignored, samples = len(short) - len(images), {_sample(name)[0] for name in images}
    if options.image_key is not None:
        wanted = options.image_key.lower().split(",")
        kept = [name for name in images if _sample(name)[1].lower() in wanted]
        if images and not kept:
            found = ", ".join(sorted({_sample(name)[1] for name in images}))
            raise ImageError(f"--image-key is {options.image_key!r}, and the images of the tar have {found}")
        notes += count_names("image", "left out by --image-key", sorted({*images} - {*kept}))
        images = kept
    rows = [Row(short[name], None, "", 0, *members.places[name]) for name in images]
    keys = [_sample(name)[0] for name in images]
    fields = [
        name
        for name in members.places
        if _sample(name)[0] in samples
        and (suffix_of(name) in LABEL_SUFFIXES or _sample(name)[1] == options.class_key)
    ]
    source, reason, classes = "", "", dict[str, tuple[str, ...]]()
    first = dict(zip(reversed(keys), reversed(images), strict=True))
    more = [name for name, key in zip(images, keys, strict=True) if fields and first[key] != name]
    if more and options.image_key is None:
        notes += count_names("further image", "of a WebDataset sample", more)
        both = first[_sample(more[0])[0]], more[0]
        reason = (
            f"{' and '.join(map(printable, both))} are one sample: pass --image-key {_sample(both[0])[1]}"
        )
    elif options.class_key != "none" and (fields or options.class_key):
        try:
            texts = {name: members.texts.get(name, "") for name in fields}
            source, classes = _read_classes(texts, options)
            rows = [row._replace(classes=classes.get(key, ())) for row, key in zip(rows, keys, strict=True)]
            lacking = [name for name, key in zip(images, keys, strict=True) if key not in classes]
            if lacking and options.class_key is None and len({*map(posixpath.dirname, images)}) > 1:
                raise UnclearError(
                    f"{len(lacking)} of {len(images)} images in folders have no {source}, the first is"
                    f" {printable(lacking[0])}: pass --class-key {source}, or none for classes by folders"
                )
            if not any(row.classes for row in rows):
                raise UnclearError(f"no sample has the class {source}: {KEY_HINT}")
        except UnclearError as error:
            reason = str(error)
    reading = source and f"class: {source} of WebDataset"
    several = bool(source) and options.label_separator not in (None, "none")
    return Rows(rows, reading, reason, several=several, notes=notes, ignored=ignored)


def _sample(name: str) -> tuple[str, str]:
    """Return key and extension of a file of a tar."""
    head, base = posixpath.split(name)
    key, _, extension = base.partition(".")
    return posixpath.join(head, key), extension


def _read_classes(texts: Mapping[str, str], options: LabelOptions) -> tuple[str, dict[str, tuple[str, ...]]]:
    """Read files that can hold classes; returns the extension, or json:FIELD, and the classes of each key.

    Raises UnclearError for several extensions or fields, or none, and a field that is no text or number.
    """
    wanted, sources = options.class_key, defaultdict[str, dict[str, Any]](dict)
    for name, text in texts.items():
        (key, extension), content = _sample(name), None
        if not extension.lower().endswith("json"):
            sources[extension][key] = text
            continue
        with suppress(ValueError):
            content = json.loads(text)
        fields = {f":{name}": value for name, value in content.items()} if isinstance(content, dict) else {}
        for field, value in (fields or {"": content}).items():
            is_missing = value is None or value != value  # NaN
            sources[f"{extension}{field}"][key] = "" if is_missing else value
    found = [source for source in sources if source.rpartition(".")[2].lower() == "cls"]
    found = found or [source for source in sources if source.partition(":")[0].lower().endswith("json")]
    if wanted:
        found = [source for source in sources if wanted in (source, source.partition(":")[0])]
    if len(found) != 1:
        names = ", ".join(sorted(found or sources)) or "nothing"
        raise UnclearError(f"the classes can be in {names}: {KEY_HINT}")
    values = sources[found[0]]
    each = (part for value in values.values() for part in (value if isinstance(value, list) else [value]))
    if odd := [part for part in each if not isinstance(part, str | int | float)]:
        shown = json.dumps(odd[0])[:80]
        raise UnclearError(f"{found[0]} has {shown}: expected a text, a number or a list of them")
    cells = [[*map(_as_name, v)] if isinstance(v, list) else _as_name(v) for v in values.values()]
    return found[0], dict(zip(values, divide_cells(cells, options.label_separator), strict=True))


def _as_name(value: str | float) -> str:
    return f"{value:g}" if isinstance(value, float) else printable(str(value))


def is_tar(path: Path) -> bool:
    """Return whether a file is a tar; raise ImageError for a compressed one."""
    try:
        tarfile.open(path, "r:").close()
        return True
    except tarfile.ReadError:
        with path.open("rb") as file:
            is_packed = file.read(4) in (b"PK\x03\x04", b"\x28\xb5\x2f\xfd")  # zip, Zstandard
        if is_packed or tarfile.is_tarfile(path):
            raise ImageError(f"{path} is compressed: unpack it, pass its folder or a plain tar") from None
        return False


def stamp(tar: Path | str) -> Stamp:
    """Return size and state of a tar on disk or of an address; raises OSError."""
    if isinstance(tar, str):
        return remote.stamp(tar)
    status = tar.stat()
    return status.st_size, status.st_mtime_ns


def read_part(tar: Path | str, offset: int, size: int, indexed: Stamp) -> bytes:
    """Read a part of a tar that had this stamp when it was indexed; less of it if the tar is cut."""
    if isinstance(tar, str):
        return remote.read(tar, offset, size, indexed)
    if hasattr(os, "pread"):
        opened = _open_tar(tar, indexed)  # stays open here, also if another thread's tars push it out
        data = os.pread(opened.descriptor, size, offset)
    else:  # Windows
        with tar.open("rb") as file:
            file.seek(offset)
            data = file.read(size)
    if len(data) == size and stamp(tar) != indexed:
        raise OSError(f"{tar} was changed while it was in use: restore it, or start again")
    return data


@dataclass(frozen=True)
class _OpenTar:
    """A file that stays open. `os.pread` moves no position, which threads and forked processes share."""

    descriptor: int

    def __del__(self) -> None:
        os.close(self.descriptor)


@lru_cache(_OPEN_TARS)
def _open_tar(tar: Path, indexed: Stamp) -> _OpenTar:
    """Open a tar in the state that was indexed; another state is another file."""
    return _OpenTar(os.open(tar, os.O_RDONLY))


def _read_members(tar: Path | str, class_key: str | None) -> Members:
    """Index a tar. A tar of tars, as ImageNet's training images come, is a folder for each inner tar."""
    try:
        with remote.open_url(tar) if isinstance(tar, str) else tar.open("rb") as file:
            members = _index(file, class_key)
            tars = [name for name in members.places if name.endswith(".tar")]
            if not tars or any(is_image(name, SUFFIXES) for name in members.places):
                return members
            inner = {
                f"{posixpath.splitext(name)[0]}/{posixpath.basename(image)}": place
                for name in tars
                for image, place in _index(file, class_key, members.places[name][0]).places.items()
            }
            return Members(inner, {}, [])
    except (tarfile.TarError, OSError) as error:
        raise ImageError(f"{tar} is no whole, uncompressed tar: {error}") from error


def _index(file: BinaryIO, class_key: str | None, start: int = 0) -> Members:
    members, links = Members({}, {}, []), dict[str, str]()
    file.seek(start)
    with tarfile.open(fileobj=file, mode="r:") as tar:
        for member in tar:
            name = posixpath.normpath(member.name)
            if member.issym() or member.islnk():
                folder = posixpath.dirname(name) if member.issym() else ""
                links[name] = posixpath.normpath(posixpath.join(folder, member.linkname))
            if not member.isreg():
                continue
            if name in members.places:
                members.repeated.append(name)
            members.places[name] = member.offset_data, member.size
            is_label = suffix_of(name) in (".cls", ".json") or _sample(name)[1] == class_key
            if is_label and member.size <= _MAX_LABEL_BYTES:
                file.seek(member.offset_data)
                members.texts[name] = file.read(member.size).decode("utf-8-sig", "surrogateescape").strip()
    for name, target in links.items():
        members.places.setdefault(name, members.places.get(links.get(target, target), (0, 0)))
    return members
