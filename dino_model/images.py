"""Any picture file becomes uint8 RGB; any folder, tar or list of pictures becomes `Images`."""

import contextlib
import hashlib
import importlib
import io
import os
import posixpath
import tarfile
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageChops, UnidentifiedImageError, features

from dino_model import shards

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


class ImageError(ValueError):
    """A picture, or a collection of pictures, that cannot be read. The message is one sentence for people."""


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


@dataclass(frozen=True)
class Images:
    """Pictures by number, from a folder, a tar or a list; sorted by name. Made by `open_images`.

    Holds no open file: it can be pickled, forked, and read by several threads at once.
    """

    names: tuple[str, ...]  # relative to the folder, with "/"
    labels: tuple[int, ...] | None  # index into `classes`; None: no classes
    classes: tuple[str, ...]  # names of the parent folders, sorted
    root: Path  # the folder that names are relative to, or the tar
    extents: tuple[tuple[int, int], ...] | None = None  # in a tar: (offset, size) in bytes
    ignored: int = 0  # files left aside because their suffix is no picture's
    tars: tuple[Path, ...] = ()  # where there are several; the root then is their common folder
    tar_of: tuple[int, ...] | None = None  # number of the tar that a picture lies in

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
        """The file as it lies there, undecoded. Raises ImageError naming the picture."""
        name = self.names[index]
        if self.extents is None:
            return _bytes(self.root / name, name)
        offset, size = self.extents[index]
        tar = self.tar(index)
        data = _bytes(tar, name, offset, size)
        if len(data) < size:
            raise ImageError(f"{name} is cut short: {tar.name} ends within it")
        return data

    def tar(self, index: int) -> Path:
        """The tar that a picture lies in."""
        return self.root if self.tar_of is None else self.tars[self.tar_of[index]]

    def fingerprint(self) -> str:
        """A hash of names, sizes and times of change: equal while these are the same pictures."""
        seen = hashlib.sha256()
        for index, name in enumerate(self.names):
            file = (self.root / name if self.extents is None else self.tar(index)).stat()
            size = file.st_size if self.extents is None else self.extents[index]
            seen.update(f"{name}\0{size}\0{file.st_mtime_ns}\n".encode())
        return seen.hexdigest()[:32]

    def inventory(self) -> str:
        """A hash of names and sizes: equal for copies of the same pictures, in a folder or a tar."""
        seen = hashlib.sha256()
        for index, name in enumerate(self.names):
            size = (self.root / name).stat().st_size if self.extents is None else self.extents[index][1]
            seen.update(f"{name}\0{size}\n".encode())
        return seen.hexdigest()[:32]

    def subset(self, indices: Iterable[int]) -> "Images":
        """These pictures, in this order; `classes` stay, so that a label keeps its meaning."""
        chosen = tuple(indices)
        return replace(
            self,
            names=tuple(self.names[i] for i in chosen),
            labels=None if self.labels is None else tuple(self.labels[i] for i in chosen),
            extents=None if self.extents is None else tuple(self.extents[i] for i in chosen),
            tar_of=None if self.tar_of is None else tuple(self.tar_of[i] for i in chosen),
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


def open_images(path: str | Path, *, exclude: str | Path | None = None) -> Images:
    """The pictures of a folder, an uncompressed tar, or a list. Nothing is decoded yet.

    A folder is searched through all its levels, but for hidden folders and links that lead back up; hidden
    files and files whose suffix is no picture's are ignored and counted. In a tar, one top folder that holds
    everything is left out of the names, which then are those in the unpacked folder. A list is a text file
    with one path a line, relative to the list's own folder; empty lines and lines that begin with # are
    skipped.

    A picture's label is the name of its parent folder, or of the one above where all parent folders are of
    one name (Tiny ImageNet: class/images/picture). Where that leaves one label, none has one.

    Args:
        path: FOLDER, TAR or LIST; or a pattern of tars, such as 'train/*.tar' or 'shard-{000..127}.tar'. Of
            several tars each one's name is the folder of what lies in it, and what a file of the picture's
            name and the suffix .cls says is its class (WebDataset); their indexes are kept in the cache.
        exclude: text file with the names of pictures to leave out, one a line, as in `Images.names`.

    Raises:
        ImageError: nothing there, no pictures, a compressed or damaged tar, a listed or excluded name
            that does not exist.
    """
    tars = _tars(str(path))
    if tars:
        return _of_tars(tars, exclude)
    path = Path(path)
    found = _scan(path)
    names = sorted(name for name in found if _is_picture(name))
    if not names:
        raise ImageError(
            f"no pictures in {path}: found {len(found)} files,"
            " none of them .jpg, .png, .webp, .bmp, .tif, .gif or .ppm"
        )
    kept = _without(names, exclude)
    labels, classes = _labels(kept)
    extents = tuple(extent for name in kept if (extent := found[name]))
    return Images(
        names=tuple(kept),
        labels=labels,
        classes=classes,
        root=path if path.is_dir() or extents else path.parent,
        extents=extents or None,
        ignored=len(found) - len(names),
    )


def _tars(pattern: str) -> list[Path]:
    try:
        return shards.tars_of(pattern)
    except OSError as error:
        raise ImageError(f"{error.filename} cannot be opened: {error.strerror}") from error


def _of_tars(tars: list[Path], exclude: str | Path | None) -> Images:
    """Pictures of several tars: "TAR/NAME", with the tar's name without its suffix."""
    places: dict[str, tuple[int, tuple[int, int]]] = {}
    told: dict[str, str] = {}
    for number, tar in enumerate(tars):
        try:
            index = shards.index(tar)
        except (tarfile.TarError, OSError) as error:
            raise ImageError(f"{tar} is no whole, uncompressed tar: {error}") from error
        places |= {f"{tar.stem}/{name}": (number, extent) for name, extent in index.members.items()}
        told |= {f"{tar.stem}/{name}": label for name, label in index.classes.items()}
    names = sorted(name for name in places if _is_picture(name))
    if not names:
        raise ImageError(f"no pictures in {len(tars)} tars, the first of which is {tars[0]}")
    kept = _without(names, exclude)
    labels, classes = _labels(
        [f"{told.get(posixpath.splitext(n)[0], '.')}/_" for n in kept] if told else kept
    )
    return Images(
        names=tuple(kept),
        labels=labels,
        classes=classes,
        root=tars[0].parent,
        extents=tuple(places[name][1] for name in kept),
        ignored=len(places) - len(names),
        tars=tuple(tars),
        tar_of=tuple(places[name][0] for name in kept),
    )


def _scan(path: Path) -> dict[str, tuple[int, int] | None]:
    """Every file's name → (offset, size) in a tar, None in a folder or list."""
    if path.is_dir():
        return dict.fromkeys(_walk(path))
    head = _bytes(path, str(path), size=8)
    packed = next((kind for magic, kind in _PACKED.items() if head.startswith(magic)), None)
    if packed:
        raise ImageError(f"{path} is compressed ({packed}): unpack it, then pass its folder or a plain tar")
    if tarfile.is_tarfile(path):
        return _index_tar(path)
    return dict.fromkeys(_read_list(path))


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


def _index_tar(path: Path) -> dict[str, tuple[int, int] | None]:
    try:
        with tarfile.open(path, "r:") as tar:
            members: dict[str, tuple[int, int] | None] = {
                posixpath.normpath(m.name): (m.offset_data, m.size) for m in tar if m.isreg()
            }
    except tarfile.TarError as error:
        raise ImageError(f"{path} is a damaged tar: {error}") from error
    if members and all(name.endswith(".tar") for name in members):
        members = _index_tars(path, members)
    tops = {name.partition("/")[0] for name in members}
    top = f"{tops.pop()}/" if len(tops) == 1 else ""
    return {name.removeprefix(top): extent for name, extent in members.items()}


def _index_tars(path: Path, members: dict[str, tuple[int, int] | None]) -> dict[str, tuple[int, int] | None]:
    """A tar of tars, as ImageNet's training pictures come: each inner tar is a folder of its name."""
    found: dict[str, tuple[int, int] | None] = {}
    try:
        with path.open("rb") as file:
            for name, extent in members.items():
                assert extent is not None
                file.seek(extent[0])
                with tarfile.open(fileobj=file, mode="r:") as tar:
                    inside = {posixpath.basename(m.name): (m.offset_data, m.size) for m in tar if m.isreg()}
                found |= {f"{name.removesuffix('.tar')}/{picture}": at for picture, at in inside.items()}
    except tarfile.TarError as error:
        raise ImageError(f"{path} holds a damaged tar: {error}") from error
    return found


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
