"""Index uncompressed tars, and read parts of them: tars of images, tars of tars, WebDataset shards."""

import json
import posixpath
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dino_model.data import remote
from dino_model.data.classes import LabelOptions
from dino_model.data.images import ImageError
from dino_model.data.names import stem, suffix_of
from dino_model.runtime.files import printable

Stamp = tuple[int, int | str]
"""Size in bytes, and time of change or another mark of the file's state."""
KEY_HINT = (
    "pass --class-key with an extension such as cls or txt, with json:FIELD, or none for classes by folders"
)
LABEL_SUFFIXES = (".cls", ".json", ".txt")
_MAX_LABEL_BYTES = 1_000_000


class Members(NamedTuple):
    """Files of a tar.

    Attributes:
        places: Offset and size in bytes of each file, or of the one that it is a link to; zeros for a link
            to none.
        texts: Content of the files that can hold classes: .cls and .json, and what `class_key` names.
    """

    places: dict[str, tuple[int, int]]
    texts: dict[str, str]


class Samples(NamedTuple):
    """Images of a tar in the form of WebDataset.

    Attributes:
        classes: Classes of each image by its name; None: those of the folders.
        left_out: Images that `image_key` does not choose.
        reason: Reason why there are no classes, with the option that helps.
        reading: How the classes were read, in one line.
    """

    classes: dict[str, tuple[str, ...]] | None
    left_out: tuple[str, ...] = ()
    reason: str = ""
    reading: str = ""


def read_samples(members: Members, images: Sequence[str], options: LabelOptions) -> Samples:
    """Read the classes of images of a tar. A tar without .cls, .json or .txt beside an image is a folder.

    The key of a sample ends at the first dot of the name, the rest is the extension of a file.

    Args:
        members: Files of the tar.
        images: Names of its images.
        options: Keys of image and class.
    """
    keys = {_sample(name)[0] for name in images}
    fields = [name for name in members.places if suffix_of(name) in LABEL_SUFFIXES]
    fields = [name for name in fields if _sample(name)[0] in keys]
    if not fields and not options.image_key and options.class_key in (None, "none"):
        return Samples(None)
    kept, left_out = list(images), tuple[str, ...]()
    if options.image_key is not None:
        wanted = options.image_key.lower().split(",")
        kept = [name for name in images if _sample(name)[1].lower() in wanted]
        left_out = tuple(sorted({*images} - {*kept}))
        if not kept:
            found = ", ".join(sorted({_sample(name)[1] for name in images}))
            raise ImageError(f"--image-key is {options.image_key!r}, and the images of the tar have {found}")
    names_of = dict[str, str]()
    for name in kept:
        first = names_of.setdefault(_sample(name)[0], name)
        if first != name and options.image_key is None:
            both = f"{printable(first)} and {printable(name)}"
            return Samples({}, (), f"{both} are images of one sample: pass --image-key {_sample(first)[1]}")
    if options.class_key == "none" or (not fields and options.class_key is None):
        return Samples(None, left_out)
    try:
        source, texts = _choose_field(fields, members.texts, options.class_key)
        classes = {key: _classes(text, source) for key, text in texts.items()}
    except ValueError as error:
        return Samples({}, left_out, str(error))
    of_images = {name: classes.get(_sample(name)[0], ()) for name in kept}
    first = next((name for name, given in of_images.items() if given), "")
    if not first:
        return Samples({}, left_out, f"no sample has the class {source}: {KEY_HINT}")
    example = f"{printable(first)} is {'|'.join(of_images[first])!r}"
    return Samples(of_images, left_out, "", f"class: {source} of WebDataset; {example}")


def _sample(name: str) -> tuple[str, str]:
    """Return key and extension of a file of a tar."""
    head, base = posixpath.split(name)
    key, _, extension = base.partition(".")
    return posixpath.join(head, key), extension


def _choose_field(
    fields: Sequence[str], texts: Mapping[str, str], wanted: str | None
) -> tuple[str, dict[str, str]]:
    """Choose the files with the classes; returns the extension, or json:FIELD, and their content by key.

    Raises:
        ValueError: Several files or fields, or none.
    """
    chosen = wanted.partition(":")[0] if wanted else None
    candidates = [name for name in fields if chosen in (None, _sample(name)[1])]
    if chosen is None:
        labeled = [name for name in fields if suffix_of(name) == ".cls"]
        candidates = labeled or [name for name in fields if suffix_of(name) == ".json"]
    if not candidates:
        found = ", ".join(sorted({_sample(name)[1] for name in fields})) or "none"
        raise ValueError(f"the files with classes beside the images are {found}: {KEY_HINT}")
    content = dict[str, str]()
    for name in candidates:
        key, extension = _sample(name)
        if key in content:
            first = next(other for other in candidates if _sample(other)[0] == key)
            raise ValueError(f"{printable(first)} and {printable(name)} can have the class: {KEY_HINT}")
        content[key] = texts.get(name, "")
    extension = _sample(candidates[0])[1]
    if not extension.lower().endswith("json"):
        return extension, content
    if wanted and ":" in wanted:
        return wanted, content
    objects = [value for text in content.values() if isinstance(value := _json(text), Mapping)]
    names = sorted({str(name) for value in objects for name in value})
    if len(names) != 1:
        raise ValueError(
            f"{printable(candidates[0])} has the fields {', '.join(names) or 'none'}: {KEY_HINT}"
        )
    return f"json:{names[0]}", content


def _classes(text: str, source: str) -> tuple[str, ...]:
    """Return the classes in a file of a sample; raises ValueError for a field that is no text or number."""
    _, colon, field = source.partition(":")
    if not colon:
        return (printable(text),) if text else ()
    content = _json(text)
    value = content.get(field) if isinstance(content, Mapping) else None
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(each, str | int | float) for each in values):
        raise ValueError(
            f"{source} has {json.dumps(value)[:80]}: expected a text, a number or a list of them"
        )
    return tuple(f"{each:g}" if isinstance(each, float) else printable(str(each)) for each in values)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


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


def read_members(tar: Path | str, class_key: str | None = None) -> Members:
    """Index a tar. A tar of tars, as ImageNet's training images come, is a folder for each inner tar.

    Raises:
        ImageError: Not a whole, uncompressed tar.
    """
    try:
        with remote.open_url(tar) if isinstance(tar, str) else tar.open("rb") as file:
            members = _index(file, class_key)
            if not members.places or not all(name.endswith(".tar") for name in members.places):
                return members
            inner = {
                f"{stem(name)}/{posixpath.basename(image)}": place
                for name, (offset, _) in members.places.items()
                for image, place in _index(file, class_key, offset).places.items()
            }
            return Members(inner, {})
    except (tarfile.TarError, OSError) as error:
        raise ImageError(f"{tar} is no whole, uncompressed tar: {error}") from error


def _index(file: BinaryIO, class_key: str | None, start: int = 0) -> Members:
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
            is_label = suffix_of(name) in (".cls", ".json") or _sample(name)[1] == class_key
            if is_label and member.size <= _MAX_LABEL_BYTES:
                file.seek(member.offset_data)
                members.texts[name] = file.read(member.size).decode("utf-8-sig", "surrogateescape").strip()
    for name, target in links.items():
        members.places.setdefault(name, members.places.get(links.get(target, target), (0, 0)))
    return members
