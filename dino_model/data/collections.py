"""Open folders, tars, lists, patterns and remote shards as one indexed sequence of images."""

import hashlib
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path

import numpy as np

from dino_model.data.channels import ARRAY_SUFFIX, MEASURED_IMAGES, ChannelRange, read_channels
from dino_model.data.classes import (
    BACKGROUND,
    Labeling,
    LabelOptions,
    Split,
    describe_classes,
    number_classes,
)
from dino_model.data.columns import Column, take
from dino_model.data.folders import divide
from dino_model.data.images import MAX_PIXELS, SUFFIXES, ImageError, read, read_file
from dino_model.data.index import open_index
from dino_model.data.names import NameIndex
from dino_model.data.shards import read_part
from dino_model.data.sources import Store, find_parts
from dino_model.data.tables import join_rows, read_paths, read_table
from dino_model.runtime.errors import pluralize, sentence
from dino_model.runtime.files import printable


class ShardError(ImageError):
    """A tar that is missing, cut or changed since it was indexed."""


@dataclass(frozen=True, eq=False)
class Images:
    """A sequence of images, made by `open_images`. It holds no open file.

    Attributes:
        names: Paths relative to the folder, with "/": sorted, those of a list in its order.
        labels: Indices into `classes`, -1 for an image without one; None without classes, or with several for
            an image.
        classes: Names of the classes.
        root: Folder that names are relative to, or the tar.
        extents: Store, offset and size in bytes of every image; None: all are files below `root`.
        stores: Folders and tars that `extents` refers to.
        ignored: Number of files that are not images.
        channel_range: Of images of other channels than RGB.
        label_sets: Indices of the classes of every image, if an image has several; else None.
        no_classes: Reason why there are no classes, with the option that helps; empty if there are.
        reading: How the classes were read, in one line with an example.
        notes: Folders, lines and images that were left out.
        splits: Split of each image; None: the images are not divided.
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
    reading: str = ""
    notes: tuple[str, ...] = ()
    splits: Sequence[Split] | None = None
    max_pixels: int = MAX_PIXELS

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        in_classes = f" in {describe_classes(self.classes)}" if self.classes else ""
        found = f"{pluralize(len(self), 'image')} of {printable(self.root.absolute().name)}{in_classes}"
        return "; ".join([found, *filter(None, [self.reading]), *self.remarks()])

    def remarks(self) -> list[str]:
        """Return what is not among the images: the number of other files, and `notes`."""
        return [f"{pluralize(self.ignored, 'other file')} ignored"] * bool(self.ignored) + [*self.notes]

    def read(self, index: int, at_least: int = 0) -> np.ndarray:
        """Read an image: uint8 RGB [height, width, 3], or as `channel_range` says, [height, width, channels].

        `at_least` is that of `images.read`; 0 gives the exact pixels of the file.

        Raises:
            ImageError: As `images.read` or `read_channels`.
        """
        data, name = self.read_bytes(index), printable(self.names[index])
        if self.channel_range:
            return self.channel_range.read(data, name, self.max_pixels)
        return read(data, name=name, max_pixels=self.max_pixels, at_least=at_least)

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
        return self._hash(f"\0{state}" for _, state in self._states())

    def sizes(self) -> list[int]:
        """Return the size of each file in bytes; -1 for a dangling link."""
        return [size for size, _ in self._states()]

    def inventory(self, sizes: Sequence[int] | None = None) -> str:
        """Hash names and `sizes`: equal for copies of the same images, in a folder or a tar."""
        return self._hash(f"\0{size}" for size in (self.sizes() if sizes is None else sizes))

    def name_hash(self) -> str:
        """Hash the names; no file is touched."""
        return self._hash(repeat("", len(self)))

    def _hash(self, endings: Iterable[str]) -> str:
        digest = hashlib.sha256(repr(self.channel_range).encode() if self.channel_range else b"")
        for name, ending in zip(self.names, endings, strict=True):
            digest.update(os.fsencode(f"{name}{ending}\n"))
        return digest.hexdigest()[:32]

    def _states(self) -> Iterator[tuple[int, str]]:
        """Size of each image, and what changes with its file; -1 for a dangling link."""
        for index in range(len(self)):
            store, path, offset, size = self._place(index)
            if store.stamp:
                yield size, f"{offset}\0{size}\0{store.stamp[1]}"
            else:
                status = _status(Path(path))
                size, time = (status.st_size, status.st_mtime_ns) if status else (-1, 0)
                yield size, f"{size}\0{time}"

    def subset(self, indices: Iterable[int]) -> "Images":
        """Return these images, in this order. `classes` stay, so that labels keep their meaning."""
        chosen = np.fromiter(indices, np.int64)
        return replace(
            self,
            names=take(self.names, chosen),
            labels=None if self.labels is None else take(self.labels, chosen),
            extents=None if self.extents is None else take(self.extents, chosen),
            label_sets=None if self.label_sets is None else take(self.label_sets, chosen),
            splits=None if self.splits is None else take(self.splits, chosen),
        )

    def with_labels(self, found: Labeling, *notes: str) -> "Images":
        """Return these images with other classes and splits."""
        return replace(
            self,
            labels=None if found.labels is None else tuple(found.labels.tolist()),
            classes=found.classes,
            label_sets=found.sets,
            no_classes=found.reason,
            reading=found.reading,
            splits=found.splits,
            notes=(*self.notes, *notes),
        )

    def require_classes(self) -> "Images":
        """Return the images that have a class, without `BACKGROUND`; notes count the others.

        Raises:
            ImageError: No classes. The message has the reason and the option that helps.
        """
        if not self.classes:
            raise ImageError(f"no classes in {printable(str(self.root))}: {self.no_classes}")
        if self.labels is None:
            return self
        classes = [name for name in self.classes if posixpath.basename(name) != BACKGROUND]
        number = {name: index for index, name in enumerate(classes)}
        found = [number.get(self.classes[label], -2) if label >= 0 else -1 for label in self.labels]
        notes = []
        if background := found.count(-2):
            notes.append(f"{pluralize(background, 'image')} of {BACKGROUND}, which is no class, left out")
        if missing := found.count(-1):
            first = printable(self.names[found.index(-1)])
            outside = "a class or split" if self.splits is not None else "a class"
            notes.append(f"{pluralize(missing, 'image')} without {outside} left out, the first is {first}")
        if not notes:
            return self
        rest = self.subset(index for index, label in enumerate(found) if label >= 0)
        labels = tuple(label for label in found if label >= 0)
        return replace(rest, labels=labels, classes=tuple(classes), notes=(*self.notes, *notes))

    def label_names(self, index: int) -> tuple[str, ...]:
        """Return the classes of an image."""
        if self.label_sets is not None:
            return tuple(self.classes[label] for label in self.label_sets[index])
        return () if self.labels is None or self.labels[index] < 0 else (self.classes[self.labels[index]],)

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
    options: LabelOptions | None = None,
) -> Images:
    """Open the images of a folder, uncompressed tars, a list, or several of these. Nothing is decoded.

    A folder is searched through all its levels, except hidden and system folders and links that lead back up.
    Files with the suffix of no image are counted as ignored. In a single tar, one top folder that holds
    everything is left out of the names. A list is a text or table of paths: all are images, or all are tars.
    With several sources or tars, the name of each is the folder of its images. Classes that are not clear are
    an error of `Images.require_classes` only.

    Args:
        source: FOLDER, TAR, LIST, an image or a pattern of images (`*/*.jpg`), or a pattern of tars:
            `train/*.tar`, `shard-{000..127}.tar`, also of URLs (s3://…, https://…). An index of tars is
            cached. `textures:` and `textures:test` are generated, see `dino_model.data.textures`.
        exclude: Text file with the names of images to leave out, one a line, as in `Images.names`. The end of
            a name is enough if no other name ends with it: a list made for one source serves for several.
        arrays: Count .npy files as images, too.
        options: Where classes and splits are; with `labels`, images that are not in that table are left out.

    Raises:
        ImageError: Nothing found, no images, or a compressed or damaged tar. A listed or excluded name does
            not exist, or several images have an excluded one. A table without classes of these images.
    """
    sources = [source] if isinstance(source, str | Path) else source
    options = (options or LabelOptions()).label_options()
    suffixes = frozenset(SUFFIXES | {ARRAY_SUFFIX} if arrays else SUFFIXES)
    root, parts = find_parts(map(str, sources), suffixes, replace(options, labels=None))
    table, facts = open_index(parts, suffixes, replace(options, labels=None))
    images = Images(
        Column(table, "name"),
        Column(table, "label") if facts["classes"] and facts["label_sets"] is None else None,
        root=root,
        extents=Column(table, "extent") if len(parts) > 1 or parts[0].store.stamp else None,
        stores=tuple(part.store for part in parts),
        splits=Column(table, "split") if facts.pop("is_divided") else None,
        **facts,
    )
    if exclude is not None:
        unwanted = set(find_listed(images, Path(exclude)))
        numbers = [number for number in range(len(images)) if number not in unwanted]
        if not numbers:
            raise ImageError(f"{exclude} leaves no image: it names all {len(images)}")
        images = images.subset(numbers)
    return images if options.labels is None else label_by_table(images, options.labels, options)


def find_listed(images: Images, file: Path) -> list[int]:
    """Return the numbers of the images that a list names, in its order, by whole names or their ends.

    Raises:
        ImageError: A name that no image has, or that several images have.
    """
    index = NameIndex(images.names)
    return index.find_all(read_paths(file, index.find), file)


def label_by_table(images: Images, file: Path, options: LabelOptions) -> Images:
    """Label images by a table of paths and classes; images without a row are left out and counted.

    The table has the splits, too, or folders are splits as in `folders.divide`.

    Raises:
        ImageError: A table without classes or without these images, or a path of several images.
    """
    index = NameIndex(images.names)
    table = read_table(file, index.find, options)
    if table.reason:
        raise ImageError(table.reason)
    if not table.rows:
        raise ImageError(f"{file} is empty: expected a path and classes in each line")
    numbers = [index.find_one(row.path, file) for row in table.rows]
    if not (unknown := numbers.count(None)) < len(numbers):
        raise ImageError(
            f"{file} names no image of {images.root}: names look like {index.names[0]}, its first path is"
            f" {table.rows[0].path!r}"
        )
    if all(row.classes is None for row in table.rows):
        raise ImageError(f"{file} has paths and no classes: expected a column label, or pass --class-column")
    pairs = zip(numbers, table.rows, strict=True)
    by_image = join_rows(file, ((number, row) for number, row in pairs if number is not None), options)
    chosen = [number for number, row in sorted(by_image.items()) if row.classes or table.several]
    missing = len(images) - len(chosen)
    notes = [f"{pluralize(missing, 'image')} without a class in {file.name} left out"] if missing else []
    notes += [f"{pluralize(unknown, 'row')} of {file.name} without an image"] if unknown else []
    rows = [by_image[number] for number in chosen]
    found = number_classes([row.classes or () for row in rows], can_be_several=table.several)
    splits: Sequence[Split] | None = [row.split for row in rows] if table.has_splits else None
    images = images.subset(chosen)
    if splits is None:
        places, unclear = divide({posixpath.dirname(name) for name in images.names}, options)
        if unclear:
            raise ImageError(f"{images.root}: {unclear}")
        by_folder = [places[posixpath.dirname(name)].split for name in images.names]
        splits = by_folder if any(by_folder) else None
    return images.with_labels(found._replace(splits=splits, reading=table.reading), *notes)


def _status(path: Path) -> os.stat_result | None:
    """State of a file; None for a dangling link."""
    try:
        return path.stat()
    except OSError:
        return None
