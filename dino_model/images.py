"""Any picture file becomes uint8 RGB; any folder, tar or list of pictures becomes `Images`."""

import contextlib
import hashlib
import importlib
import io
import json
import os
import posixpath
import tarfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
from PIL import Image, ImageChops, UnidentifiedImageError, features

from dino_model import shards
from dino_model.errors import sentence
from dino_model.index import Column, Numbers, Texts, letters_of

with contextlib.suppress(ImportError):  # a decoder of HEIC that some have installed
    importlib.import_module("pillow_heif").register_heif_opener()

SUFFIXES_OF: dict[str, tuple[str, ...]] = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "BMP": (".bmp", ".dib"),
    "TIFF": (".tif", ".tiff"),
    "GIF": (".gif",),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm", ".pfm"),
    "AVIF": (".avif",) if features.check("avif") else (),
    "HEIF": (".heic", ".heif") if "HEIF" in Image.OPEN else (),
}
FORMATS = tuple(name for name, suffixes in SUFFIXES_OF.items() if suffixes)
SUFFIXES = {suffix for suffixes in SUFFIXES_OF.values() for suffix in suffixes}
IMAGENET_MEAN: tuple[float, float, float] = (0.485, 0.456, 0.406)  # of red, green, blue; on a scale of 0 to 1
IMAGENET_STD: tuple[float, float, float] = (0.229, 0.224, 0.225)
MAX_PIXELS = 100_000_000  # 300 MB as RGB: above a camera's single shot, below what hurts a laptop

# `read` says in an exception what is wrong; Pillow's warnings on sizes and EXIF would come beside it.
warnings.filterwarnings("ignore", module=r"PIL\.")

_EXIF_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}


T = TypeVar("T")


class ImageError(ValueError):
    """A picture, or a collection of pictures, that cannot be read. The message is one sentence for people."""


class ShardError(ImageError):
    """A tar that is gone, cut or changed since it was indexed: no single picture is at fault."""


def read(
    source: str | Path | bytes | BinaryIO, *, max_pixels: int = MAX_PIXELS, name: str | None = None
) -> np.ndarray:
    """The picture as a screen should show it: uint8 [height, width, 3], RGB, values 0..255.

    EXIF orientation is applied; grey, palette and CMYK become RGB (without colour profiles);
    transparency is laid on white; 16- and 32-bit pictures of one channel are stretched from their
    minimum and maximum to 0..255; of animations and multi-page files the first frame is taken.

    Args:
        source: a path, the bytes of a file, or a binary stream that can seek.
        max_pixels: largest width × height that is decoded; the header tells, before memory is spent.
        name: what messages call the picture; left out: the file's name, or "the picture".

    Raises:
        ImageError: missing, empty, damaged or cut short, too large, or not one of `FORMATS`.
    """
    if isinstance(source, bytes):
        return _decode(io.BytesIO(source), max_pixels, name or "the picture")
    if not isinstance(source, str | Path):
        return _decode(source, max_pixels, name or "the picture")
    path = Path(source)
    return read(_bytes(path, name or path.name), max_pixels=max_pixels, name=name or path.name)


def _bytes(path: Path, name: str, offset: int = 0, size: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(size)
    except OSError as error:
        raise ImageError(f"{name} cannot be opened: {error.strerror or error}") from error


def _decode(stream: BinaryIO, max_pixels: int, name: str) -> np.ndarray:
    try:
        with Image.open(stream, formats=FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise Image.DecompressionBombError
            image.load()
            return _to_rgb(image)
    except Image.DecompressionBombError as error:
        raise ImageError(f"{name} is too large: at most {max_pixels:,} pixels are read") from error
    except UnidentifiedImageError as error:
        if stream.seek(0, io.SEEK_END) == 0:
            raise ImageError(f"{name} is empty (0 bytes)") from error
        raise ImageError(f"{name} is not a picture of a known format ({', '.join(FORMATS)})") from error
    except Exception as error:  # what decoders raise on damaged files is an open set
        raise ImageError(f"{name} is damaged or cut short: {error}") from error


def _to_rgb(image: Image.Image) -> np.ndarray:
    if image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info:
        image = ImageChops.invert(image)  # Pillow takes the inks of every JPEG as inverted, Adobe's way
    upright = _UPRIGHT.get(_orientation(image))
    if upright is not None:
        image = image.transpose(upright)
    if image.mode.startswith(("I", "F")):
        return np.repeat(_stretch(np.asarray(image))[:, :, None], 3, axis=2)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.array(image.convert("RGB"))


def _orientation(image: Image.Image) -> int:
    """EXIF orientation 1..8; 1 (upright) where none can be read, as viewers do."""
    try:
        return image.getexif().get(_EXIF_ORIENTATION, 1)
    except Exception:  # a damaged EXIF block does not damage the picture
        return 1


def _stretch(values: np.ndarray) -> np.ndarray:
    """Numbers of any range → uint8, finite minimum to 0 and maximum to 255; a constant counts as 16-bit."""
    finite = values[np.isfinite(values)].astype(np.float64)
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    if low == high:
        low, high = 0.0, 65535.0
    scaled = (values.astype(np.float64) - low) / (high - low) * 255
    return np.nan_to_num(scaled, nan=0.0).clip(0, 255).round().astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Images:
    """Pictures by number, from a folder, a tar or a list; sorted by name. Made by `open_images`.

    Holds no open file: it can be pickled, forked, and read by several threads at once. Two of them are equal
    where they are the same object: comparing a million names is nobody's wish.
    """

    names: Sequence[str]  # relative to the folder, with "/"
    labels: Sequence[int] | None  # index into `classes`; None: no classes
    classes: tuple[str, ...]  # names of the parent folders, sorted
    root: Path  # the folder that names are relative to, or the tar
    extents: Sequence[tuple[int, int]] | None = None  # in a tar: (offset, size) in bytes
    ignored: int = 0  # files left aside because their suffix is no picture's
    tars: tuple[shards.Shard, ...] = ()  # that pictures lie in
    tar_of: Sequence[int] | None = None  # number of the tar that a picture lies in; None: the first
    stamps: tuple[shards.Stamp, ...] = ()  # of the tars, when they were indexed
    parts: "tuple[Images, ...]" = ()  # where folders and tars are joined
    part_of: Sequence[tuple[int, int]] | None = None  # a picture's part, and its number there
    known_inventory: str | None = None  # of an index that was kept

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        """How many there are, and what was left aside, for people."""
        of_classes = f" in {len(self.classes):,} classes" if self.classes else ""
        ignored = f"; {self.ignored:,} other files ignored" if self.ignored else ""
        return f"{len(self):,} pictures of {self.root.name}{of_classes}{ignored}"

    def read(self, index: int, *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
        """uint8 RGB [height, width, 3], as `images.read`. Raises ImageError naming the picture."""
        return read(self.read_bytes(index), max_pixels=max_pixels, name=self.names[index])

    def read_bytes(self, index: int) -> bytes:
        """The file as it lies there, undecoded.

        Raises:
            ImageError: it cannot be read; names the picture.
            ShardError: the tar is gone, cut or changed; names the tar.
        """
        images, number = self._part(index)
        name = images.names[number]
        if images.extents is None:
            return _bytes(images.root / name, name)
        tar = images.tar_number(number)
        shard, (offset, size) = images.tars[tar], images.extents[number]
        try:
            data = shards.read(shard, offset, size, images.stamps[tar])
        except OSError as error:
            raise ShardError(f"{sentence(error)} (reading {name})") from error
        if len(data) < size:
            raise ShardError(f"{name} is cut short: {Path(str(shard)).name} ends within it")
        return data

    def _part(self, index: int) -> "tuple[Images, int]":
        """Where a picture lies: a folder or tars, and its number there."""
        if self.part_of is None:
            return self, index
        part, number = self.part_of[index]
        return self.parts[part], number

    def tar_number(self, index: int) -> int:
        """Of the tar that a picture lies in."""
        return 0 if self.tar_of is None else self.tar_of[index]

    def places(self) -> list[tuple[object, ...]]:
        """The file of every picture with links resolved; in a tar, the tar with offset and size.

        Each folder and tar is resolved and listed once: `Path.resolve` for every picture takes minutes on
        ImageNet.
        """
        resolved = lru_cache(maxsize=None)(os.path.realpath)
        links = lru_cache(maxsize=None)(_links)
        return [self._place(index, resolved, links) for index in range(len(self))]

    def _place(
        self, index: int, resolved: Callable[[str], str], links: Callable[[str], set[str]]
    ) -> tuple[object, ...]:
        images, number = self._part(index)
        if images.extents is not None:
            tar = images.tars[images.tar_number(number)]
            return (tar if isinstance(tar, str) else resolved(str(tar)), *images.extents[number])
        folder, name = os.path.split(f"{images.root}/{images.names[number]}")
        if name in links(folder):
            return (os.path.realpath(f"{folder}/{name}"),)
        return (f"{resolved(folder)}/{name}",)

    def fingerprint(self) -> str:
        """A hash of names, sizes and times of change: equal while these are the same pictures."""
        seen = hashlib.sha256()
        for index, name in enumerate(self.names):
            images, number = self._part(index)
            if images.extents is None:
                stat = (images.root / images.names[number]).stat()
                told = f"{stat.st_size}\0{stat.st_mtime_ns}"
            else:
                told = f"{images.extents[number]}\0{images.stamps[images.tar_number(number)][1]}"
            seen.update(f"{name}\0{told}\n".encode())
        return seen.hexdigest()[:32]

    def inventory(self) -> str:
        """A hash of names and sizes: equal for copies of the same pictures, in a folder or a tar."""
        return self.known_inventory or _inventory(self.names, map(self._size, range(len(self))))

    def _size(self, index: int) -> int:
        images, number = self._part(index)
        if images.extents is None:
            return (images.root / images.names[number]).stat().st_size
        return images.extents[number][1]

    def subset(self, indices: Iterable[int]) -> "Images":
        """These pictures, in this order; `classes` stay, so that a label keeps its meaning."""
        chosen = np.fromiter(indices, np.int64)
        return replace(
            self,
            names=_taken(self.names, chosen),
            labels=None if self.labels is None else _taken(self.labels, chosen),
            extents=None if self.extents is None else _taken(self.extents, chosen),
            tar_of=None if self.tar_of is None else _taken(self.tar_of, chosen),
            part_of=None if self.part_of is None else _taken(self.part_of, chosen),
            known_inventory=None,
        )

    def named(self, names: str | Path) -> "Images":
        """The pictures that a text file names, one a line, as in `names`.

        Raises:
            ImageError: a name that is not there, or none at all.
        """
        wanted = _known(self.names, names)
        if not wanted:
            raise ImageError(f"{names} names no picture: expected one name a line, such as {self.names[0]}")
        return self.subset(i for i, name in enumerate(self.names) if name in wanted)


Source = str | Path


def open_images(source: Source | Sequence[Source], *, exclude: str | Path | None = None) -> Images:
    """The pictures of a folder, uncompressed tars, a list, or several of these. Nothing is decoded yet.

    A folder is searched through all its levels, but for hidden folders and links that lead back up; hidden
    files and files whose suffix is no picture's are ignored and counted. In a tar, one top folder that holds
    everything is left out of the names, which then are those in the unpacked folder. A list is a text file
    with one path a line, relative to the list's own folder, all of pictures or all of tars; empty lines and
    lines that begin with # are skipped.

    Several tars, or several sources, are one collection: the name of each is the folder of what lies in it.

    A picture's label is the name of its parent folder, or of the one above where all parent folders are of
    one name (Tiny ImageNet: class/images/picture). Where that leaves one label, none has one.

    Args:
        source: FOLDER, TAR or LIST; or a pattern of tars, such as 'train/*.tar' or 'shard-{000..127}.tar', of
            URLs too (s3://…, https://…), see `remote`. What a file of the picture's name and the suffix .cls
            says is its class (WebDataset). What lies where in tars is kept in the cache, see `shards`.
        exclude: text file with the names of pictures to leave out, one a line, as in `Images.names`.

    Raises:
        ImageError: nothing there, no pictures, a compressed or damaged tar, a listed or excluded name
            that does not exist.
    """
    sources = [source] if isinstance(source, str | Path) else list(source)
    tars = [_tars(str(one)) for one in sources]
    if all(tars):
        return _of_tars(list(dict.fromkeys(tar for some in tars for tar in some)), exclude)
    if len(sources) > 1:
        return _joined(sources, exclude)
    path = Path(sources[0])
    found = _scan(path)
    names = sorted(name for name in found if _is_picture(name))
    if not names:
        raise ImageError(_no_pictures(path, len(found)))
    kept = _without(names, exclude)
    labels, classes = _labels(kept)
    root = path if path.is_dir() else path.parent
    return Images(tuple(kept), labels, classes, root, ignored=len(found) - len(names))


def _joined(sources: Sequence[Source], exclude: str | Path | None) -> Images:
    """Folders, lists and tars as one collection; labelled as they are, or else by their own names."""
    parts = tuple(open_images(one) for one in sources)
    titles = shards.titles([Path(one) for one in sources])
    names = [f"{title}/{name}" for title, part in zip(titles, parts, strict=True) for name in part.names]
    labelled = [part for part in parts if part.labels is not None]
    labels: tuple[int, ...] | None = None
    classes: tuple[str, ...] = ()
    if len(labelled) == len(parts):
        classes = tuple(sorted({name for part in parts for name in part.classes}))
        number = {name: i for i, name in enumerate(classes)}
        labels = tuple(number[part.classes[label]] for part in parts for label in part.labels or ())
    elif not labelled:
        labels, classes = _labels(names)
    part_of = tuple((i, number) for i, part in enumerate(parts) for number in range(len(part)))
    ignored = sum(part.ignored for part in parts)
    root = Path(os.path.commonpath([part.root.absolute() for part in parts]))
    images = Images(names, labels, classes, root, ignored=ignored, parts=parts, part_of=part_of)
    unwanted = set() if exclude is None else _known(names, exclude)
    return images.subset(i for i, name in enumerate(names) if name not in unwanted)


def _tars(source: str) -> list[shards.Shard]:
    path = Path(source)
    head = _bytes(path, source, size=8) if path.is_file() else b""
    packed = next((kind for magic, kind in _PACKED.items() if head.startswith(magic)), None)
    if packed:
        raise ImageError(f"{path} is compressed ({packed}): unpack it, then pass its folder or a plain tar")
    try:
        return shards.tars_of(source)
    except OSError as error:
        reason = f"{error.filename} cannot be opened: {error.strerror}" if error.filename else str(error)
        raise ImageError(reason) from error


def _of_tars(tars: list[shards.Shard], exclude: str | Path | None) -> Images:
    """Pictures of tars, as the kept index of all of them has them."""
    unwanted = _bytes(Path(exclude), str(exclude)).decode("utf-8", "replace") if exclude else ""
    stamps = tuple(map(shards.stamp, tars))
    named = (*shards.titles(tars), *sorted(SUFFIXES), unwanted)
    arrays, told = shards.joint(tars, stamps, partial(_index, tars, exclude), *named)
    first = tars[0]
    return Images(
        names=Texts(arrays["letters"], arrays["ends"]),
        labels=Numbers(arrays["labels"]) if "labels" in arrays else None,
        classes=tuple(json.loads(told["classes"])),
        root=Path(str(first)) if len(tars) == 1 else Path(str(first)).parent,
        extents=Numbers(arrays["extents"]),
        ignored=int(told["ignored"]),
        tars=tuple(tars),
        tar_of=Numbers(arrays["tar_of"]) if len(tars) > 1 else None,
        stamps=stamps,
        known_inventory=told["inventory"],
    )


def _index(
    tars: list[shards.Shard], exclude: str | Path | None
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Names, labels, places of the pictures of tars, sorted by name: "TAR/NAME" where there are several."""
    places: dict[str, tuple[int, int, int]] = {}  # tar, offset, size
    told: dict[str, str] = {}
    for number, (tar, title) in enumerate(zip(tars, shards.titles(tars), strict=True)):
        try:
            index = shards.index(tar)
        except (tarfile.TarError, OSError) as error:
            raise ImageError(f"{tar} is no whole, uncompressed tar: {error}") from error
        tops = {name.partition("/")[0] for name in index.members} if len(tars) == 1 else set()
        top, folder = f"{tops.pop()}/" if len(tops) == 1 else "", f"{title}/" if len(tars) > 1 else ""
        places |= {folder + name.removeprefix(top): (number, *at) for name, at in index.members.items()}
        told |= {folder + name.removeprefix(top): label for name, label in index.classes.items()}
    names = sorted(name for name in places if _is_picture(name))
    if not names:
        raise ImageError(_no_pictures(tars[0], len(places), len(tars)))
    kept = _without(names, exclude)
    stems = (posixpath.splitext(name)[0] for name in kept)
    labels, classes = _labels([f"{told.get(stem, '.')}/_" for stem in stems] if told else kept)
    table = np.array([places[name] for name in kept], np.int64)  # [pictures, 3]
    letters, ends = letters_of(kept)
    arrays = {
        "letters": letters,
        "ends": ends,
        "extents": table[:, 1:].copy(),
        "tar_of": table[:, 0].astype("<i4"),
    }
    if labels is not None:
        arrays["labels"] = np.array(labels, "<i4")
    said = {"classes": json.dumps(classes), "ignored": str(len(places) - len(names))}
    return arrays, said | {"inventory": _inventory(kept, table[:, 2].tolist())}


def _no_pictures(path: object, found: int, tars: int = 1) -> str:
    others = f" and {tars - 1} more" if tars > 1 else ""
    return (
        f"no pictures in {path}{others}: found {found} files,"
        " none of them .jpg, .png, .webp, .bmp, .tif, .gif or .ppm"
    )


def _inventory(names: Iterable[str], sizes: Iterable[int]) -> str:
    seen = hashlib.sha256()
    for name, size in zip(names, sizes, strict=True):
        seen.update(f"{name}\0{size}\n".encode())
    return seen.hexdigest()[:32]


def _taken(values: Sequence[T], chosen: np.ndarray) -> Sequence[T]:
    return values.take(chosen) if isinstance(values, Column) else tuple(values[i] for i in chosen.tolist())


def _scan(path: Path) -> list[str]:
    """Names of all files of a folder or list."""
    return list(_walk(path)) if path.is_dir() else _read_list(path)


def _links(folder: str) -> set[str]:
    """Names of the symbolic links of a folder."""
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries if entry.is_symlink()}


def _walk(folder: Path) -> Iterable[str]:
    """Names of all files below a folder; a link that leads back up is not followed, nor a hidden folder."""
    above: dict[str, frozenset[str]] = {}  # of each folder, the real places of itself and those it lies in
    for parent, folders, files in os.walk(folder, followlinks=True):
        here = above.pop(parent, frozenset()) | {os.path.realpath(parent)}
        inside = {name: str(Path(parent) / name) for name in folders if not name.startswith(".")}
        folders[:] = [name for name, path in inside.items() if os.path.realpath(path) not in here]
        above |= {inside[name]: here for name in folders}
        relative = Path(parent).relative_to(folder)
        yield from ((relative / file).as_posix() for file in files)


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
        text = _bytes(path, str(path)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ImageError(f"{path} is no folder, no tar and no text with one name a line") from error
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _is_picture(name: str) -> bool:
    hidden = any(part.startswith(".") and part != ".." for part in name.split("/"))
    return posixpath.splitext(name)[1].lower() in SUFFIXES and not hidden


def _without(names: list[str], exclude: str | Path | None) -> list[str]:
    if exclude is None:
        return names
    unwanted = _known(names, exclude)
    kept = [name for name in names if name not in unwanted]
    if not kept:
        raise ImageError(f"{exclude} leaves no picture: it names all {len(names)}")
    return kept


def _known(names: Sequence[str], file: str | Path) -> set[str]:
    """The lines of a text file, all of which must be among the names."""
    lines = set(_lines(Path(file)))
    unknown = sorted(lines.difference(names))
    if unknown:
        raise ImageError(
            f"{file} names {len(unknown)} pictures that are not there, the first is {unknown[0]};"
            f" names look like {names[0]}"
        )
    return lines


def _labels(names: list[str]) -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
    """The parent folder of every name, as a number, and the folders those numbers stand for."""
    paths = [posixpath.dirname(name) for name in names]
    while all(paths) and len({posixpath.basename(path) for path in paths}) == 1 < len(set(paths)):
        paths = [posixpath.dirname(path) for path in paths]
    folders = [posixpath.basename(path) or "." for path in paths]
    classes = tuple(sorted(set(folders)))
    if len(classes) == 1:
        return None, ()
    number = {folder: index for index, folder in enumerate(classes)}
    return tuple(number[folder] for folder in folders), classes
