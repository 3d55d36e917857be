"""Decode mask files: the values that are stored, whatever the suffix of the file."""

import io
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dino_model.data import images
from segmentation.labels import VOID, DataError, window

MaskKind = Literal["bits", "gray", "palette", "color"]
Space = Literal["value", "color"]
"""What labels are given to: indices, gray values and ids, or colors 0xRRGGBB."""
Decoded = tuple[MaskKind, NDArray[Any], tuple[int, ...]]

NO_COLOR = -1  # of index 255, if the palette gives it none
NO_VALUE = -(1 << 40)  # of a color that is not gray
_PNG_START = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"
_PLAIN = (b"\x08\0\0\0\0", b"\x08\x03\0\0\0")  # gray or palette, one byte per pixel, not interlaced
_EXACT = ("PNG", "TIFF", "BMP", "GIF", "WEBP", "PPM")
_SUFFIXES = (".png", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pbm", ".pnm")
_LOSSY_SUFFIXES = (".jpg", ".jpeg")
_PHOTOMETRIC, _COMPRESSION, _SAMPLE_FORMAT, _NO_DATA = 262, 259, 339, 42113  # tags of TIFF
_SIGNED = 2  # value of _SAMPLE_FORMAT
_LOSSY_COMPRESSIONS = (6, 7, 34892, 50001)  # JPEG and WebP in TIFF
_EXPECTED = "expected a palette or gray PNG whose values are the labels"


def is_gray(color: int) -> bool:
    """Return whether a color 0xRRGGBB has equal red, green and blue."""
    return color == (color & 255) * 0x10101


@dataclass(frozen=True)
class StoredMask:
    """A decoded mask, or a look at it: without its pixels.

    Attributes:
        path: Its file, or its image in a COCO file.
        kind: Bits (0 and 1), gray values or ids, palette indices, or colors.
        counts: Pixels of each stored value.
        values: The stored values [height, width]; of colors 0xRRGGBB.
        colors: Of a palette: the color of each index 0 to 255, `NO_COLOR` for 255 without a color.
        no_data: Stored value that its file declares as missing data: void, unless it is the background.
        error: Reason why the file cannot be used, or empty.
    """

    path: Path
    kind: MaskKind = "gray"
    counts: Mapping[int, int] = field(default_factory=dict)
    values: NDArray[Any] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    colors: tuple[int, ...] = ()
    no_data: int | None = None
    error: str = ""

    def keys(self, space: Space, white: int = 1) -> dict[int, int]:
        """Return the color, or the index, gray value or id, of each stored value; 1 of bits is `white`."""
        match self.kind:
            case "palette":
                if space == "color":
                    return {value: self.colors[value] for value in self.counts}
                scale = 1
            case "color":
                if space == "value":
                    return {color: color & 255 if is_gray(color) else NO_VALUE for color in self.counts}
                scale = 1
            case "bits":
                scale = 0xFFFFFF if space == "color" else white
            case "gray":
                scale = 0x10101 if space == "color" else 1
        return {value: value * scale for value in self.counts}

    @property
    def is_colored(self) -> bool:
        """Whether it has no palette, and colors that are not gray."""
        return self.kind == "color" and not all(map(is_gray, self.counts))

    def own_colors(self) -> dict[int, int]:
        """Return the color of each index in use that a palette gives a color: neither black nor its gray."""
        pairs = self.keys("color").items() if self.kind == "palette" else ()
        return {
            value: color
            for value, color in pairs
            if value not in (0, VOID) and color not in (0, value * 0x10101)
        }


def read_mask(path: Path, threshold: int | None = None) -> StoredMask:
    """Decode a mask. With a threshold any image is read, and brighter values than it, or equal ones, are 1.

    The brightness is the largest of red, green and blue. Threshold 1 is for the indices of palettes.

    Raises:
        DataError: Missing, damaged, lossy, antialiased, of several pages, or of values that are no ids.
    """
    try:
        kind, values, colors = _decode(content := path.read_bytes(), path, threshold)
        no_data = _no_data(content, path) if threshold is None else None
    except FileNotFoundError:
        raise DataError(f"the mask {path} is missing") from None
    except DataError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # of damaged files
        raise DataError(f"the mask {path} cannot be read: {error}") from None
    if threshold is not None:
        kind, colors = "gray", ()
        values = ((values.max(axis=-1) if values.ndim == 3 else values) >= threshold).astype(np.uint8)
    counts = count_values(values)
    if threshold is None and kind in ("gray", "color") and _is_soft(kind, values, counts):
        raise DataError(
            f"the mask {path} has many values in thin edges, as antialiasing or JPEG makes; pass "
            "--threshold 128 to read it as one object, --binary to take all its values, or save labels "
            "as a palette PNG"
        )
    return StoredMask(path, kind, counts, values, colors, no_data)


def count_values(values: NDArray[Any]) -> dict[int, int]:
    """Count the pixels of each value."""
    if values.dtype == np.uint8:
        part = values[window(1, values)]
        counts = cv2.calcHist([part], [0], None, [256], [0, 256]).ravel().astype(np.int64)
        counts[0] += values.size - part.size
        return {int(value): int(counts[value]) for value in np.flatnonzero(counts)}
    found, counts = np.unique(values, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


Listings = dict[Path, dict[str, list[Path]]]
"""Files of folders by their names without suffix."""


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
    if inner and not (folder / inner).is_dir():
        raise DataError(f"the folder {folder / inner} is missing: masks are in folders as their images")
    listings = {} if listings is None else listings
    if folder / inner not in listings:
        listings[folder / inner] = {}
        for file in sorted((folder / inner).iterdir()) if folder.is_dir() else ():
            if not file.is_dir():
                listings[folder / inner].setdefault(file.stem, []).append(file)
    files = listings[folder / inner]
    found = list(files[name]) if name in files else []
    for suffixes in (_SUFFIXES, _LOSSY_SUFFIXES):
        found = [file for file in found if file.suffix.lower() in suffixes] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{folder} has {' and '.join(f.name for f in found)} for {stem}; keep one of them")
    near = [file.name for each in get_close_matches(name, files, 3, 0) for file in files[each]][:3]
    raise DataError(
        f"the mask {folder / inner / name}.png is missing; nearest names there: {', '.join(near) or 'none'}."
        " Pass --mask-name, such as '{stem}_mask'"
    )


def _decode(content: bytes, path: Path, threshold: int | None) -> Decoded:
    if threshold is None and (plain := _decode_plain_png(content)):
        return plain
    try:
        image = Image.open(io.BytesIO(content), formats=None if threshold is None else images.FORMATS)
    except UnidentifiedImageError:
        if content.startswith(images.TIFF_STARTS):
            return "gray", _ids(_read_tiff(content, path, lambda file: file.series[0].asarray()), path), ()
        if not content:
            raise DataError(f"the mask {path} is empty (0 bytes)") from None
        raise DataError(
            f"the mask {path} is not an image of {', '.join(_EXACT)}; save its labels as a gray PNG, such as "
            f"by Image.fromarray(labels).save('{path.stem}.png')"
        ) from None
    with image:
        if threshold is not None and (threshold > 1 or image.mode not in ("P", "PA")):
            return "gray", _array(image, path), ()
        _check_encoding(image, content, path)
        if image.mode == "1":
            return "bits", np.asarray(image).astype(np.uint8), ()
        if image.mode in ("P", "PA") and image.format != "GIF":  # GIF may renumber its palette
            indices = np.asarray(image if image.mode == "P" else image.getchannel("P"))
            return "palette", indices, _palette_colors(image.getpalette("RGB") or [0, 0, 0])
        share = _stretch(image)
        values = _array(image, path)
        if values.ndim == 2:
            return "gray", _ids(values if share == 1 else np.rint(values * share), path), ()
        if share != 1:
            raise DataError(f"the mask {path} has colors of another range than 0 to 255; {_EXPECTED}")
        return "color", _pack(values), ()


def _stretch(image: Any) -> float:
    """Return stored value / decoded value: Pillow stretches gray of 2 and 4 bits and other ranges of PPM."""
    decoder, _, _, details = image.tile[0] if image.tile else ("", None, 0, "")
    mode, *more = details if isinstance(details, tuple) else (details,)
    if decoder in ("ppm", "ppm_plain"):
        return more[-1] / (65535 if image.mode == "I" else 255)
    return {"L;2": 3 / 255, "L;4": 15 / 255}.get(mode, 1)


def _check_encoding(image: Image.Image, content: bytes, path: Path) -> None:
    """Refuse encodings that change values, and several pages."""
    tags: Any = getattr(image, "tag_v2", {})
    kind, pages = image.format or "", getattr(image, "n_frames", 1)
    if kind not in _EXACT:
        fault = f"is encoded as {kind}, which changes labels"
    elif tags.get(_COMPRESSION) in _LOSSY_COMPRESSIONS or (kind == "WEBP" and b"VP8 " in content[12:64]):
        fault = f"is encoded as a lossy {kind}, which changes labels"
    elif kind == "TIFF" and tags.get(_PHOTOMETRIC) == 0:
        raise DataError(f"the mask {path} has white as 0, so its values may be inverted; {_EXPECTED}")
    elif kind == "TIFF" and _SIGNED in tags.get(_SAMPLE_FORMAT, ()) and image.mode == "L":
        raise DataError(f"the mask {path} has signed values of 8 bits; {_EXPECTED}")
    elif pages > 1:
        raise DataError(f"the mask {path} has {pages} pages; expected one, with a label for each object")
    elif kind == "PNG" and not _chunks(content):
        raise DataError(f"the mask {path} cannot be read: its data are damaged")
    elif kind == "PNG" and content[24] == 16 and content[25] in (2, 4, 6):
        raise DataError(f"the mask {path} has colors of 16 bits; {_EXPECTED}")
    else:
        return
    raise DataError(f"the mask {path} {fault}; {_EXPECTED}, or pass --threshold 128: bright is one object")


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


def _decode_plain_png(content: bytes) -> Decoded | None:
    """Decode a PNG of one byte per pixel without filters, as most masks are written; None for others.

    ISA-L inflates more than twice as fast as zlib.
    """
    if not content.startswith(_PNG_START) or content[24:29] not in _PLAIN:
        return None
    chunks, is_palette = _chunks(content), content[25] == 3
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    is_usual = 0 < width * height <= (Image.MAX_IMAGE_PIXELS or math.inf) and b"acTL" not in chunks
    if not chunks or not is_usual or is_palette != (b"PLTE" in chunks):
        return None
    stream, size = isal_zlib.decompressobj(), height * (width + 1)
    try:
        rows = stream.decompress(chunks[b"IDAT"], size + 1)
    except Exception as error:  # isal declares no exception type
        raise OSError(f"its data are damaged ({error})") from error
    pixels = np.frombuffer(rows, np.uint8)
    if not stream.eof or pixels.size != size or pixels[:: width + 1].any():  # filter of each row
        return None
    values = pixels.reshape(height, width + 1)[:, 1:]
    return ("palette", values, _palette_colors(chunks[b"PLTE"])) if is_palette else ("gray", values, ())


def _palette_colors(palette: Sequence[int]) -> tuple[int, ...]:
    """Return the color of each index from red, green and blue of each; see `StoredMask`."""
    colors = _pack(np.array(palette, np.int64).reshape(-1, 3)).tolist()
    colors += [0] * (VOID + 1 - len(colors))
    colors[VOID] = colors[VOID] or NO_COLOR  # without a color of its own it is void, not black
    return tuple(colors)


def _array(image: Image.Image, path: Path) -> NDArray[Any]:
    """Return values [height, width], or colors [height, width, 3]; transparent pixels are 0."""
    if image.mode in ("P", "PA", "CMYK", "YCbCr"):
        image = image.convert("RGBA")
    elif image.mode == "1":
        image = image.convert("L")
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


def _no_data(content: bytes, path: Path) -> int | None:
    """Return the whole number that a GeoTIFF declares as missing data; None without one."""
    if not content.startswith(images.TIFF_STARTS):
        return None
    tag = _read_tiff(content, path, lambda file: file.pages[0].tags.get(_NO_DATA))
    value = float(tag.value) if tag else math.nan
    return int(value) if value.is_integer() else None


def _read_tiff(content: bytes, path: Path, read: Callable[[Any], Any]) -> Any:
    """Read of a TIFF what Pillow lacks: kinds of numbers, and tags."""
    import tifffile

    try:
        with tifffile.TiffFile(io.BytesIO(content)) as file:
            return read(file)
    except Exception as error:  # tifffile raises errors of any kind on damaged files
        raise DataError(f"the mask {path} cannot be read: {error}") from None


def _pack(colors: NDArray[Any]) -> NDArray[np.int64]:
    """Combine red, green and blue [..., 3] to one number."""
    return np.asarray(colors.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1]))


def _is_soft(kind: MaskKind, values: NDArray[Any], counts: Mapping[int, int]) -> bool:
    """Return whether most values, or all but 0 and 255, are thin edges or scattered noise.

    A value with an area of 3 x 3 pixels is an object. Objects below that size are at one place, not between
    others. Of a color, the brightest part counts.
    """
    if kind == "color":
        values = np.maximum.reduce([values >> shift & 255 for shift in (16, 8, 0)]).astype(np.uint8)
        counts = count_values(values)
    present = sorted(counts)
    if present[-1] > VOID or (len(present) < 7 and (len(present) < 3 or present[-1] != VOID)):
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
