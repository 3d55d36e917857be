"""Index uncompressed tars, and read parts of them: tars of images, tars of tars, WebDataset shards."""

import json
import posixpath
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dino_model.data import remote
from dino_model.data.images import ImageError
from dino_model.data.names import stem
from dino_model.runtime.files import printable

Stamp = tuple[int, int | str]
"""Size in bytes, and time of change or another mark of the file's state."""
Classes = tuple[str, ...]
LABEL_FIELDS = (
    *("label", "class", "cls", "category", "target", "label_name", "class_name", "category_name"),
    *("labels", "classes", "categories", "tags", "label_id", "class_id"),
)
"""Fields of a WebDataset .json file that hold the class or the classes, in any case; the first one counts."""
_MAX_LABEL_BYTES = {".cls": 1000, ".json": 1_000_000}


class Members(NamedTuple):
    """Files of a tar.

    Attributes:
        places: Offset and size in bytes of each file, or of the one that it is a link to; zeros for a link
            to none.
        classes: Classes in .cls and .json files, by their names without suffix.
    """

    places: dict[str, tuple[int, int]]
    classes: dict[str, Classes]

    def classes_of(self, name: str) -> Classes:
        """Return the classes of an image: those of its name without suffix, or without several suffixes."""
        head, base = posixpath.split(name)
        parts = base.split(".")
        keys = (posixpath.join(head, ".".join(parts[:end])) for end in range(len(parts) - 1, 0, -1))
        return next((self.classes[key] for key in keys if key in self.classes), ())


def is_tar(path: Path) -> bool:
    """Return whether a file is a tar; raise ImageError for a compressed one."""
    try:
        tarfile.open(path, "r:").close()
        return True
    except tarfile.ReadError:
        with path.open("rb") as file:
            is_packed = file.read(4) in (b"PK\x03\x04", b"\x28\xb5\x2f\xfd")  # zip, Zstandard
        if is_packed or tarfile.is_tarfile(path):
            raise ImageError(
                f"{path} is compressed: unpack it, then pass its folder or a plain tar"
            ) from None
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
    with tar.open("rb") as file:
        file.seek(offset)
        data = file.read(size)
    if len(data) == size and stamp(tar) != indexed:
        raise OSError(f"{tar} was changed while it was in use: restore it, or start again")
    return data


def read_members(tar: Path | str) -> Members:
    """Index a tar. A tar of tars, as ImageNet's training images come, is a folder for each inner tar.

    Raises:
        ImageError: Not a whole, uncompressed tar.
    """
    try:
        with remote.open_url(tar) if isinstance(tar, str) else tar.open("rb") as file:
            members = _index(file)
            if not members.places or not all(name.endswith(".tar") for name in members.places):
                return members
            inner = {
                f"{stem(name)}/{posixpath.basename(image)}": place
                for name, (offset, _) in members.places.items()
                for image, place in _index(file, offset).places.items()
            }
            return Members(inner, {})
    except (tarfile.TarError, OSError) as error:
        raise ImageError(f"{tar} is no whole, uncompressed tar: {error}") from error


def _index(file: BinaryIO, start: int = 0) -> Members:
    members, links = Members({}, {}), dict[str, str]()
    file.seek(start)
    with tarfile.open(fileobj=file, mode="r:") as tar:
        for member in tar:
            name = posixpath.normpath(member.name)
            if member.issym() or member.islnk():
                folder = posixpath.dirname(name) if member.issym() else ""
                links[name] = posixpath.normpath(posixpath.join(folder, member.linkname))
            if not member.isreg():
                continue
            members.places[name] = member.offset_data, member.size
            key, suffix = posixpath.splitext(name)
            if member.size <= _MAX_LABEL_BYTES.get(suffix.lower(), -1):
                file.seek(member.offset_data)
                text = file.read(member.size).decode("utf-8-sig", "surrogateescape").strip()
                classes = (printable(text),) if suffix.lower() == ".cls" else _json_classes(text)
                if classes and (suffix.lower() == ".cls" or key not in members.classes):
                    members.classes[key] = classes
    for name, target in links.items():
        members.places.setdefault(name, members.places.get(links.get(target, target), (0, 0)))
    return members


def _json_classes(text: str) -> Classes:
    """Classes in the first of `LABEL_FIELDS` of a JSON object; none if there is no such field."""
    try:
        content: Any = json.loads(text)
    except ValueError:
        return ()
    if not isinstance(content, Mapping):
        return ()
    fields = {str(key).lower(): value for key, value in content.items()}
    value = next((fields[name] for name in LABEL_FIELDS if fields.get(name) is not None), ())
    values = value if isinstance(value, list | tuple) else [value]
    plain = all(isinstance(each, str | int | float) and not isinstance(each, bool) for each in values)
    return (
        tuple(f"{each:g}" if isinstance(each, float) else printable(str(each)) for each in values)
        if plain
        else ()
    )
