"""Open folders, tars, lists, patterns and remote shards as one indexed sequence of images."""

import glob
import hashlib
import json
import os
import posixpath
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import product
from operator import eq
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from dino_model import files, remote
from dino_model.channels import ARRAY_SUFFIX, MEASURED_IMAGES, ChannelRange, read_channels
from dino_model.download import cache_folder
from dino_model.errors import sentence
from dino_model.images import MAX_PIXELS, SUFFIXES, ImageError, read, read_file
from dino_model.textures import textures_tar

Tar = Path | str
"""A local tar, or the URL of a remote one."""
Stamp = tuple[int, int | str]
"""Size in bytes, and time of change or another mark of the file's state."""
VERSION = 2
"""Of the cached index of tars."""
ROWS_AT_ONCE = 65_536
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}


class ShardError(ImageError):
    """A tar that is missing, cut or changed since it was indexed."""


class Store(NamedTuple):
    """A folder or tar that holds images."""

    path: Tar
    stamp: Stamp | None
    """State of a tar when it was indexed; None: a folder."""
    prefix: str = ""
    """Beginning of the images' names that is not part of their path in a folder."""


class Column(Sequence[Any]):
    """A column of a table: strings or integers, equal to any sequence of the same values.

    A table of millions of rows is mapped from a file. Processes share it: a pickled column holds the path.
    """

    def __init__(self, table: np.ndarray, field: str, rows: np.ndarray | None = None) -> None:
        """`table` is a structured array; `rows` are the numbers of the rows, None for all."""
        self.table, self.field, self.rows = table, field, rows

    def take(self, chosen: np.ndarray) -> "Column":
        """Return these elements, in this order, without copying the table."""
        return Column(self.table, self.field, chosen if self.rows is None else self.rows[chosen])

    def __len__(self) -> int:
        return len(self.table) if self.rows is None else len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        values = self.table[self.field][index if self.rows is None else self.rows[index]].tolist()
        return tuple(map(_plain, values)) if isinstance(index, slice) else _plain(values)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), ROWS_AT_ONCE):
            yield from self[start : start + ROWS_AT_ONCE]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.table, np.memmap):
            return _mapped_column, (str(self.table.filename), self.field, self.rows)
        return Column, (self.table, self.field, self.rows)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, list) else value


def _mapped_column(path: str, field: str, rows: np.ndarray | None) -> Column:
    return Column(np.load(path, mmap_mode="r"), field, rows)


@dataclass(frozen=True, eq=False)
class Images:
    """A sequence of images, made by `open_images`, sorted by name. It holds no open file.

    Attributes:
        names: Paths relative to the folder, with "/".
        labels: Indices into `classes`; None without classes.
        classes: Names of the parent folders, sorted.
        root: Folder that names are relative to, or the tar.
        extents: Store, offset and size in bytes of every image; None: all are files below `root`.
        stores: Folders and tars that `extents` refers to.
        ignored: Number of files that are not images.
        channel_range: Of images of other channels than RGB.
    """

    names: Sequence[str]
    labels: Sequence[int] | None
    classes: tuple[str, ...]
    root: Path
    extents: Sequence[tuple[int, int, int]] | None = None
    stores: tuple[Store, ...] = ()
    ignored: int = 0
    channel_range: ChannelRange | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        in_classes = f" in {len(self.classes):,} classes" if self.classes else ""
        ignored = f"; {self.ignored:,} other files ignored" if self.ignored else ""
        return f"{len(self):,} images of {self.root.name}{in_classes}{ignored}"

    def read(self, index: int, *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
        """Read an image: uint8 RGB [height, width, 3], or as `channel_range` says, [height, width, channels].

        Raises:
            ImageError: As `images.read` or `read_channels`.
        """
        if self.channel_range:
            return self.channel_range.read(self.read_bytes(index), self.names[index])
        return read(self.read_bytes(index), max_pixels=max_pixels, name=self.names[index])

    def raw_channels(self, channels: int) -> Iterator[np.ndarray]:
        """Read up to `MEASURED_IMAGES` as they are stored, see `read_channels`; damaged ones are skipped."""
        for index in range(0, len(self), max(1, len(self) // MEASURED_IMAGES)):
            with suppress(ImageError):
                yield read_channels(self.read_bytes(index), channels, self.names[index])

    def read_bytes(self, index: int) -> bytes:
        """Read the file of an image, not decoded.

        Raises:
            ImageError: It cannot be read; names the image.
            ShardError: The tar is missing, cut or changed; names the tar.
        """
        store, offset, size = self._place(index)
        if store.stamp is None:
            name = self.names[index].removeprefix(store.prefix)
            return read_file(Path(store.path) / name, name)
        try:
            data = _read_part(store.path, offset, size, store.stamp)
        except OSError as error:
            raise ShardError(f"{sentence(error)} (reading {self.names[index]})") from error
        if len(data) < size:
            tar = Path(str(store.path)).name
            raise ShardError(f"{self.names[index]} is cut short: {tar} ends within it")
        return data

    def places(self) -> list[tuple[object, ...]]:
        """Return the place of every image on the disk, or in a tar: equal for links to one file."""
        places: list[tuple[object, ...]] = []
        for index, name in enumerate(self.names):
            store, offset, size = self._place(index)
            if isinstance(store.path, str):
                places.append((store.path, offset, size))
                continue
            file = store.path if store.stamp else store.path / name.removeprefix(store.prefix)
            status = file.stat()
            places.append((status.st_dev, status.st_ino, offset, size))
        return places

    def fingerprint(self) -> str:
        """Hash names, sizes and times of change."""
        return self._hash(with_times=True)

    def inventory(self) -> str:
        """Hash names and sizes: equal for copies of the same images, in a folder or a tar."""
        return self._hash(with_times=False)

    def subset(self, indices: Iterable[int]) -> "Images":
        """Return these images, in this order. `classes` stay, so that labels keep their meaning."""
        chosen = np.fromiter(indices, np.int64)
        return replace(
            self,
            names=_take(self.names, chosen),
            labels=None if self.labels is None else _take(self.labels, chosen),
            extents=None if self.extents is None else _take(self.extents, chosen),
        )

    def named(self, names: str | Path) -> "Images":
        """Return the images that a text file names, one a line, as in `names`.

        Raises:
            ImageError: A name that does not exist, or none at all.
        """
        wanted = _known_lines(self.names, names)
        if not wanted:
            raise ImageError(f"{names} names no image: expected one name a line, such as {self.names[0]}")
        return self.subset(i for i, name in enumerate(self.names) if name in wanted)

    def _place(self, index: int) -> tuple[Store, int, int]:
        if self.extents is None:
            return Store(self.root, None), 0, 0
        number, offset, size = self.extents[index]
        return self.stores[number], offset, size

    def _hash(self, with_times: bool) -> str:
        digest = hashlib.sha256(repr(self.channel_range).encode() if self.channel_range else b"")
        for index, name in enumerate(self.names):
            store, offset, size = self._place(index)
            if store.stamp is None:
                status = (Path(store.path) / name.removeprefix(store.prefix)).stat()
                found = f"{status.st_size}\0{status.st_mtime_ns}" if with_times else status.st_size
            else:
                found = f"{offset}\0{size}\0{store.stamp[1]}" if with_times else size
            digest.update(f"{name}\0{found}\n".encode())
        return digest.hexdigest()[:32]


def open_images(
    source: str | Path | Sequence[str | Path], *, exclude: str | Path | None = None, arrays: bool = False
) -> Images:
    """Open the images of a folder, uncompressed tars, a list, or several of these. Nothing is decoded.

    A folder is searched through all its levels, except hidden folders and links that lead back up. Files with
    the suffix of no image are counted as ignored. In a single tar, one top folder that holds everything is
    left out of the names. A list is a text file with one path a line, relative to the list's folder, all of
    images or all of tars; empty lines and lines that begin with # are skipped. Of several sources or tars,
    the name of each is the folder of its images.

    The label of an image is its parent folder, or the one above if all parent folders have one name (Tiny
    ImageNet: class/images/image). In tars, the content of a file with the image's name and the suffix .cls is
    its class (WebDataset). One class alone counts as none.

    Args:
        source: FOLDER, TAR, LIST, or a pattern of tars: 'train/*.tar', 'shard-{000..127}.tar', also of URLs
            (s3://…, https://…). The index of tars is cached. `textures:` and `textures:test` are generated,
            see `dino_model.textures`.
        exclude: Text file with the names of images to leave out, one a line, as in `Images.names`.
        arrays: Count .npy files as images, too.

    Raises:
        ImageError: Nothing found, no images, a compressed or damaged tar, or a listed or excluded name that
            does not exist.
    """
    sources = [source] if isinstance(source, str | Path) else list(source)
    sources = [textures_tar(str(one)) if str(one).startswith("textures:") else one for one in sources]
    groups = [_find_tars(str(source)) for source in sources]
    suffixes = frozenset(SUFFIXES | {ARRAY_SUFFIX} if arrays else SUFFIXES)
    if all(groups):
        images = _open_tars(list(dict.fromkeys(tar for group in groups for tar in group)), suffixes)
    elif len(sources) == 1:
        images = _open_files(Path(sources[0]), suffixes)
    else:
        pairs = zip(groups, sources, strict=True)
        parts = [
            _open_tars(group, suffixes) if group else _open_files(Path(source), suffixes)
            for group, source in pairs
        ]
        images = _join(parts, titles([Path(source) for source in sources]))
    if exclude is None:
        return images
    unwanted = _known_lines(images.names, exclude)
    kept = [i for i, name in enumerate(images.names) if name not in unwanted]
    if not kept:
        raise ImageError(f"{exclude} leaves no image: it names all {len(images)}")
    return images.subset(kept)


def expand_braces(pattern: str) -> Iterator[str]:
    """Expand braces as a shell does: {a,b} and {000..127}, whose numbers keep their leading zeros."""

    def choices(inside: str) -> list[str]:
        if not (numbers := re.fullmatch(r"(\d+)\.\.(\d+)", inside)):
            return inside.split(",")
        first, last = numbers.groups()
        return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]

    parts = re.split(r"\{([^{}]*)\}", pattern)
    words = product(*(choices(part) if i % 2 else [part] for i, part in enumerate(parts)))
    return map("".join, words)


def titles(tars: Sequence[Tar]) -> list[str]:
    """Return a folder name for each source: its name, with folders above where names are equal."""
    paths = [str(tar).partition("://")[2] or str(tar) for tar in tars]
    names = [PurePosixPath(path.removesuffix(".tar").removesuffix(".txt")) for path in paths]
    found: list[str] = []
    for depth in range(1, max(len(name.parts) for name in names) + 1):
        found = ["/".join(name.parts[-depth:]).lstrip("/") for name in names]
        if len(set(found)) == len(set(names)):
            break
    return found


def _open_files(path: Path, suffixes: frozenset[str]) -> Images:
    """Open a folder or a list of images."""
    found = list(_walk(path)) if path.is_dir() else _read_list(path)
    names = sorted(name for name in found if _is_image(name, suffixes))
    if not names:
        raise _no_images(path, len(found))
    labels, classes = _labels(names)
    root = path if path.is_dir() else path.parent
    return Images(tuple(names), labels, classes, root, ignored=len(found) - len(names))


def _open_tars(tars: list[Tar], suffixes: frozenset[str]) -> Images:
    """Open the images of tars through their cached index."""
    stamps, folders = list(map(_stamp, tars)), titles(tars)
    resolved = [tar if isinstance(tar, str) else str(tar.resolve()) for tar in tars]
    key = "\0".join(map(str, (VERSION, *resolved, *stamps, *folders, *sorted(suffixes))))
    cached = cache_folder() / "tars" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npy"
    table, facts = _cached_table(cached, lambda: _index(tars, folders, suffixes))
    root = Path(str(tars[0]))
    return Images(
        Column(table, "name"),
        Column(table, "label") if facts["classes"] else None,
        tuple(facts["classes"]),
        root if len(tars) == 1 else root.parent,
        Column(table, "extent"),
        tuple(Store(tar, stamp) for tar, stamp in zip(tars, stamps, strict=True)),
        facts["ignored"],
    )


def _join(parts: Sequence[Images], folders: Sequence[str]) -> Images:
    """Join folders, lists and tars; they keep their labels, or else are labeled by their own names."""
    stores: list[Store] = []
    extents: list[tuple[int, int, int]] = []
    for part, folder in zip(parts, folders, strict=True):
        first = len(stores)
        stores += part.stores or [Store(part.root, None, f"{folder}/")]
        places = part.extents or [(0, 0, 0)] * len(part)
        extents += [(first + number, offset, size) for number, offset, size in places]
    pairs = list(zip(folders, parts, strict=True))
    names = tuple(f"{folder}/{name}" for folder, part in pairs for name in part.names)
    labels: tuple[int, ...] | None = None
    classes: tuple[str, ...] = ()
    if all(part.labels is not None for part in parts):
        labels, classes = _numbered(part.classes[label] for part in parts for label in part.labels or ())
    elif all(part.labels is None for part in parts):
        labels, classes = _labels(names)
    root = Path(os.path.commonpath([part.root.absolute() for part in parts]))
    return Images(names, labels, classes, root, extents, tuple(stores), sum(part.ignored for part in parts))


def _find_tars(source: str) -> list[Tar]:
    """The tars of a tar, pattern or list; empty for any other source. Raises ImageError if one is missing."""
    path, is_remote = Path(source), remote.is_remote(source)
    tars: list[Tar] = []
    try:
        if not is_remote and path.is_file():
            tars = [path] if _is_tar(path) else _listed_tars(path)
        elif is_remote or (re.search(r"[*?\[{]", source) and not path.is_dir()):
            for name in expand_braces(source):
                if remote.is_remote(name):
                    tars += remote.glob(name) if "*" in name else [name]
                else:
                    tars += map(Path, sorted(glob.glob(name)) if glob.has_magic(name) else [name])  # noqa: PTH207
        for tar in tars:
            _stamp(tar)
    except OSError as error:
        reason = f"{error.filename} cannot be opened: {error.strerror}" if error.filename else str(error)
        raise ImageError(reason) from error
    return tars


def _is_tar(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(8)
    kind = next((kind for magic, kind in _COMPRESSED.items() if head.startswith(magic)), None)
    if kind:
        raise ImageError(f"{path} is compressed ({kind}): unpack it, then pass its folder or a plain tar")
    return tarfile.is_tarfile(path)


def _listed_tars(path: Path) -> list[Tar]:
    """The tars of a text file; empty for any other file."""
    content = path.read_bytes()
    names = [] if b"\0" in content[:4096] else _lines(content.decode("utf-8", "replace"))
    if not all(name.endswith(".tar") for name in names):
        return []
    return [name if remote.is_remote(name) else path.parent / name for name in names]


def _stamp(tar: Tar) -> Stamp:
    if isinstance(tar, str):
        return remote.stamp(tar)
    status = tar.stat()
    return status.st_size, status.st_mtime_ns


def _read_part(tar: Tar, offset: int, size: int, stamp: Stamp) -> bytes:
    """Read a part of a tar that had this stamp when it was indexed; less of it if the tar is cut."""
    if isinstance(tar, str):
        return remote.read(tar, offset, size, stamp)
    with tar.open("rb") as file:
        file.seek(offset)
        data = file.read(size)
    if len(data) == size and _stamp(tar) != stamp:
        raise OSError(f"{tar} was changed while it was in use: restore it, or start again")
    return data


def _cached_table(
    path: Path, make: Callable[[], tuple[np.ndarray, dict[str, Any]]]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Map a table and read the facts stored with it; make both if there is none."""
    if not path.is_file():
        table, facts = make()
        try:
            files.write_json(path.with_suffix(".json"), facts)
            with files.replacing(path) as beside:
                np.save(beside, table)
        except OSError:  # without a cache, the table is made each time
            return table, facts
    return np.load(path, mmap_mode="r"), json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


def _index(
    tars: Sequence[Tar], folders: Sequence[str], suffixes: frozenset[str]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Index the images of tars, sorted by name: "TAR/NAME" for several tars."""
    extents: dict[str, tuple[int, int, int]] = {}
    class_files: dict[str, str] = {}
    for number, (tar, title) in enumerate(zip(tars, folders, strict=True)):
        try:
            members, contents = _members(tar)
        except (tarfile.TarError, OSError) as error:
            raise ImageError(f"{tar} is no whole, uncompressed tar: {error}") from error
        tops = {name.partition("/")[0] for name in members} if len(tars) == 1 else set()
        top, folder = f"{tops.pop()}/" if len(tops) == 1 else "", f"{title}/" if len(tars) > 1 else ""
        extents |= {folder + name.removeprefix(top): (number, *place) for name, place in members.items()}
        class_files |= {folder + name.removeprefix(top): text for name, text in contents.items()}
    names = sorted(name for name in extents if _is_image(name, suffixes))
    if not names:
        others = f" and {len(tars) - 1} more" if len(tars) > 1 else ""
        raise _no_images(f"{tars[0]}{others}", len(extents))
    stems = (posixpath.splitext(name)[0] for name in names)
    labels, classes = _labels([f"{class_files.get(stem, '.')}/_" for stem in stems] if class_files else names)
    encoded = [name.encode() for name in names]
    fields = [("name", f"S{max(map(len, encoded))}"), ("label", "<i4"), ("extent", "<i8", (3,))]
    table = np.empty(len(names), fields)
    table["name"], table["label"] = encoded, -1 if labels is None else labels
    table["extent"] = [extents[name] for name in names]
    return table, {"classes": classes, "ignored": len(extents) - len(names)}


def _members(path: Tar) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
    """Offset and size of every file of a tar, and the contents of its .cls files by name without suffix."""
    members, contents = {}, {}
    with _opened(path) as file, tarfile.open(fileobj=file, mode="r:") as tar:
        for member in tar:
            if member.isreg():
                name = posixpath.normpath(member.name)
                members[name] = (member.offset_data, member.size)
                if name.endswith(".cls") and member.size < 100:
                    content = tar.extractfile(member)
                    assert content is not None
                    contents[name.removesuffix(".cls")] = content.read().decode("utf-8", "replace").strip()
    if members and all(name.endswith(".tar") for name in members):
        members = _members_of_inner_tars(path, members)
    return members, contents


def _members_of_inner_tars(path: Tar, tars: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """A tar of tars, as ImageNet's training images come: each inner tar is a folder of its name."""
    found: dict[str, tuple[int, int]] = {}
    with _opened(path) as file:
        for name, (offset, _) in tars.items():
            file.seek(offset)
            with tarfile.open(fileobj=file, mode="r:") as tar:
                inside = {posixpath.basename(m.name): (m.offset_data, m.size) for m in tar if m.isreg()}
            found |= {f"{name.removesuffix('.tar')}/{image}": place for image, place in inside.items()}
    return found


@contextmanager
def _opened(tar: Tar) -> Iterator[BinaryIO]:
    with remote.opened(tar) if isinstance(tar, str) else tar.open("rb") as file:
        yield file


def _no_images(path: object, found: int) -> ImageError:
    return ImageError(
        f"no images in {path}: found {found} files, none of them .jpg, .png, .webp, .bmp, .tif, .gif or .ppm"
    )


def _take(values: Sequence[Any], chosen: np.ndarray) -> Sequence[Any]:
    return values.take(chosen) if isinstance(values, Column) else tuple(values[i] for i in chosen.tolist())


def _walk(folder: Path) -> Iterator[str]:
    """Names of all files below a folder; hidden folders and links that lead back up are skipped."""
    above: dict[str, frozenset[str]] = {}  # real paths of each folder and its parents
    for parent, folders, names in os.walk(folder, followlinks=True):
        here = above.pop(parent, frozenset()) | {os.path.realpath(parent)}
        inside = {name: str(Path(parent) / name) for name in folders if not name.startswith(".")}
        folders[:] = [name for name, path in inside.items() if os.path.realpath(path) not in here]
        above |= {inside[name]: here for name in folders}
        relative = Path(parent).relative_to(folder)
        yield from ((relative / name).as_posix() for name in names)


def _read_list(path: Path) -> list[str]:
    names = _lines(_read_text(path))
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing:
        raise ImageError(
            f"{path} lists {len(names)} files, and {len(missing)} of them do not exist,"
            f" the first is {missing[0]}; paths in a list are relative to the list's folder"
        )
    return names


def _read_text(path: Path) -> str:
    try:
        return read_file(path, str(path)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ImageError(f"{path} is no folder, no tar and no text with one name a line") from error


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _is_image(name: str, suffixes: frozenset[str]) -> bool:
    hidden = any(part.startswith(".") and part != ".." for part in name.split("/"))
    return posixpath.splitext(name)[1].lower() in suffixes and not hidden


def _known_lines(names: Sequence[str], file: str | Path) -> set[str]:
    """The lines of a text file, all of which must be among the names."""
    lines = set(_lines(_read_text(Path(file))))
    unknown = sorted(lines.difference(names))
    if unknown:
        raise ImageError(
            f"{file} names {len(unknown)} images that do not exist, the first is {unknown[0]};"
            f" names look like {names[0]}"
        )
    return lines


def _labels(names: Sequence[str]) -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
    """Number of every name's parent folder, and the folders."""
    paths = [posixpath.dirname(name) for name in names]
    while all(paths) and len({posixpath.basename(path) for path in paths}) == 1 < len(set(paths)):
        paths = [posixpath.dirname(path) for path in paths]
    folders = [posixpath.basename(path) or "." for path in paths]
    return (None, ()) if len(set(folders)) == 1 else _numbered(folders)


def _numbered(folders: Iterable[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Number of every folder among the sorted ones, and these."""
    folders = list(folders)
    number = {folder: index for index, folder in enumerate(sorted(set(folders)))}
    return tuple(number[folder] for folder in folders), tuple(number)
