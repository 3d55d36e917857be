"""Decode mask files: the values that are stored, whatever the suffix of the file."""

import io
import zlib
from collections import defaultdict
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dino_model.data import images
from segmentation.labels import VOID, DataError

MaskKind = Literal["bits", "gray", "palette", "color"]

_PNG_START = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"
_EXACT = ("PNG", "TIFF", "BMP", "GIF", "WEBP", "PPM")
_SUFFIXES = (".png", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pbm", ".pnm")
_LOSSY_SUFFIXES = (".jpg", ".jpeg")
_PHOTOMETRIC, _COMPRESSION, _JPEGS = (
    262,
    259,
    (6, 7, 34892, 50001),
)  # tags of TIFF, and values for JPEG and WebP
_EXPECTED = "expected a palette or gray PNG whose values are the labels"


class StoredMask(NamedTuple):
    """A decoded mask.

    Attributes:
        values: Indices, gray values or ids [height, width]; of colors 0xRRGGBB.
        kind: Bits (0 and 1), gray values or ids, palette indices, or colors.
        colors: Of a palette: the color 0xRRGGBB of each index 0 to 255; -1 for 255 without a color.
    """

    values: NDArray[Any]
    kind: MaskKind
    colors: tuple[int, ...] = ()

    @property
    def is_bits(self) -> bool:
        """Whether the values are bits."""
        return self.kind == "bits"

    @property
    def is_gray(self) -> bool:
        """Whether the values are gray values or ids."""
        return self.kind == "gray"

    @property
    def is_palette(self) -> bool:
        """Whether the values are indices of a palette."""
        return self.kind == "palette"

    @property
    def is_color(self) -> bool:
        """Whether the values are colors."""
        return self.kind == "color"

    def rgb(self) -> NDArray[np.int64]:
        """Return the color of each pixel: 0xRRGGBB, [height, width]."""
        match self.kind:
            case "color":
                return self.values
            case "palette":
                return np.array(self.colors, np.int64)[self.values]
            case "bits":
                return self.values * np.int64(0xFFFFFF)
            case "gray":
                return self.values * np.int64(0x10101)


def load_mask(path: Path, *, lossy: bool = False) -> StoredMask:
    """Decode a mask; with `lossy` from any image, whose values are the brightest of red, green and blue.

    Raises:
        DataError: Missing, damaged, lossy, antialiased, of several pages, or of values that are no ids.
    """
    try:
        content = path.read_bytes()
        with Image.open(io.BytesIO(content), formats=images.FORMATS if lossy else None) as image:
            if lossy:
                return StoredMask(_brightest(_array(image, path)), "gray")
            _check_encoding(image, content, path)
            stored = _decode_plain_png(content) or _decode(image, path)
    except FileNotFoundError:
        raise DataError(f"the mask {path} is missing") from None
    except UnidentifiedImageError:
        if not content.startswith(images.TIFF_STARTS):
            raise DataError(f"the mask {path} is not an image of {', '.join(_EXACT)}; {_EXPECTED}") from None
        stored = StoredMask(_ids(_read_tiff(content, path), path), "gray")
    except DataError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # of damaged files
        raise DataError(f"the mask {path} cannot be read: {error}") from None
    is_wide = stored.is_gray and stored.values.max() > VOID
    if stored.kind in ("gray", "color") and not is_wide and _is_soft(_levels(stored)):
        raise DataError(
            f"the mask {path} has many values in thin edges, as antialiasing or JPEG makes; pass "
            "--threshold 128 to read it as one object, --binary to take all its values, or save labels "
            "as a palette PNG"
        )
    return stored


Listings = dict[Path, dict[str, list[Path]]]
"""Mask files of folders by their names without suffix."""


def find_mask(folder: Path, stem: str, template: str = "{stem}", listings: Listings | None = None) -> Path:
    """Return the mask of an image by its name without suffix.

    `template` is the name of the mask without suffix, such as `{stem}_mask`, or `OLD=NEW` to replace a part
    of the stem. `listings` keeps the files of folders for further calls.

    Raises:
        DataError: There is none, or several; the message has the nearest names.
    """
    old, is_replaced, new = template.partition("=")
    inner, _, base = stem.rpartition("/")
    name = base.replace(old, new) if is_replaced else template.replace("{stem}", base)
    listings = {} if listings is None else listings
    files = listings.setdefault(folder / inner, {}) or _by_stem(folder / inner)
    listings[folder / inner] = files
    found = files.get(name, [])
    exact = [file for file in found if not file.suffix.lower().startswith(_LOSSY_SUFFIXES)] or found
    if len(exact) == 1:
        return exact[0]
    if exact:
        raise DataError(f"{folder} has {' and '.join(f.name for f in exact)} for {stem}; keep one of them")
    near = [file.name for each in get_close_matches(name, files, 3, 0) for file in files[each]][:3]
    there = ", ".join(near) or "no image"
    raise DataError(
        f"the mask {folder / inner / name}.png is missing; nearest names there: {there}. Pass --mask-name, "
        "such as '{stem}_mask'"
    )


def _by_stem(folder: Path) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.suffix.lower() in (*_SUFFIXES, *_LOSSY_SUFFIXES):
            files.setdefault(file.stem, []).append(file)
    return files


def _check_encoding(image: Image.Image, content: bytes, path: Path) -> None:
    """Refuse encodings that change values, and several pages."""
    tags: Any = getattr(image, "tag_v2", {})
    kind = image.format or ""
    is_lossy = tags.get(_COMPRESSION) in _JPEGS or (kind == "WEBP" and b"VP8 " in content[12:64])
    if is_lossy or kind not in _EXACT:
        raise DataError(
            f"the mask {path} is encoded as {'a lossy ' * (kind in _EXACT)}{kind}, which changes labels; "
            f"{_EXPECTED}, or pass --threshold 128 to read one object"
        )
    if (pages := getattr(image, "n_frames", 1)) > 1:
        raise DataError(f"the mask {path} has {pages} pages; expected one, with a label for each object")
    if kind == "TIFF" and tags.get(_PHOTOMETRIC) == 0:
        raise DataError(f"the mask {path} has white as 0, so its values may be inverted; {_EXPECTED}")
    if kind == "PNG" and not _chunks(content):
        raise DataError(f"the mask {path} cannot be read: its data are damaged")
    if kind == "PNG" and content[24] == 16 and content[25] in (2, 4, 6):
        raise DataError(f"the mask {path} has colors of 16 bits; {_EXPECTED}")


def _chunks(png: bytes) -> dict[bytes, bytearray]:
    """Return the content of the chunks of a PNG by type.

    Nothing if a checksum, which Pillow ignores, is wrong, or if the end is missing.
    """
    chunks, at = defaultdict[bytes, bytearray](bytearray), 8
    while at + 12 <= len(png):
        end = at + 12 + int.from_bytes(png[at : at + 4], "big")
        if zlib.crc32(png[at + 4 : end - 4]) != int.from_bytes(png[end - 4 : end], "big"):
            return {}
        chunks[png[at + 4 : at + 8]] += png[at + 8 : end - 4]
        if b"IEND" in chunks:
            return chunks
        at = end
    return {}


def _decode_plain_png(content: bytes) -> StoredMask | None:
    """Decode a PNG of one byte per pixel without filters, as most masks are written; None for others.

    ISA-L inflates more than twice as fast as zlib.
    """
    if not content.startswith(_PNG_START) or content[24] != 8 or any(content[26:29]):
        return None
    chunks, is_palette = _chunks(content), content[25] == 3
    if content[25] not in (0, 3) or is_palette != (b"PLTE" in chunks):
        return None
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    stream, size = isal_zlib.decompressobj(), height * (width + 1)
    try:
        rows = stream.decompress(chunks[b"IDAT"], size + 1)
    except Exception as error:  # isal declares no exception type
        raise OSError(f"its data are damaged ({error})") from error
    pixels = np.frombuffer(rows, np.uint8)
    if not stream.eof or pixels.size != size or pixels[:: width + 1].any():  # filter of each row
        return None
    values = pixels.reshape(height, width + 1)[:, 1:]
    if is_palette:
        return StoredMask(values, "palette", _palette_colors(chunks[b"PLTE"]))
    return StoredMask(values, "gray")


def _palette_colors(palette: Sequence[int]) -> tuple[int, ...]:
    """Return the color 0xRRGGBB of each index from red, green and blue of each; see `StoredMask`."""
    colors = _pack(np.array(palette, np.int64).reshape(-1, 3)).tolist()
    colors += [0] * (VOID + 1 - len(colors))
    colors[VOID] = colors[VOID] or -1  # without a color of its own it is void, not black
    return tuple(colors)


def _decode(image: Image.Image, path: Path) -> StoredMask:
    if image.mode == "1":
        return StoredMask(np.asarray(image).astype(np.uint8), "bits")
    if image.mode in ("P", "PA") and image.format != "GIF":  # GIF may renumber its palette
        values = np.asarray(image if image.mode == "P" else image.getchannel("P"))
        return StoredMask(values, "palette", _palette_colors(image.getpalette("RGB") or [0, 0, 0]))
    values = _array(image, path)
    if values.ndim == 2:
        return StoredMask(_ids(values, path), "gray")
    return StoredMask(_pack(values), "color")


def _array(image: Image.Image, path: Path) -> NDArray[Any]:
    """Return values [height, width], or colors [height, width, 3]; transparent pixels are 0."""
    if image.mode in ("P", "PA", "CMYK", "YCbCr"):
        image = image.convert("RGBA")
    values = np.asarray(image)
    if values.ndim == 3 and values.shape[-1] in (2, 4):
        alpha = values[..., -1:]
        values = values[..., :-1] * (alpha > 0)
        if not values.any() and alpha.min() < alpha.max():
            raise DataError(
                f"the mask {path} is black, with an object in its alpha channel; save that as a mask"
            )
    return values[..., 0] if values.ndim == 3 and values.shape[-1] == 1 else values


def _ids(values: NDArray[Any], path: Path) -> NDArray[Any]:
    if values.dtype == np.uint8:
        return values
    if values.ndim != 2 or (values.dtype.kind == "f" and (values != values.round()).any()):
        raise DataError(f"the mask {path} has values that are no ids; {_EXPECTED}")
    return values.astype(np.int64)


def _read_tiff(content: bytes, path: Path) -> NDArray[Any]:
    """Decode kinds of numbers that Pillow lacks."""
    import tifffile

    try:
        with tifffile.TiffFile(io.BytesIO(content)) as file:
            return np.asarray(file.series[0].asarray())
    except Exception as error:  # tifffile raises errors of any kind on damaged files
        raise DataError(f"the mask {path} cannot be read: {error}") from None


def _pack(colors: NDArray[Any]) -> NDArray[np.int64]:
    """Combine red, green and blue [..., 3] to one number."""
    wide = colors.astype(np.int64)
    return wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]


def _brightest(values: NDArray[Any]) -> NDArray[Any]:
    return values if values.ndim == 2 else values.max(axis=-1)


def _levels(stored: StoredMask) -> NDArray[Any]:
    """Return gray values, or the brightest part of each color: [height, width]."""
    if stored.is_gray:
        return stored.values
    parts = (stored.values >> shift & 255 for shift in (16, 8, 0))
    return np.maximum.reduce(list(parts)).astype(np.uint8)


def count_values(values: NDArray[Any]) -> dict[int, int]:
    """Count the pixels of each value."""
    if values.dtype == np.uint8:
        counts = cv2.calcHist([values], [0], None, [256], [0, 256]).ravel()
        return {int(value): int(counts[value]) for value in np.flatnonzero(counts)}
    found, counts = np.unique(values, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _is_soft(values: NDArray[Any]) -> bool:
    """Return whether most values, or all but 0 and 255, are thin edges or scattered noise.

    A value with an area of 3 x 3 pixels is an object. Objects below that size are at one place, not between
    others.
    """
    present: Sequence[int] = list(count_values(values))
    if len(present) < 7 and (len(present) < 3 or present[-1] != VOID):
        return False
    values = values.astype(np.float32)
    low, high = (change(values, np.ones((3, 3), np.uint8)) for change in (cv2.erode, cv2.dilate))
    thin = np.setdiff1d(present, values[low == high])
    is_binary = VOID not in thin and set(present) - set(thin) <= {0, VOID}
    if not len(thin) or (not is_binary and (len(present) < 7 or len(thin) <= len(present) / 2)):
        return False
    if ((low < values) & (values < high))[np.isin(values, thin)].mean() > 0.5:
        return True
    pieces = [cv2.connectedComponents((values == value).astype(np.uint8))[0] - 1 for value in thin]
    return sum(pieces) > 2 * len(thin)  # noise of JPEG, unlike small objects
