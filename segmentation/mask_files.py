"""Decode mask files: the values that are stored, whatever the suffix of the file."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dino_model.data import images
from segmentation.labels import VOID, DataError

MaskKind = Literal["bits", "gray", "palette", "color"]
Space = Literal["value", "color"]
"""What labels are given to: indices, gray values and ids, or colors 0xRRGGBB."""

NO_COLOR = -1  # of index 255, if the palette gives it none
NO_VALUE = -(1 << 40)  # of a color that is not gray
_EXACT = ("PNG", "TIFF", "BMP", "GIF", "WEBP", "PPM")
_SUFFIXES = (".png", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pbm", ".pnm")
_LOSSY_SUFFIXES = (".jpg", ".jpeg")
_PHOTOMETRIC, _COMPRESSION, _SAMPLE_FORMAT, _NO_DATA = 262, 259, 339, 42113  # tags of TIFF
_SIGNED = 2  # value of _SAMPLE_FORMAT
_LOSSY_COMPRESSIONS = (6, 7, 34892, 50001)  # JPEG and WebP in TIFF
_EXPECTED = "expected a palette or gray PNG of 8 bits whose values are the labels"


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
        no_data: Stored value that its file declares as missing data.
        error: Reason why the file cannot be used, or empty.
    """

    path: Path
    kind: MaskKind = "gray"
    counts: Mapping[int, int] = field(default_factory=dict)
    values: NDArray[Any] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    colors: tuple[int, ...] = ()
    no_data: int | None = None
    error: str = ""

    def keys(self, space: Space) -> dict[int, int]:
        """Return the color, or the index, gray value or id, of each stored value."""
        if self.kind == "color" and space == "value":
            return {color: color & 255 if is_gray(color) else NO_VALUE for color in self.counts}
        if self.kind == "color" or space == "value":
            return {value: value for value in self.counts}
        if self.kind == "palette":
            return {value: self.colors[value] for value in self.counts}
        return {value: value * 0x10101 for value in self.counts}

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
        mask = _decode(path, path.read_bytes(), threshold)
    except FileNotFoundError:
        raise DataError(f"the mask {path} is missing") from None
    except DataError:
        raise
    except Exception as error:  # of damaged files: tifffile raises errors of any kind
        raise DataError(f"the mask {path} cannot be read: {error}") from None
    if threshold is not None:
        brightness = mask.values.max(axis=-1) if mask.values.ndim == 3 else mask.values
        mask = StoredMask(path, values=(brightness >= threshold).astype(np.uint8))
    mask = replace(mask, counts=count_values(mask.values))
    if threshold is None and mask.kind in ("gray", "color") and _is_soft(mask):
        raise DataError(
            f"the mask {path} has many values in thin edges, as antialiasing or JPEG makes; pass "
            "--threshold 128 to read it as one object, --binary to take all its values, or save labels "
            "as a palette PNG"
        )
    return mask


def count_values(values: NDArray[Any]) -> dict[int, int]:
    """Count the pixels of each value."""
    if values.dtype == np.uint8:
        counts = cv2.calcHist([values], [0], None, [256], [0, 256]).ravel()
        return {int(value): int(counts[value]) for value in np.flatnonzero(counts)}
    found, counts = np.unique(values, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


Listings = dict[Path, dict[str, list[Path]]]
"""Files of folders by their names without suffix, for further calls of `find_mask`."""


def find_mask(folder: Path, stem: str, template: str = "{stem}", listings: Listings | None = None) -> Path:
    """Return the mask of an image by its name without suffix.

    `template` is the name of the mask without suffix, such as `{stem}_mask`, or `OLD=NEW` to replace a part
    of the stem.

    Raises:
        DataError: There is none, or several; the message has the nearest names.
    """
    inner, _, base = stem.rpartition("/")
    old, is_replaced, new = template.partition("=")
    name = base.replace(old, new) if is_replaced else template.replace("{stem}", base)
    place, listings = folder / inner, {} if listings is None else listings
    if not place.is_dir():
        raise DataError(f"the folder {place} is missing: masks are in folders as their images")
    if place not in listings:
        listings[place] = {}
        for file in sorted(place.iterdir()):
            if not file.is_dir():
                listings[place].setdefault(file.stem, []).append(file)
    files = listings[place]
    found = files.get(name, [])
    for suffixes in (_SUFFIXES, _LOSSY_SUFFIXES):
        found = [file for file in found if file.suffix.lower() in suffixes] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{folder} has {' and '.join(f.name for f in found)} for {stem}; keep one of them")
    near = [file.name for each in get_close_matches(name, files, 3, 0) for file in files[each]][:3]
    raise DataError(
        f"the mask {place / name}.png is missing; nearest names there: {', '.join(near) or 'none'}."
        " Pass --mask-name, such as '{stem}_mask'"
    )


def _decode(path: Path, content: bytes, threshold: int | None) -> StoredMask:
    """Decode a mask, not counted yet; with a threshold colors are [height, width, 3]."""
    try:
        image = Image.open(io.BytesIO(content), formats=None if threshold is None else images.FORMATS)
    except UnidentifiedImageError:
        if content.startswith(images.TIFF_STARTS):
            import tifffile  # reads kinds of numbers that Pillow lacks

            with tifffile.TiffFile(io.BytesIO(content)) as file:
                page: Any = file.pages[0]
                tag = page.tags.get(_NO_DATA)
                return _gray(path, file.series[0].asarray(), tag.value if tag else None)
        found = f"not an image of {', '.join(_EXACT)}" if content else "empty (0 bytes)"
        raise DataError(f"the mask {path} is {found}; {_EXPECTED}") from None
    with image:
        if threshold is not None and (threshold > 1 or image.mode not in ("P", "PA")):
            return StoredMask(path, values=_array(image, path))
        _check_encoding(image, content, path)
        if image.mode in ("P", "PA") and image.format != "GIF":  # GIF may renumber its palette
            indices = np.asarray(image if image.mode == "P" else image.getchannel("P"))
            colors = _palette_colors(image.getpalette("RGB") or [0, 0, 0])
            return StoredMask(path, "palette", values=indices, colors=colors)
        if image.mode == "1":
            return StoredMask(path, "bits", values=np.asarray(image).astype(np.uint8))
        values, tags = _array(image, path), getattr(image, "tag_v2", {})
        if values.ndim == 3:
            return StoredMask(path, "color", values=_pack(values))
        return _gray(path, values, tags.get(_NO_DATA))


def _gray(path: Path, values: NDArray[Any], no_data: str | None) -> StoredMask:
    """Return a mask of gray values or ids, with the value that a GeoTIFF declares as missing data."""
    if values.dtype != np.uint8:
        if values.ndim != 2 or (values.dtype.kind == "f" and (values != values.round()).any()):
            raise DataError(f"the mask {path} has values that are no ids; {_EXPECTED}")
        values = values.astype(np.int64)
    missing = float(no_data.strip("\0 ")) if no_data else math.nan
    return StoredMask(path, values=values, no_data=int(missing) if math.isfinite(missing) else None)


def _check_encoding(image: Any, content: bytes, path: Path) -> None:
    """Refuse encodings that change values, several pages, and damaged PNGs."""
    tags: Any = getattr(image, "tag_v2", {})
    kind, pages = image.format or "", getattr(image, "n_frames", 1)
    stored = image.tile[0].args if image.tile else ""
    most = stored[-1] if kind == "PPM" and isinstance(stored, tuple) else VOID
    lossy = tags.get(_COMPRESSION) in _LOSSY_COMPRESSIONS or (kind == "WEBP" and b"VP8 " in content[12:64])
    faults = {
        f"is encoded as {kind}, which changes labels": kind not in _EXACT,
        f"is encoded as a lossy {kind}, which changes labels": lossy,
        "has white as 0, so its values may be inverted": kind == "TIFF" and tags.get(_PHOTOMETRIC) == 0,
        "has signed values of 8 bits": _SIGNED in (tags.get(_SAMPLE_FORMAT) or ()) and image.mode == "L",
        f"has {pages} pages": pages > 1,
        "has colors of 16 bits": kind == "PNG" and content[24] == 16 and content[25] in (2, 4, 6),
        "has gray of 2 or 4 bits": stored in ("L;2", "L;4"),
        "has another range than 0 to 255": most not in (VOID, 65535),
    }
    if fault := next((fault for fault, is_found in faults.items() if is_found), None):
        remedy = ", or pass --threshold 128: bright is one object" * fault.endswith("changes labels")
        raise DataError(f"the mask {path} {fault}; {_EXPECTED}{remedy}")
    if kind == "PNG":
        with Image.open(io.BytesIO(content)) as copy:
            copy.verify()  # checksums, which are ignored later


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


def _pack(colors: NDArray[Any]) -> NDArray[np.int64]:
    """Combine red, green and blue [..., 3] to one number."""
    return np.asarray(colors.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1]))


def _is_soft(mask: StoredMask) -> bool:
    """Return whether most values, or all but 0 and 255, are thin edges or scattered noise.

    A value with an area of 3 x 3 pixels is an object. Objects below that size are at one place, not between
    others. Of a color, the brightest part counts.
    """
    values, counts = mask.values, mask.counts
    if mask.kind == "color":
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
