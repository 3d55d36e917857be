"""Open folders, tars, lists, patterns and remote shards as one indexed sequence of images."""

import glob
import hashlib
import json
import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import repeat
from operator import eq
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from dino_model.data import remote
from dino_model.data.channels import ARRAY_SUFFIX, MEASURED_IMAGES, ChannelRange, read_channels
from dino_model.data.classes import (
    BACKGROUND,
    LabelOptions,
    Row,
    Rows,
    Split,
    compose,
    describe_classes,
    describe_row,
    sort_classes,
)
from dino_model.data.folders import divide_by_folders, label_by_folders, read_folder
from dino_model.data.images import MAX_PIXELS, SUFFIXES, ImageError, read, read_file, suffix_of
from dino_model.data.shards import Stamp, is_tar, read_part, read_tar, stamp
from dino_model.data.tables import PATHS_ONLY, NameIndex, read_list, read_table
from dino_model.data.textures import TEXTURES, textures_tar
from dino_model.runtime import files
from dino_model.runtime.download import cache_folder
from dino_model.runtime.errors import count_names, pluralize, sentence
from dino_model.runtime.files import printable

VERSION = 13
"""Version of the cached index of tars."""
CACHED = ("classes", "label_sets", "no_classes", "reading", "is_divided", "notes")
"""Attributes of `Images` that are cached with it."""
ROWS_AT_ONCE = 65_536


class ShardError(ImageError):
    """A tar that is missing, cut or changed since it was indexed."""


class Store(NamedTuple):
    """A tar (a URL if it is remote) or a folder.

    Attributes:
        stamp: State of a tar when it was indexed; None: a folder.
        prefix: Beginning of the images' names that is not part of their path in a folder.
    """

    path: Path | str
    stamp: Stamp | None = None
    prefix: str = ""


class Column(Sequence[Any]):
    """A column of a table as Python values, equal to any sequence of the same values."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        values = self._values[index].tolist()
        if isinstance(index, slice):
            return tuple(map(os.fsdecode, values)) if self._values.dtype.kind == "S" else tuple(values)
        return os.fsdecode(values) if isinstance(values, bytes) else values

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), ROWS_AT_ONCE):
            yield from self[start : start + ROWS_AT_ONCE]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class Images:
    """A sequence of images, made by `open_images`. It holds no open file.

    Attributes:
        table: The images, see `make_table`. That of tars is mapped from a file, which processes share.
        root: Folder that names are relative to, or the tar.
        stores: Folders and tars that the table refers to. Default: `root`.
        classes: Names of the classes.
        label_sets: If an image has several classes: sets of indices into `classes`, which the labels of the
            table are numbers of; else None.
        no_classes: Reason why there are no classes, with the option that helps; empty if there are.
        reading: How the classes were read, in one line with an example.
        is_divided: True if the images have splits.
        notes: Folders, files, lines and images that were left out.
        channel_range: Of images of other channels than RGB.
        max_pixels: Largest image that is read.
    """

    table: np.ndarray
    root: Path
    stores: tuple[Store, ...] = ()
    classes: tuple[str, ...] = ()
    label_sets: tuple[tuple[int, ...], ...] | None = None
    no_classes: str = "it has no class folders"
    reading: str = ""
    is_divided: bool = False
    notes: tuple[str, ...] = ()
    channel_range: ChannelRange | None = None
    max_pixels: int = MAX_PIXELS

    def __getstate__(self) -> dict[str, Any]:
        table = str(self.table.filename) if isinstance(self.table, np.memmap) else self.table
        return vars(self) | {"table": table}

    def __setstate__(self, state: dict[str, Any]) -> None:
        table = state["table"]
        vars(self).update(state, table=np.load(table, mmap_mode="r") if isinstance(table, str) else table)

    def __len__(self) -> int:
        return len(self.table)

    def __str__(self) -> str:
        in_classes = f" in {describe_classes(self.classes)}" if self.classes else ""
        found = f"{pluralize(len(self), 'image')} of {printable(self.root.absolute().name)}{in_classes}"
        return "; ".join([found, *filter(None, [self.reading]), *self.notes])

    @property
    def names(self) -> Sequence[str]:
        """Paths relative to the folder, with "/": sorted, those of a list in its order."""
        return Column(self.table["name"])

    @property
    def labels(self) -> Sequence[int] | None:
        """Indices into `classes`, -1 without one; None without classes, or with several for an image."""
        return Column(self.table["label"]) if self.classes and self.label_sets is None else None

    @property
    def splits(self) -> Sequence[Split] | None:
        """Split of each image; None: the images are not divided."""
        return Column(self.table["split"]) if self.is_divided else None

    def label_names(self, index: int) -> tuple[str, ...]:
        """Return the classes of an image."""
        label = int(self.table["label"][index])
        labels = self.label_sets[label] if self.label_sets else (label,) * (label >= 0)
        return tuple(self.classes[number] for number in labels)

    def read(self, index: int, at_least: int = 0) -> np.ndarray:
        """Read an image: uint8 RGB [height, width, 3], or as `channel_range` says, [height, width, channels].

        `at_least` and errors are those of `images.read`; 0 gives the exact pixels of the file.
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
        name, (path, indexed, offset, size) = printable(self.names[index]), self._place(index)
        if indexed is None:
            return read_file(Path(path), name)
        if not offset:
            raise ImageError(f"{name} is a link to a file that {Path(path).name} does not hold")
        try:
            data = read_part(path, offset, size, indexed)
        except OSError as error:
            raise ShardError(f"{sentence(error)} (reading {name})") from error
        if len(data) < size:
            raise ShardError(f"{name} is cut short: {Path(path).name} ends within it")
        return data

    def _place(self, index: int) -> tuple[Path | str, Stamp | None, int, int]:
        """File or tar, and stamp, offset and size of a tar."""
        row = self.table[index]
        store = self.stores[row["store"]] if self.stores else Store(self.root)
        if store.stamp is None:
            return Path(store.path) / self.names[index].removeprefix(store.prefix), None, 0, 0
        return store.path, store.stamp, int(row["offset"]), int(row["size"])

    def file(self, index: int) -> Path:
        """Return the file of an image, or the tar that holds it."""
        return Path(self._place(index)[0])

    def places(self) -> list[tuple[object, ...]]:
        """Return the place of every image on the disk, or in a tar: equal for links to one file."""
        places: list[tuple[object, ...]] = []
        for path, _, *extent in map(self._place, range(len(self))):
            status = None if isinstance(path, str) else _status(path)
            places.append((status.st_dev, status.st_ino, *extent) if status else (str(path), *extent))
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
            path, indexed, offset, size = self._place(index)
            if indexed:
                yield size, f"{offset}\0{size}\0{indexed[1]}"
            else:
                status = _status(Path(path))
                size, time = (status.st_size, status.st_mtime_ns) if status else (-1, 0)
                yield size, f"{size}\0{time}"

    def subset(self, indices: Iterable[int]) -> "Images":
        """Return these images, in this order. `classes` stay, so that labels keep their meaning."""
        return replace(self, table=self.table[np.fromiter(indices, np.int64)])

    def with_labels(self, found: Rows) -> "Images":
        """Return these images with the classes, splits and notes of rows: one for each image, in order.

        An image without a class, or of `BACKGROUND`, has none of them if an image can have several. Else its
        class is unknown.
        """
        sets = [
            tuple(name for name in map(compose, row.classes or ()) if posixpath.basename(name) != BACKGROUND)
            for row in found.rows
        ]
        try:
            classes = () if found.reason else sort_classes({name for given in sets for name in given})
        except ImageError as error:
            return self.with_labels(found._replace(reason=str(error)))
        table, number = np.array(self.table), {name: index for index, name in enumerate(classes)}
        table["split"] = [row.split.encode() for row in found.rows]
        counts, label_sets, reading = {*map(len, sets)}, None, ""
        if counts == {1} or (counts <= {0, 1} and not found.several) or not classes:
            table["label"] = [number.get("".join(given), -1) for given in sets]
        else:
            unique = {given: index for index, given in enumerate(dict.fromkeys(sets))}
            table["label"] = [unique[given] for given in sets]
            label_sets = tuple(tuple(sorted(number[name] for name in given)) for given in unique)
        if classes:
            example = next(row for row, given in zip(found.rows, sets, strict=True) if given)
            reading = f"{found.reading}; {describe_row(example, found.has_splits)}"
        return replace(
            self,
            table=table,
            classes=classes,
            label_sets=label_sets,
            no_classes="" if classes else found.reason or f"{pluralize(len(sets), 'image')} without a class",
            reading=reading,
            is_divided=found.has_splits,
            notes=(*self.notes, *found.notes),
        )

    def require_classes(self) -> "Images":
        """Return the images that have a class; a note counts the others.

        Raises:
            ImageError: No classes. The message has the reason and the option that helps.
        """
        if not self.classes:
            raise ImageError(f"no classes in {printable(str(self.root))}: {self.no_classes}")
        missing = self.table["label"] < 0
        if self.label_sets is not None or not missing.any():
            return self
        others = f"without a class{' or split' * self.is_divided} left out"
        notes = count_names("image", others, self.subset(np.flatnonzero(missing)).names)
        return replace(self.subset(np.flatnonzero(~missing)), notes=(*self.notes, *notes))


def make_table(rows: Iterable[Row]) -> np.ndarray:
    """Return a table of images, a row each.

    The fields are `name` (bytes), `label` (-1: no class), `split`, `store`, and `offset` and `size` in a tar.
    """
    rows = [*rows]
    names = [os.fsencode(row.name) for row in rows]
    columns: list[Any] = [("name", f"S{max(map(len, names), default=1)}"), ("label", "<i4"), ("split", "S5")]
    table = np.empty(len(rows), [*columns, ("store", "<i4"), ("offset", "<i8"), ("size", "<i8")])
    table["name"], table["label"], table["split"] = names, -1, b""
    for field in ("store", "offset", "size"):
        table[field] = [getattr(row, field) for row in rows]
    return table


def _status(path: Path) -> os.stat_result | None:
    """State of a file; None for a dangling link."""
    try:
        return path.stat()
    except OSError:
        return None


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
        exclude: List of images to leave out, see `find_listed`.
        arrays: Count .npy files as images, too.
        options: Where classes and splits are; with `labels`, images that are not in that table are left out.

    Raises:
        ImageError: Nothing found, no images, or a compressed or damaged tar. A listed or excluded name does
            not exist, or several images have an excluded one. A table without classes of these images.
    """
    sources = [source] if isinstance(source, str | Path) else source
    options = (options or LabelOptions()).label_options()
    of_source = replace(options, labels=None)
    suffixes = frozenset(SUFFIXES | {ARRAY_SUFFIX} if arrays else SUFFIXES)
    parts = _find_parts(map(str, sources), suffixes, of_source)
    images = _open_index(parts, suffixes, of_source)
    if exclude is not None:
        unwanted = set(find_listed(images, Path(exclude), options))
        if len(unwanted) == len(images):
            raise ImageError(f"{exclude} leaves no image: it names all {len(images)}")
        images = images.subset(number for number in range(len(images)) if number not in unwanted)
    return images if options.labels is None else label_by_table(images, options.labels, options)


def is_named(source: str) -> bool:
    """Return whether a source of `open_images` is a URL or a generated set, and no path."""
    return remote.is_remote(source) or source.startswith(TEXTURES)


def find_listed(images: Images, file: Path, options: LabelOptions) -> list[int]:
    """Return the numbers of the images that a list names, in its order, by whole names or their ends.

    Raises:
        ImageError: A name that no image has, or that several images have; more columns than that of the
            names, without `split_column` none.
    """
    found, missing = read_table(file, NameIndex(images.names, images.root).find, PATHS_ONLY)
    if missing:
        raise ImageError(
            f"{file} names {len(missing)} images that do not exist, the first is {printable(missing[0])};"
            f" names look like {printable(images.names[0])}"
        )
    if found.unused and options.split_column != "none":
        raise ImageError(
            f"{file} is a list of images and has more columns ({printable(', '.join(found.unused))}): list"
            " the images that are meant, or pass --split-column none for all rows"
        )
    numbers = {name: number for number, name in enumerate(images.names)}
    return [numbers[row.name] for row in found.rows]


def label_by_table(images: Images, file: Path, options: LabelOptions) -> Images:
    """Label images by a table of paths and classes; images without a row are left out and counted.

    The table has the splits, too, or folders are splits as in `folders.divide`.

    Raises:
        ImageError: A table without classes or without these images, or a path of several images.
    """
    found, missing = read_table(file, NameIndex(images.names, images.root).find, options)
    if not found.reason and not found.rows:
        shown = f"names look like {printable(images.names[0])}, its paths like {', '.join(missing[:1])}"
        raise ImageError(
            f"{file} names no image of {images.root}: {shown}. Pass --image-column if they are elsewhere;"
            " columns are divided by commas, tabs, semicolons or spaces"
        )
    if not found.reason and all(row.classes is None for row in found.rows):
        if not found.has_splits and options.class_column != "none":
            raise ImageError(
                f"{file} has paths and no classes: expected a column label, or pass --class-column, none for"
                " class folders"
            )
        images.require_classes()
        numbers = {name: number for number, name in enumerate(images.names)}
        of_folders = [row._replace(classes=images.label_names(numbers[row.name])) for row in found.rows]
        found = found._replace(rows=of_folders)
    labeled = {row.name: row for row in found.rows if row.classes or found.several}
    chosen = [number for number, name in enumerate(images.names) if name in labeled]
    left = [name for name in images.names if name not in labeled]
    found = found._replace(
        rows=[labeled[images.names[number]] for number in chosen],
        notes=(
            *found.notes,
            *count_names("image", f"without a class in {file.name} left out", left),
            *count_names("row", f"of {file.name} without an image", missing),
        ),
    )
    if not found.reason:
        found = divide_by_folders(found, options)
    if found.reason:
        raise ImageError(found.reason)
    return images.subset(chosen).with_labels(found)


class _Part(NamedTuple):
    """A store, and its images if they were listed."""

    store: Store
    rows: Rows | None = None
    title: Path | str = ""
    """Path or URL that the part is named after. Default: that of the store."""


def _find_parts(sources: Iterable[str], suffixes: Collection[str], options: LabelOptions) -> list[_Part]:
    """Find the stores of some sources; of several, the title of each begins the names of its images.

    Raises:
        ImageError: A source that does not exist, or as `tables.read_list`.
    """
    images, parts = set[Path](), list[_Part]()
    for source in sources:
        path, named = Path(source), list[Path]()
        if suffix_of(source) in suffixes and not (remote.is_remote(source) or path.is_dir()):
            named = [path] if path.is_file() else [*map(Path, glob.glob(source))]  # noqa: PTH207
        images.update(file.absolute() for file in named)
        parts += [] if named else _open_source(source, suffixes, options)
    if images:
        folder = Path(os.path.commonpath([path.parent for path in images]))
        rows = [Row(name) for name in sorted(path.relative_to(folder).as_posix() for path in images)]
        parts.append(_Part(Store(folder), Rows(rows), folder))
    parts = [*{(part.store, part.title): part for part in parts}.values()]
    if len(parts) > 1:
        pairs = zip(parts, _titles([part.title for part in parts]), strict=True)
        parts = [part._replace(store=part.store._replace(prefix=f"{title}/")) for part, title in pairs]
    return sorted(parts, key=lambda part: part.store.prefix)


def _open_source(source: str, suffixes: Collection[str], options: LabelOptions) -> list[_Part]:
    path = Path(source)
    try:
        if path.is_dir():
            return [_Part(Store(path), None, path)]
        if source.startswith(TEXTURES):
            tars: list[Path | str] = [textures_tar(source)]
        elif remote.is_remote(source) or (not path.exists() and re.search(r"[*?\[{]", source)):
            tars = _expand(source) or [path]
        elif is_tar(path):
            tars = [path]
        else:
            folder, found = read_list(path, {*suffixes, ".tar"}, options)
            names = [row.name for row in found.rows if suffix_of(row.name) == ".tar"]
            tars = [name if remote.is_remote(name) else folder / name for name in names]
            if not tars:
                return [_Part(Store(folder), found, path)]
            if len(tars) < len(found.rows):
                raise ImageError(f"{path} lists images and tars: expected a list of images, or one of tars")
        return [_Part(Store(tar, stamp(tar)), None, tar) for tar in tars]
    except OSError as error:
        reason = f"{error.filename} cannot be opened: {error.strerror}" if error.filename else str(error)
        raise ImageError(printable(reason)) from error


def _expand(pattern: str) -> list[Path | str]:
    """Return the tars of a pattern, with ranges of numbers as in a shell: {000..127} keeps leading zeros."""
    if match := re.search(r"\{(\d+)\.\.(\d+)\}", pattern):
        first, last = match.groups()
        numbers = (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
        parts = (pattern[: match.start()] + number + pattern[match.end() :] for number in numbers)
        return [tar for part in parts for tar in _expand(part)]
    if remote.is_remote(pattern):
        return [*remote.glob(pattern)] if "*" in pattern else [pattern]
    return [*map(Path, sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern])]  # noqa: PTH207


def _titles(paths: Sequence[Path | str]) -> list[str]:
    """Return a folder name for each part: its name, with folders above where names are equal."""
    texts = [str(path).partition("://")[2] or str(path) for path in paths]
    short = [text.removesuffix(".tar").removesuffix(".txt") for text in texts]
    names = [PurePosixPath(text) for text in (short if len({*short}) == len(texts) else texts)]
    folders: list[str] = []
    for depth in range(1, max(len(name.parts) for name in names) + 1):
        folders = ["/".join(name.parts[-depth:]).lstrip("/") for name in names]
        if len({*folders}) == len(folders):
            break
    return folders


def _open_index(parts: Sequence[_Part], suffixes: Collection[str], options: LabelOptions) -> Images:
    """Index the images of parts; those of tars alone are read from the cache."""
    stores = tuple(part.store for part in parts)
    if not all(store.stamp for store in stores):
        return _index(parts, suffixes, options)
    resolved = [(s.path if isinstance(s.path, str) else s.path.resolve(), *s[1:]) for s in stores]
    content = repr((VERSION, resolved, sorted(suffixes), options))
    path = cache_folder() / "tars" / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.npy"
    if not path.is_file():
        images = _index(parts, suffixes, options)
        try:
            files.write_json(path.with_suffix(".json"), {name: getattr(images, name) for name in CACHED})
            with files.replace_file(path) as temporary:
                np.save(temporary, images.table)
        except OSError:  # without a cache, the index is made each time
            return images
    stored = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    facts = {name: files.as_tuples(value) for name, value in stored.items()}
    return Images(np.load(path, mmap_mode="r"), _root(stores), stores, **facts)


def _root(stores: Sequence[Store]) -> Path:
    """Return the only store, or the folder that holds all."""
    if len(stores) == 1:
        return Path(stores[0].path)
    folders = [Path(store.path).parent if store.stamp else Path(store.path) for store in stores]
    return Path(os.path.commonpath([folder.absolute() for folder in folders]))


def _index(parts: Sequence[_Part], suffixes: Collection[str], options: LabelOptions) -> Images:
    """Read and label the images of parts: by lists and WebDataset if one has classes, else by folders."""
    contents, rows = list[Rows](), list[Row]()
    for number, (store, listed, _) in enumerate(parts):
        if listed:
            content = listed
        elif store.stamp is None:
            content = read_folder(Path(store.path), suffixes)
        else:
            content = read_tar(store.path, suffixes, options, alone=len(parts) == 1)
        contents.append(content)
        rows += (row._replace(store=number) for row in (content.rows if listed else sorted(content.rows)))
        if not content.rows and (store.stamp is None or (number + 1 == len(parts) and not rows)):
            kinds = f"found {content.ignored} files, none of them .jpg, .png, .webp, .bmp, .tif, .gif or .ppm"
            reasons = "; ".join([*content.notes, kinds])
            raise ImageError(f"no images in {printable(str(store.path))}: {reasons}")
    ignored = sum(content.ignored for content in contents)
    notes = [f"{pluralize(ignored, 'other file')} ignored"] * bool(ignored)
    found = Rows(
        rows,
        reading="; ".join(dict.fromkeys(content.reading for content in contents if content.reading)),
        reason=next((content.reason for content in contents if content.reason), ""),
        has_splits=any(content.has_splits for content in contents),
        several=any(content.several for content in contents),
        notes=(*notes, *(note for content in contents for note in content.notes)),
    )
    if options.sources == "classes":
        titles = [(printable(part.store.prefix.rstrip("/")),) for part in parts]
        reason = "" if len(parts) > 1 else "--sources classes needs several sources, and there is one"
        rows = [row._replace(classes=titles[row.store]) for row in rows]
        found = found._replace(rows=rows, reading="class: source", reason=reason)
    elif not found.reason and all(row.classes is None for row in rows):
        found = label_by_folders(found, options)
        if len(parts) > 1 and not any("/" in row.name for row in rows):
            reason = "the sources hold no class folders: pass --sources classes if each is a class"
            found = found._replace(reason=reason)
    elif not found.reason:
        found = divide_by_folders(found, options)
    stores = tuple(part.store for part in parts)
    rows = [row._replace(name=stores[row.store].prefix + row.name) for row in found.rows]
    images = Images(make_table(rows), _root(stores), stores)
    return images.with_labels(found._replace(rows=rows))
