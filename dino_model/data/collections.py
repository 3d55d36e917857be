"""Open folders, tars, lists, patterns and remote shards as one indexed sequence of images."""

import glob
import hashlib
import json
import os
import posixpath
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import eq
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dino_model.data import remote
from dino_model.data.channels import ARRAY_SUFFIX, MEASURED_IMAGES, ChannelRange, read_channels
from dino_model.data.images import SUFFIXES, ImageError, read, read_file
from dino_model.data.textures import textures_tar
from dino_model.runtime import files
from dino_model.runtime.download import cache_folder
from dino_model.runtime.errors import counted, sentence

Stamp = tuple[int, int | str]
"""Size in bytes, and time of change or another mark of the file's state."""
VERSION = 3
"""Version of the cached index of tars."""
ROWS_AT_ONCE = 65_536


class ShardError(ImageError):
    """A tar that is missing, cut or changed since it was indexed."""


class Store(NamedTuple):
    """A tar (a URL if it is remote), a folder, or some files of a folder: single ones or those of a list."""

    path: Path | str
    stamp: Stamp | None = None
    """State of a tar when it was indexed; None: a folder."""
    file_list: Path | None = None
    files: tuple[str, ...] = ()
    """Names of single files in the folder; empty: all of its files."""
    prefix: str = ""
    """Beginning of the images' names that is not part of their path in a folder."""


class Column(Sequence[Any]):
    """A column of a table: strings or integers, equal to any sequence of the same values.

    A table of millions of rows is mapped from a file. Processes share it: a pickled column holds the path.
    """

    def __init__(self, table: np.ndarray | str, field: str, rows: np.ndarray | None = None) -> None:
        """`table` is a structured array or its file; `rows` are the numbers of the rows, None for all."""
        self.table: np.ndarray = np.load(table, mmap_mode="r") if isinstance(table, str) else table
        self.field, self.rows = field, rows

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
        table = str(self.table.filename) if isinstance(self.table, np.memmap) else self.table
        return Column, (table, self.field, self.rows)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return os.fsdecode(value)
    return tuple(value) if isinstance(value, list) else value


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
        ignored = f"; {counted(self.ignored, 'other file')} ignored" if self.ignored else ""
        return f"{counted(len(self), 'image')} of {self.root.name}{in_classes}{ignored}"

    def read(self, index: int) -> np.ndarray:
        """Read an image: uint8 RGB [height, width, 3], or as `channel_range` says, [height, width, channels].

        Raises:
            ImageError: As `images.read` or `read_channels`.
        """
        data, name = self.read_bytes(index), self.names[index]
        return self.channel_range.read(data, name) if self.channel_range else read(data, name=name)

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
        name, (store, path, offset, size) = self.names[index], self._place(index)
        if store.stamp is None:
            return read_file(Path(path), name)
        try:
            data = _read_part(path, offset, size, store.stamp)
        except OSError as error:
            raise ShardError(f"{sentence(error)} (reading {name})") from error
        if len(data) < size:
            raise ShardError(f"{name} is cut short: {Path(path).name} ends within it")
        return data

    def file(self, index: int) -> Path:
        """Return the file of an image, or the tar that holds it."""
        return Path(self._place(index)[1])

    def places(self) -> list[tuple[object, ...]]:
        """Return the place of every image on the disk, or in a tar: equal for links to one file."""
        places: list[tuple[object, ...]] = []
        for index in range(len(self)):
            _, path, *extent = self._place(index)
            file = (path,) if isinstance(path, str) else (path.stat().st_dev, path.stat().st_ino)
            places.append((*file, *extent))
        return places

    def fingerprint(self) -> str:
        """Hash names, sizes and times of change."""
        return self._hash(with_times=True)

    def inventory(self) -> str:
        """Hash names and sizes: equal for copies of the same images, in a folder or a tar."""
        return self._hash(with_times=False)

    def _hash(self, with_times: bool) -> str:
        digest = hashlib.sha256(repr(self.channel_range).encode() if self.channel_range else b"")
        for index, name in enumerate(self.names):
            store, path, offset, size = self._place(index)
            if store.stamp is None:
                status = Path(path).stat()
                size, state = status.st_size, f"{status.st_size}\0{status.st_mtime_ns}"
            else:
                state = f"{offset}\0{size}\0{store.stamp[1]}"
            identity = state if with_times else size
            digest.update(f"{name}\0{identity}\n".encode())
        return digest.hexdigest()[:32]

    def subset(self, indices: Iterable[int]) -> "Images":
        """Return these images, in this order. `classes` stay, so that labels keep their meaning."""
        chosen = np.fromiter(indices, np.int64)
        return replace(
            self,
            names=_take(self.names, chosen),
            labels=None if self.labels is None else _take(self.labels, chosen),
            extents=None if self.extents is None else _take(self.extents, chosen),
        )

    def _place(self, index: int) -> tuple[Store, Path | str, int, int]:
        """Store, file or tar, and offset and size in a tar."""
        number, offset, size = (0, 0, 0) if self.extents is None else self.extents[index]
        store = self.stores[number] if self.stores else Store(self.root)
        if store.stamp is None:
            return store, Path(store.path) / self.names[index].removeprefix(store.prefix), 0, 0
        return store, store.path, offset, size


def open_images(
    source: str | Path | Sequence[str | Path], *, exclude: str | Path | None = None, arrays: bool = False
) -> Images:
    """Open the images of a folder, uncompressed tars, a list, or several of these. Nothing is decoded.

    A folder is searched through all its levels, except hidden folders and links that lead back up. Files with
    the suffix of no image are counted as ignored. In a single tar, one top folder that holds everything is
    left out of the names. A list is a text file with one path per line, relative to the list's folder. All
    paths of a list are images, or all are tars. Empty lines and lines that begin with # are skipped. With
    several sources or tars, the name of each is the folder of its images.

    The label of an image is its parent folder, or the one above if all parent folders have one name (Tiny
    ImageNet: class/images/image). In tars, the content of a file with the image's name and the suffix .cls is
    its class (WebDataset). One class alone counts as none.

    Args:
        source: FOLDER, TAR, LIST, an image or a pattern of images (`*/*.jpg`), or a pattern of tars:
            `train/*.tar`, `shard-{000..127}.tar`, also of URLs (s3://…, https://…). An index of tars is
            cached. `textures:` and `textures:test` are generated, see `dino_model.data.textures`.
        exclude: Text file with the names of images to leave out, one a line, as in `Images.names`. The end of
            a name is enough if no other name ends with it: a list made for one source serves for several.
        arrays: Count .npy files as images, too.

    Raises:
        ImageError: Nothing found, no images, or a compressed or damaged tar. A listed or excluded name does
            not exist, or several images have an excluded one.
    """
    sources = [source] if isinstance(source, str | Path) else source
    suffixes = frozenset(SUFFIXES | {ARRAY_SUFFIX} if arrays else SUFFIXES)
    single = {str(each): _image_files(str(each), suffixes) for each in sources}
    stores = [store for each, group in single.items() if not group for store in _find_stores(each)]
    paths = [path.absolute() for group in single.values() for path in group]
    if paths:
        root = Path(os.path.commonpath([path.parent for path in paths]))
        stores.append(Store(root, files=tuple(path.relative_to(root).as_posix() for path in paths)))
    images = _open(list(dict.fromkeys(stores)), suffixes)
    if exclude is None:
        return images
    unwanted = _complete_names(images.names, Path(exclude))
    numbers = [i for i, name in enumerate(images.names) if name not in unwanted]
    if not numbers:
        raise ImageError(f"{exclude} leaves no image: it names all {len(images)}")
    return images.subset(numbers)


def _complete_names(names: Sequence[str], path: Path) -> set[str]:
    """Return the names that a text file lists, completed where a line is the end of a single name."""
    complete = set(_lines(path))
    ends: dict[str, list[str]] = {line: [] for line in complete.difference(names)}
    for name in names if ends else ():
        for end in accumulate(reversed(name.split("/")[1:]), "{1}/{0}".format):
            if end in ends:
                ends[end].append(name)
    if unknown := sorted(end for end, complete_names in ends.items() if not complete_names):
        raise ImageError(
            f"{path} names {len(unknown)} images that do not exist, the first is {unknown[0]};"
            f" names look like {names[0]}"
        )
    for end, (first, *others) in ends.items():
        if others:
            raise ImageError(f"{path} names {end}, which can be {first} or {others[0]}: write the whole name")
    return complete.difference(ends).union(first for first, *_ in ends.values())


def expand_braces(pattern: str) -> list[str]:
    """Expand ranges of numbers as a shell does: {000..127} keeps leading zeros."""
    if not (match := re.search(r"\{(\d+)\.\.(\d+)\}", pattern)):
        return [pattern]
    first, last = match.groups()
    before, after = pattern[: match.start()], expand_braces(pattern[match.end() :])
    numbers = range(int(first), int(last) + 1)
    return [f"{before}{number:0{len(first)}}{rest}" for number in numbers for rest in after]


def titles(paths: Sequence[Path | str]) -> list[str]:
    """Return a folder name for each source: its name, with folders above where names are equal."""
    texts = [str(path).partition("://")[2] or str(path) for path in paths]
    names = [PurePosixPath(text.removesuffix(".tar").removesuffix(".txt")) for text in texts]
    folders: list[str] = []
    for depth in range(1, max(len(name.parts) for name in names) + 1):
        folders = ["/".join(name.parts[-depth:]).lstrip("/") for name in names]
        if len(set(folders)) == len(set(names)):
            break
    return folders


def _image_files(source: str, suffixes: frozenset[str]) -> list[Path]:
    """The image file that a source names, or those that a pattern matches; empty for any other source."""
    path = Path(source)
    if remote.is_remote(source) or path.is_dir() or path.suffix.lower() not in suffixes:
        return []
    return [path] if path.is_file() else sorted(map(Path, glob.glob(source)))  # noqa: PTH207


def _find_stores(source: str) -> list[Store]:
    """The tars of a tar, pattern or list, or else a folder or list. Raises ImageError if a tar is missing."""
    path, is_remote = Path(source), remote.is_remote(source)
    tars: list[Path | str] = []
    try:
        if source.startswith("textures:"):
            tars = [textures_tar(source)]
        elif not is_remote and path.is_file():
            if _is_tar(path):
                tars = [path]
            elif all(line.endswith(".tar") for line in _lines(path)):
                tars = [line if remote.is_remote(line) else path.parent / line for line in _lines(path)]
        elif is_remote or (re.search(r"[*?\[{]", source) and not path.is_dir()):
            for name in expand_braces(source):
                if remote.is_remote(name):
                    tars += remote.glob(name) if "*" in name else [name]
                else:
                    tars += map(Path, sorted(glob.glob(name)) if glob.has_magic(name) else [name])  # noqa: PTH207
        store = Store(path) if path.is_dir() else Store(path.parent, file_list=path)
        return [Store(tar, _stamp(tar)) for tar in tars] or [store]
    except OSError as error:
        reason = f"{error.filename} cannot be opened: {error.strerror}" if error.filename else str(error)
        raise ImageError(reason) from error


def _is_tar(path: Path) -> bool:
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


def _stamp(tar: Path | str) -> Stamp:
    if isinstance(tar, str):
        return remote.stamp(tar)
    status = tar.stat()
    return status.st_size, status.st_mtime_ns


def _read_part(tar: Path | str, offset: int, size: int, stamp: Stamp) -> bytes:
    """Read a part of a tar that had this stamp when it was indexed; less of it if the tar is cut."""
    if isinstance(tar, str):
        return remote.read(tar, offset, size, stamp)
    with tar.open("rb") as file:
        file.seek(offset)
        data = file.read(size)
    if len(data) == size and _stamp(tar) != stamp:
        raise OSError(f"{tar} was changed while it was in use: restore it, or start again")
    return data


def _open(stores: Sequence[Store], suffixes: frozenset[str]) -> Images:
    """Open the images of stores, those of tars alone through their cached index."""
    root = Path(stores[0].path)
    if len(stores) > 1:
        folders = [Path(store.path).parent if store.stamp else Path(store.path) for store in stores]
        root = Path(os.path.commonpath([folder.absolute() for folder in folders]))
        names = titles([store.file_list or store.path for store in stores])
        stores = [store._replace(prefix=f"{name}/") for store, name in zip(stores, names, strict=True)]
    if all(store.stamp for store in stores):
        resolved = [(s.path if isinstance(s.path, str) else s.path.resolve(), *s[1:]) for s in stores]
        key = hashlib.sha256(repr((VERSION, resolved, sorted(suffixes))).encode()).hexdigest()[:32]
        table, facts = _cached_index(cache_folder() / "tars" / f"{key}.npy", stores, suffixes)
    else:
        table, facts = _index(stores, suffixes)
    return Images(
        Column(table, "name"),
        Column(table, "label") if facts["classes"] else None,
        tuple(facts["classes"]),
        root,
        Column(table, "extent") if len(stores) > 1 or stores[0].stamp else None,
        tuple(stores),
        facts["ignored"],
    )


def _cached_index(
    path: Path, stores: Sequence[Store], suffixes: frozenset[str]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Map an index and read the facts stored with it; make both if there is none."""
    if not path.is_file():
        table, facts = _index(stores, suffixes)
        try:
            files.write_json(path.with_suffix(".json"), facts)
            with files.replacing(path) as temporary:
                np.save(temporary, table)
        except OSError:  # without a cache, the index is made each time
            return table, facts
    return np.load(path, mmap_mode="r"), json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


def _index(stores: Sequence[Store], suffixes: frozenset[str]) -> tuple[np.ndarray, dict[str, Any]]:
    """Make the table of the images, sorted by name."""
    extents: dict[str, tuple[int, int, int]] = {}
    class_files: dict[str, str] = {}
    ignored = 0
    for number, store in enumerate(stores):
        members, contents = _members(store)
        tops = {name.partition("/")[0] for name in members} if store.stamp and len(stores) == 1 else set()
        top = f"{tops.pop()}/" if len(tops) == 1 else ""
        places = {
            store.prefix + name.removeprefix(top): (name, place)
            for name, place in members.items()
            if _is_image(name, suffixes)
        }
        extents |= {full: (number, *place) for full, (_, place) in places.items()}
        if contents:
            class_files |= {full: contents.get(_stem(name), ".") for full, (name, _) in places.items()}
        ignored += len(members) - len(places)
        if not places and (store.stamp is None or (number == len(stores) - 1 and not extents)):
            raise ImageError(
                f"no images in {store.path}: found {ignored} files, none of them "
                ".jpg, .png, .webp, .bmp, .tif, .gif or .ppm"
            )
    names = sorted(extents)
    labels, classes = _labels([f"{class_files[name]}/_" if name in class_files else name for name in names])
    encoded = [os.fsencode(name) for name in names]
    fields = [("name", f"S{max(map(len, encoded))}"), ("label", "<i4"), ("extent", "<i8", (3,))]
    table = np.empty(len(names), fields)
    table["name"], table["label"] = encoded, labels
    table["extent"] = [extents[name] for name in names]
    return table, {"classes": classes, "ignored": ignored}


def _members(store: Store) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
    """Offset and size of every file, and the contents of a tar's .cls files by name without suffix."""
    if store.stamp is None:
        names = store.files or (_read_list(store.file_list) if store.file_list else _walk(Path(store.path)))
        return dict.fromkeys(names, (0, 0)), {}
    try:
        with remote.opened(store.path) if isinstance(store.path, str) else store.path.open("rb") as file:
            members, contents = _tar_members(file)
            if not members or not all(name.endswith(".tar") for name in members):
                return members, contents
            return {  # a tar of tars, as ImageNet's training images come: each is a folder of its name
                f"{_stem(name)}/{posixpath.basename(image)}": place
                for name, (offset, _) in members.items()
                for image, place in _tar_members(file, offset)[0].items()
            }, {}
    except (tarfile.TarError, OSError) as error:
        raise ImageError(f"{store.path} is no whole, uncompressed tar: {error}") from error


def _tar_members(file: BinaryIO, start: int = 0) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
    members, contents = {}, {}
    file.seek(start)
    with tarfile.open(fileobj=file, mode="r:") as tar:
        for member in filter(tarfile.TarInfo.isreg, tar):
            name = posixpath.normpath(member.name)
            members[name] = member.offset_data, member.size
            if name.endswith(".cls") and member.size < 100:
                file.seek(member.offset_data)
                contents[_stem(name)] = file.read(member.size).decode("utf-8", "replace").strip()
    return members, contents


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
    names = _lines(path)
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing:
        raise ImageError(
            f"{path} lists {len(names)} files, and {len(missing)} of them do not exist,"
            f" the first is {missing[0]}; paths in a list are relative to the list's folder"
        )
    return names


def _lines(path: Path) -> list[str]:
    try:
        lines = read_file(path, str(path)).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ImageError(f"{path} is no folder, no tar and no text with one name a line") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _stem(name: str) -> str:
    return posixpath.splitext(name)[0]


def _is_image(name: str, suffixes: frozenset[str]) -> bool:
    hidden = any(part.startswith(".") and part != ".." for part in name.split("/"))
    return posixpath.splitext(name)[1].lower() in suffixes and not hidden


def _labels(names: Sequence[str]) -> tuple[NDArray[np.int64] | int, tuple[str, ...]]:
    """Number of every name's parent folder, and the folders; -1 and none if there is one only."""
    paths = [posixpath.dirname(name) for name in names]
    while all(paths) and len({posixpath.basename(path) for path in paths}) == 1 < len(set(paths)):
        paths = [posixpath.dirname(path) for path in paths]
    classes, labels = np.unique([posixpath.basename(path) or "." for path in paths], return_inverse=True)
    return (-1, ()) if len(classes) == 1 else (labels, tuple(classes.tolist()))
