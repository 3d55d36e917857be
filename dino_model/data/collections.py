"""Open folders, tars, lists, patterns and remote shards as one indexed sequence of images."""

import glob
import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np

from dino_model.data import lists, remote
from dino_model.data.channels import ARRAY_SUFFIX, MEASURED_IMAGES, ChannelRange, read_channels
from dino_model.data.columns import Column, take
from dino_model.data.images import MAX_PIXELS, SUFFIXES, ImageError, read, read_file
from dino_model.data.labels import (
    Labeling,
    Split,
    describe_classes,
    find_splits,
    label_by_folders,
    number_classes,
)
from dino_model.data.names import NameIndex, is_image, left_out_folder, walk
from dino_model.data.tars import Stamp, is_tar, read_members, read_part, stamp
from dino_model.data.textures import textures_tar
from dino_model.runtime import files
from dino_model.runtime.download import cache_folder
from dino_model.runtime.errors import counted, sentence
from dino_model.runtime.files import printable

VERSION = 6
"""Version of the cached index of tars."""
BACKGROUND = "BACKGROUND_Google"
"""Caltech-101's folder of images that belong to no class."""


class ShardError(ImageError):
    """A tar that is missing, cut or changed since it was indexed."""


class Store(NamedTuple):
    """A tar (a URL if it is remote), a folder, or some files of a folder: single ones or those of a list."""

    path: Path | str
    stamp: Stamp | None = None
    """State of a tar when it was indexed; None: a folder."""
    file_list: Path | None = None
    prefix: str = ""
    """Beginning of the images' names that is not part of their path in a folder."""


@dataclass(frozen=True, eq=False)
class Images:
    """A sequence of images, made by `open_images`. It holds no open file.

    Attributes:
        names: Paths relative to the folder, with "/": sorted, those of a list in its order.
        labels: Indices into `classes`; None without classes, or with several for an image.
        classes: Names of the classes, see `dino_model.data.labels`.
        root: Folder that names are relative to, or the tar.
        extents: Store, offset and size in bytes of every image; None: all are files below `root`.
        stores: Folders and tars that `extents` refers to.
        ignored: Number of files that are not images.
        channel_range: Of images of other channels than RGB.
        label_sets: Indices of the classes of every image, if an image has several; else None.
        no_classes: Reason why there are no classes; empty if there are.
        notes: Folders and lines that were left out.
        table_splits: Part of the data set that each image is in, as a column of a table names it.
        max_pixels: Largest image that is read.
    """

    names: Sequence[str]
    labels: Sequence[int] | None
    classes: tuple[str, ...]
    root: Path
    extents: Sequence[tuple[int, int, int]] | None = None
    stores: tuple[Store, ...] = ()
    ignored: int = 0
    channel_range: ChannelRange | None = None
    label_sets: Sequence[tuple[int, ...]] | None = None
    no_classes: str = "it has no class folders"
    notes: tuple[str, ...] = ()
    table_splits: Sequence[Split] | None = None
    max_pixels: int = MAX_PIXELS

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        in_classes = f" in {describe_classes(self.classes)}" if self.classes else ""
        found = f"{counted(len(self), 'image')} of {printable(self.root.absolute().name)}{in_classes}"
        return "; ".join([found, *self.remarks()])

    def remarks(self) -> list[str]:
        """Return what is not among the images: the number of other files, and `notes`."""
        return [f"{counted(self.ignored, 'other file')} ignored"] * bool(self.ignored) + [*self.notes]

    def read(self, index: int) -> np.ndarray:
        """Read an image: uint8 RGB [height, width, 3], or as `channel_range` says, [height, width, channels].

        Raises:
            ImageError: As `images.read` or `read_channels`.
        """
        data, name = self.read_bytes(index), printable(self.names[index])
        if self.channel_range:
            return self.channel_range.read(data, name, self.max_pixels)
        return read(data, name=name, max_pixels=self.max_pixels)

    def raw_channels(self, channels: int) -> Iterator[np.ndarray]:
        """Read up to `MEASURED_IMAGES` as they are stored, see `read_channels`; damaged ones are skipped."""
        for index in range(0, len(self), max(1, len(self) // MEASURED_IMAGES)):
            with suppress(ImageError):
                yield read_channels(self.read_bytes(index), channels, self.names[index], self.max_pixels)

    def read_bytes(self, index: int) -> bytes:
        """Read the file of an image, not decoded.

        Raises:
            ImageError: It cannot be read; names the image.
            ShardError: The tar is missing, cut or changed; names the tar.
        """
        name, (store, path, offset, size) = printable(self.names[index]), self._place(index)
        if store.stamp is None:
            return read_file(Path(path), name)
        if not offset:
            raise ImageError(f"{name} is a link to a file that {Path(path).name} does not hold")
        try:
            data = read_part(path, offset, size, store.stamp)
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
            status = None if isinstance(path, str) else _status(path)
            file = (status.st_dev, status.st_ino) if status else (str(path),)
            places.append((*file, *extent))
        return places

    def fingerprint(self) -> str:
        """Hash names, sizes and times of change."""
        return self._hash("times")

    def inventory(self) -> str:
        """Hash names and sizes: equal for copies of the same images, in a folder or a tar."""
        return self._hash("sizes")

    def name_hash(self) -> str:
        """Hash the names; no file is touched."""
        return self._hash("names")

    def _hash(self, what: Literal["names", "sizes", "times"]) -> str:
        digest = hashlib.sha256(repr(self.channel_range).encode() if self.channel_range else b"")
        for index, name in enumerate(self.names):
            if what == "names":
                digest.update(os.fsencode(f"{name}\n"))
                continue
            store, path, offset, size = self._place(index)
            if store.stamp is None:
                status = _status(Path(path))
                size, time = (status.st_size, status.st_mtime_ns) if status else (-1, 0)
                state = f"{size}\0{time}"
            else:
                state = f"{offset}\0{size}\0{store.stamp[1]}"
            identity = state if what == "times" else size
            digest.update(os.fsencode(f"{name}\0{identity}\n"))
        return digest.hexdigest()[:32]

    def subset(self, indices: Iterable[int]) -> "Images":
        """Return these images, in this order. `classes` stay, so that labels keep their meaning."""
        chosen = np.fromiter(indices, np.int64)
        return replace(
            self,
            names=take(self.names, chosen),
            labels=None if self.labels is None else take(self.labels, chosen),
            extents=None if self.extents is None else take(self.extents, chosen),
            label_sets=None if self.label_sets is None else take(self.label_sets, chosen),
            table_splits=None if self.table_splits is None else take(self.table_splits, chosen),
        )

    def splits(self) -> Sequence[Split]:
        """Return the part of the data set that each image is in, by its table, else by its folders."""
        return find_splits(self.names) if self.table_splits is None else self.table_splits

    def labeled(self, found: Labeling, *notes: str) -> "Images":
        """Return these images with other classes."""
        return replace(
            self,
            labels=None if found.labels is None else tuple(found.labels.tolist()),
            classes=found.classes,
            label_sets=found.sets,
            no_classes=found.reason,
            notes=(*self.notes, *notes),
        )

    def without_background(self) -> "Images":
        """Leave out the images and the class of `BACKGROUND`, with a note."""
        classes = [name for name in self.classes if posixpath.basename(name) != BACKGROUND]
        if len(classes) == len(self.classes) or self.labels is None:
            return self
        number = {name: index for index, name in enumerate(classes)}
        labels = [number.get(self.classes[label]) for label in self.labels]
        rest = self.subset(index for index, label in enumerate(labels) if label is not None)
        note = f"{counted(len(self) - len(rest), 'image')} of {BACKGROUND}, which is no class, left out"
        return replace(
            rest,
            labels=tuple(label for label in labels if label is not None),
            classes=tuple(classes),
            notes=(*self.notes, note),
        )

    def label_names(self, index: int) -> tuple[str, ...]:
        """Return the classes of an image."""
        if self.label_sets is not None:
            return tuple(self.classes[label] for label in self.label_sets[index])
        return () if self.labels is None else (self.classes[self.labels[index]],)

    def _place(self, index: int) -> tuple[Store, Path | str, int, int]:
        """Store, file or tar, and offset and size in a tar."""
        number, offset, size = (0, 0, 0) if self.extents is None else self.extents[index]
        store = self.stores[number] if self.stores else Store(self.root)
        if store.stamp is None:
            return store, Path(store.path) / self.names[index].removeprefix(store.prefix), 0, 0
        return store, store.path, offset, size


def open_images(
    source: str | Path | Sequence[str | Path],
    *,
    exclude: str | Path | None = None,
    arrays: bool = False,
    labels: Path | None = None,
) -> Images:
    """Open the images of a folder, uncompressed tars, a list, or several of these. Nothing is decoded.

    A folder is searched through all its levels, except hidden and system folders and links that lead back up.
    Files with the suffix of no image are counted as ignored. In a single tar, one top folder that holds
    everything is left out of the names. A list is a text or table of paths, see `dino_model.data.lists`. All
    its paths are images, or all are tars. With several sources or tars, the name of each is the folder of its
    images. Classes come from folders, lists, or the .cls and .json files of WebDataset.

    Args:
        source: FOLDER, TAR, LIST, an image or a pattern of images (`*/*.jpg`), or a pattern of tars:
            `train/*.tar`, `shard-{000..127}.tar`, also of URLs (s3://…, https://…). An index of tars is
            cached. `textures:` and `textures:test` are generated, see `dino_model.data.textures`.
        exclude: Text file with the names of images to leave out, one a line, as in `Images.names`. The end of
            a name is enough if no other name ends with it: a list made for one source serves for several.
        arrays: Count .npy files as images, too.
        labels: Table of paths and classes, which replaces all other classes. Images that are not in it are
            left out.

    Raises:
        ImageError: Nothing found, no images, or a compressed or damaged tar. A listed or excluded name does
            not exist, or several images have an excluded one. A table without classes of these images.
    """
    sources = [source] if isinstance(source, str | Path) else source
    suffixes = frozenset(SUFFIXES | {ARRAY_SUFFIX} if arrays else SUFFIXES)
    single = {str(each): _image_files(str(each), suffixes) for each in sources}
    parts = [part for each, group in single.items() if not group for part in _find_parts(each, suffixes)]
    paths = [path.absolute() for group in single.values() for path in group]
    if paths:
        root = Path(os.path.commonpath([path.parent for path in paths]))
        parts.append(Part(Store(root), sorted({path.relative_to(root).as_posix() for path in paths})))
    images = _open(list({part.store: part for part in parts}.values()), suffixes)
    if exclude is not None:
        unwanted = set(find_listed(images, Path(exclude)))
        numbers = [number for number in range(len(images)) if number not in unwanted]
        if not numbers:
            raise ImageError(f"{exclude} leaves no image: it names all {len(images)}")
        images = images.subset(numbers)
    return images if labels is None else label_by_table(images, labels)


def find_listed(images: Images, file: Path) -> list[int]:
    """Return the numbers of the images that a list names, in its order, by whole names or their ends.

    Raises:
        ImageError: A name that no image has, or that several images have.
    """
    index = NameIndex(images.names)
    return index.find_all([row.path for row in lists.read_rows(file, index.find)], file)


def label_by_table(images: Images, table: Path) -> Images:
    """Label images by a table of paths and classes; images without a row are left out and counted.

    Raises:
        ImageError: A table without classes or without these images, or a path of several images.
    """
    index = NameIndex(images.names)
    rows = lists.read_rows(table, index.find)
    known = [(row, index.find(row.path)) for row in rows]
    names = f"names look like {index.names[0]}"
    if not any(numbers for _, numbers in known):
        raise ImageError(
            f"{table} names no image of {images.root}: {names}, its first path is {rows[0].path!r}"
            if rows
            else f"{table} is empty: expected a path and classes in each line"
        )
    if all(row.classes is None for row in rows):
        raise ImageError(f"{table} has paths and no classes: expected a column 'label' behind them")
    classes: dict[int, dict[str, None]] = {}
    for row, numbers in known:
        if len(numbers) > 1:
            first, second = (index.names[number] for number in numbers[:2])
            raise ImageError(
                f"{table} names {row.path}, which can be {first} or {second}: write the whole name"
            )
        if numbers:
            classes.setdefault(numbers[0], {}).update(dict.fromkeys(row.classes or ()))
    is_multi = any(len(given) > 1 for given in classes.values())
    chosen = [number for number, given in sorted(classes.items()) if given or is_multi]
    splits = lists.collect_splits(table, ((numbers[0], row) for row, numbers in known if numbers))
    missing, unknown = len(images) - len(chosen), sum(not numbers for _, numbers in known)
    notes = [f"{counted(missing, 'image')} without a class in {table.name} left out"] if missing else []
    notes += [f"{counted(unknown, 'row')} of {table.name} without an image"] if unknown else []
    found = number_classes([tuple(classes[number]) for number in chosen])
    labeled = images.subset(chosen).labeled(found, *notes)
    if not any(splits.values()):
        return labeled
    return replace(labeled, table_splits=tuple(splits[number] for number in chosen))


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


class Part(NamedTuple):
    """A store, and the names in it that were found or named."""

    store: Store
    names: Sequence[str] = ()
    """Names of single files or of a list; empty: all files of the store."""
    classes: Sequence[tuple[str, ...]] | None = None
    """Classes of these names in a list."""
    notes: tuple[str, ...] = ()
    splits: Sequence[Split] = ()
    """Parts of the data set that a table names."""


def _find_parts(source: str, suffixes: frozenset[str]) -> list[Part]:
    """The tars of a tar, pattern or list, or else a folder or list. Raises ImageError if a tar is missing."""
    path, is_remote = Path(source), remote.is_remote(source)
    tars: list[Path | str] = []
    try:
        if source.startswith("textures:"):
            tars = [textures_tar(source)]
        elif not is_remote and path.is_file():
            if is_tar(path):
                tars = [path]
            elif listed_tars := lists.read_tars(path):
                tars = listed_tars
            else:
                listed = lists.read_list(path, suffixes)
                return [Part(Store(listed.folder, file_list=path), *listed[1:])]
        elif is_remote or (re.search(r"[*?\[{]", source) and not path.is_dir()):
            for name in expand_braces(source):
                if remote.is_remote(name):
                    tars += remote.glob(name) if "*" in name else [name]
                else:
                    tars += map(Path, sorted(glob.glob(name)) if glob.has_magic(name) else [name])  # noqa: PTH207
        if not tars and not path.is_dir():
            path.stat()  # raises the reason
        return [Part(Store(tar, stamp(tar))) for tar in tars] or [Part(Store(path))]
    except OSError as error:
        reason = f"{error.filename} cannot be opened: {error.strerror}" if error.filename else str(error)
        raise ImageError(printable(reason)) from error


def _status(path: Path) -> os.stat_result | None:
    """State of a file; None for a dangling link."""
    try:
        return path.stat()
    except OSError:
        return None


def _open(parts: Sequence[Part], suffixes: frozenset[str]) -> Images:
    """Open the images of stores, those of tars alone through their cached index."""
    stores = [part.store for part in parts]
    root = Path(stores[0].path)
    if len(stores) > 1:
        folders = [Path(store.path).parent if store.stamp else Path(store.path) for store in stores]
        root = Path(os.path.commonpath([folder.absolute() for folder in folders]))
        names = titles([store.file_list or store.path for store in stores])
        stores = [store._replace(prefix=f"{name}/") for store, name in zip(stores, names, strict=True)]
        parts = [part._replace(store=store) for part, store in zip(parts, stores, strict=True)]
    if all(store.stamp for store in stores):
        resolved = [(s.path if isinstance(s.path, str) else s.path.resolve(), *s[1:]) for s in stores]
        key = hashlib.sha256(repr((VERSION, resolved, sorted(suffixes))).encode()).hexdigest()[:32]
        table, facts = _cached_index(cache_folder() / "tars" / f"{key}.npy", parts, suffixes)
    else:
        table, facts = _index(parts, suffixes)
    return Images(
        Column(table, "name"),
        Column(table, "label") if facts["classes"] and facts["sets"] is None else None,
        tuple(facts["classes"]),
        root,
        Column(table, "extent") if len(stores) > 1 or stores[0].stamp else None,
        tuple(stores),
        facts["ignored"],
        label_sets=None if facts["sets"] is None else tuple(map(tuple, facts["sets"])),
        no_classes=facts["reason"],
        notes=tuple(facts["notes"]),
        table_splits=facts["splits"],
    )


def _cached_index(
    path: Path, parts: Sequence[Part], suffixes: frozenset[str]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Map an index and read the facts stored with it; make both if there is none."""
    if not path.is_file():
        table, facts = _index(parts, suffixes)
        try:
            files.write_json(path.with_suffix(".json"), facts)
            with files.replacing(path) as temporary:
                np.save(temporary, table)
        except OSError:  # without a cache, the index is made each time
            return table, facts
    return np.load(path, mmap_mode="r"), json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


class Entry(NamedTuple):
    """An image of the index."""

    name: str
    source: str
    """Prefix of the store."""
    extent: tuple[int, int, int]
    classes: tuple[str, ...] | None
    """Classes of a list or of WebDataset; None: the folders tell."""
    split: Split = ""
    """Part of the data set that a table names."""


def _index(parts: Sequence[Part], suffixes: frozenset[str]) -> tuple[np.ndarray, dict[str, Any]]:
    """Make the table of the images: sorted by name, or by source and then in the order of a list."""
    groups: list[list[Entry]] = []
    notes: list[str] = []
    ignored = 0
    for number, part in enumerate(parts):
        entries, others, more = _entries(number, part, suffixes, len(parts) == 1)
        groups.append(entries)
        ignored, notes = ignored + others, [*notes, *more]
        if not entries and (part.store.stamp is None or (number == len(parts) - 1 and not any(groups))):
            more = [*more, f"found {ignored} files, none of them .jpg, .png, .webp, .bmp, .tif, .gif or .ppm"]
            raise ImageError(f"no images in {printable(str(part.store.path))}: {'; '.join(more)}")
    if all(part.classes is None and part.store.file_list is None for part in parts):
        entries = sorted(({entry.name: entry for group in groups for entry in group}).values())
    else:
        order = sorted(range(len(parts)), key=lambda number: parts[number].store.prefix)
        entries = [entry for number in order for entry in groups[number]]
    found = _labeling(entries)
    encoded = [os.fsencode(entry.name) for entry in entries]
    fields = [("name", f"S{max(map(len, encoded))}"), ("label", "<i4"), ("extent", "<i8", (3,))]
    table = np.empty(len(entries), fields)
    table["name"], table["label"] = encoded, -1 if found.labels is None else found.labels
    table["extent"] = [entry.extent for entry in entries]
    splits = [entry.split for entry in entries] if any(entry.split for entry in entries) else None
    facts = {"classes": found.classes, "sets": found.sets, "reason": found.reason, "splits": splits}
    return table, facts | {"ignored": ignored, "notes": notes}


def _labeling(entries: Sequence[Entry]) -> Labeling:
    """Classes of lists and WebDataset if an image has one, else those of the folders."""
    if any(entry.classes for entry in entries):
        return number_classes([entry.classes or () for entry in entries])
    names = [entry.name.removeprefix(entry.source) for entry in entries]
    return label_by_folders(names, [entry.source.rstrip("/") for entry in entries])


def _entries(
    number: int, part: Part, suffixes: frozenset[str], is_single: bool
) -> tuple[list[Entry], int, list[str]]:
    """Return the images of a part, the number of its other files, and what was left out."""
    store, prefix = part.store, part.store.prefix
    if part.names:
        no_classes: Sequence[tuple[str, ...]] = [()] * len(part.names)
        no_splits: Sequence[Split] = [""] * len(part.names)
        rows = zip(part.names, part.classes or no_classes, part.splits or no_splits, strict=True)
        entries = [
            Entry(prefix + name, prefix, (number, 0, 0), given or None, split) for name, given, split in rows
        ]
        return entries, 0, [*part.notes]
    if store.stamp is None:
        found = walk(Path(store.path))
        names = sorted(name for name in found.names if is_image(name, suffixes))
        entries = [Entry(prefix + name, prefix, (number, 0, 0), None) for name in names]
        notes = _name_first("folder", "left out", found.left_out)
        notes += _name_first("folder", "cannot be read", found.unreadable)
        return entries, len(found.names) - len(names), [*part.notes, *notes]
    members = read_members(store.path)
    tops = {name.partition("/")[0] for name in members.places} if is_single else set()
    top = f"{tops.pop()}/" if len(tops) == 1 else ""
    entries = [
        Entry(prefix + name.removeprefix(top), prefix, (number, *place), members.classes_of(name) or None)
        for name, place in members.places.items()
        if is_image(name.removeprefix(top), suffixes)
    ]
    left_out = sorted({left_out_folder(name.removeprefix(top)) for name in members.places} - {""})
    return entries, len(members.places) - len(entries), _name_first("folder", "left out", left_out)


def _name_first(noun: str, what: str, names: Sequence[str]) -> list[str]:
    """Count and name what was left out: `3 folders left out: @eaDir, a/.cache, …`."""
    if not names:
        return []
    first = ", ".join(printable(name) for name in names[:3]) + (", …" if len(names) > 3 else "")
    return [f"{counted(len(names), noun)} {what}: {first}"]
