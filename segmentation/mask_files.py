"""Mask files: one reader for all commands, of labels, colors and ids.

Palette indices and gray values are labels. Colors, and ids above 255, are numbered.
"""

import io
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dino_model.data import images
from segmentation.labels import VOID, DataError, Labels, object_ids, palette

MaskKind = Literal["labels", "colors", "ids"]

_PNG_START = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"
_GRAY, _PALETTE = 0, 3  # color types
_EXPECTED = "expected a palette or gray PNG whose values are the labels"
_EXACT_FORMATS = ("PNG", "TIFF", "BMP")  # GIF may renumber the palette, JPEG changes the values
VOC_COLORS = tuple(int(value) for value in (palette().astype(np.int64) @ [1 << 16, 1 << 8, 1])[1:])
_VOC_PALETTE = palette().tobytes()
_GRAYS = {value * 0x10101 for value in range(256)}
_WIDE_VOID = 65535  # of ids above 255


class MaskReader:
    """Reads the mask files of one command by one rule: 0 is background, 255 void, others objects or classes.

    Palette indices, gray values and ids of 16 bits are the labels; pixels of alpha 0 are background. Colors,
    and ids above 255, are numbered in ascending order for all files; black or 0 is the background. Colors
    that are all of PASCAL VOC's `palette` keep its labels. A label has one color in the palettes of a folder:
    optimizers of PNG files exchange palette indices.

    Attributes:
        kind: Labels as stored, or numbered colors or ids.
        values: Of each label from 1 on, the color (0xRRGGBB) or id that the files have; empty for labels.
        threshold: Least value of object 1, if masks are read as one object and background.
    """

    def __init__(
        self,
        files: Sequence[Path] = (),
        *,
        threshold: int | None = None,
        kind: MaskKind = "labels",
        values: Sequence[int] = (),
        is_voc: bool = False,
    ) -> None:
        """Look at the first of `files`, and at all of them if it has colors or ids above 255.

        `kind` and `values` repeat an earlier numbering. With `is_voc`, palettes in VOC's colors are VOC's.
        Raises DataError for more than 254 colors or ids.
        """
        self.threshold, self.kind, self.values, self.is_voc = threshold, kind, tuple(values), is_voc
        self._palettes = dict[Path, tuple[str, bytes]]()  # of the first mask of each folder
        self._later_colors = dict[tuple[Path, int], tuple[str, bytes]]()  # of labels that this palette lacks
        if threshold is not None and not 1 <= threshold <= 65535:
            raise DataError(f"--threshold is {threshold}; expected a value of masks from 1 on, such as 128")
        if threshold is None and not self.values:
            self._number(files)

    def read(self, path: Path) -> Labels:
        """Read a mask: uint8 [height, width]; from PNG, TIFF or BMP, with a threshold from any image.

        Raises:
            DataError: Missing, damaged, antialiased, or with a color or id that `values` lacks.
        """
        if self.threshold is not None:
            stored = _load(path, images.FORMATS)
            return (_gray(stored.values) >= self.threshold).astype(np.uint8)
        stored = _load(path, _EXACT_FORMATS, in_color=self.kind == "colors")
        if not stored.is_indexed and _is_soft(_gray(stored.values)):
            raise DataError(
                f"the mask {path} has many values in thin edges, as antialiasing or JPEG makes; pass "
                "--threshold 128 to read it as one object, --binary to take all its values, or save labels "
                "as a palette PNG"
            )
        if self.kind != "labels":
            return self._find(path, _pack(stored.values))
        if stored.values.ndim == 3 and (stored.values != stored.values[..., :1]).any():
            raise DataError(f"the mask {path} is in color, but others are not; expected masks of one kind")
        labels = _gray(stored.values)
        if labels.dtype != np.uint8 and labels.max() > VOID:
            raise DataError(f"the mask {path} has the id {labels.max()}; others have none above {VOID}")
        labels = labels.astype(np.uint8)
        if stored.colors:
            self._check_palette(path, labels, stored.colors)
        return labels

    def describe(self) -> str:
        """Return what each label is in the files, such as `colors of masks: 1 = #ff0000`, or nothing."""
        if not self.values:
            return ""
        if self.values == VOC_COLORS:
            return "colors of masks: PASCAL VOC's palette"
        pairs = (f"{label} = {self.name(label)}" for label in range(1, len(self.values) + 1))
        return f"{self.kind} of masks: {', '.join(pairs)}"

    def name(self, label: int) -> str:
        """Return the color or id of a numbered label."""
        value = self.values[label - 1]
        return f"#{value:06x}" if self.kind == "colors" else f"id {value}"

    def palette(self, folder: Path | None = None) -> NDArray[np.uint8]:
        """Return colors of labels 0 to 255, those of the files read if they have some: uint8 [256, 3].

        The files are those of a folder, or of the first one.
        """
        colors = palette()
        folder = folder or next(iter(self._palettes), Path())
        _, known = self._palettes.get(folder, ("", b""))
        own = np.frombuffer(known, np.uint8).reshape(-1, 3)
        colors[: len(own)] = np.where(own.any(axis=1, keepdims=True), own, colors[: len(own)])
        for (place, label), (_, color) in self._later_colors.items():
            colors[label] = list(color) if place == folder else colors[label]
        if self.kind == "colors":
            packed = np.array(self.values)
            colors[1 : len(packed) + 1] = np.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=-1)
        return colors

    def _number(self, files: Sequence[Path]) -> None:
        """Number the colors or ids of all files that can be read, if the first has some."""
        loaded = (stored for file in files for stored in _try_to_load(file))
        first = next(loaded, None)
        if first is None or (first.values.ndim == 2 and first.values.dtype == np.uint8):
            return
        found = set(np.unique(_pack(first.values)).tolist())
        for stored in loaded:
            found.update(np.unique(_pack(stored.values)).tolist())
        in_color = first.values.ndim == 3
        if found <= (_GRAYS if in_color else set(range(VOID + 1))):
            return
        self.kind = "colors" if in_color else "ids"
        values = sorted(found - ({0} if in_color else {0, _WIDE_VOID}))
        if len(values) >= VOID:
            raise DataError(
                f"the masks have {len(values)} {self.kind}, the first of them {files[0]}; expected at most "
                f"{VOID - 1}. Pass --threshold 128 if they are one object with antialiased edges"
            )
        self.values = VOC_COLORS if in_color and found <= {0, *VOC_COLORS} else tuple(values)

    def _check_palette(self, path: Path, labels: Labels, colors: bytes) -> None:
        """Refuse labels with other colors than in the first mask of the folder, or in VOC's palette."""
        first, known = self._palettes.setdefault(path.parent, (path.name, colors))
        if colors == known and not self.is_voc:
            return
        used = {label: color for label in object_ids(labels) if (color := _color(colors, label))}
        if self.is_voc and {*used.values()} <= {_VOC_PALETTE[at : at + 3] for at in range(0, 768, 3)}:
            first, known = "PASCAL VOC", _VOC_PALETTE
        for label, color in used.items():
            owner, expected = first, _color(known, label)
            if any(color) and not any(expected):  # unused entries are black
                owner, expected = self._later_colors.setdefault((path.parent, label), (path.name, color))
            if any(expected) and color != expected:
                raise DataError(
                    f"{path} has label {label} in #{color.hex()}, {owner} in #{expected.hex()}: a PNG"
                    f" optimizer may have exchanged labels; save it with {owner}'s palette"
                )

    def _find(self, path: Path, packed: NDArray[np.int64]) -> Labels:
        known = np.array([0, *self.values] + [_WIDE_VOID] * (self.kind == "ids"))
        labels = np.array([*range(len(self.values) + 1)] + [VOID] * (self.kind == "ids"), np.uint8)
        order = np.argsort(known)
        places = order[np.searchsorted(known, packed, sorter=order).clip(max=len(known) - 1)]
        if (wrong := packed[known[places] != packed]).size:
            value = f"color #{wrong[0]:06x}" if self.kind == "colors" else f"id {wrong[0]}"
            raise DataError(f"the mask {path} has the {value}, which has no label: {self.describe()[:200]}")
        return labels[places]


def read_labels(path: Path) -> Labels:
    """Read one mask file, see `MaskReader`: uint8 [height, width]; raises DataError."""
    return MaskReader([path]).read(path)


def mask_file(folder: Path, name: str) -> Path:
    """Return the mask of an image by its name without suffix: the file that exists, or else NAME.png."""
    files = [folder / f"{name}{suffix}" for suffix in (".png", ".tif", ".tiff", ".bmp", ".jpg", ".jpeg")]
    return next((file for file in files if file.is_file()), files[0])


class _Stored(NamedTuple):
    values: NDArray[Any]  # labels or ids [height, width], or colors [height, width, 3]
    is_indexed: bool  # palette indices or bits, which are never antialiased
    colors: bytes = b""  # the palette: red, green and blue of each index


def _load(path: Path, formats: tuple[str, ...], *, in_color: bool = False) -> _Stored:
    """Decode a mask; with `in_color` as colors. Raises DataError."""
    try:
        content = path.read_bytes()
        if not in_color and (stored := _decode_plain_png(content)):
            return stored
        if content[:16] == _PNG_START and content[24] == 16 and content[25] != _GRAY:
            raise DataError(f"the mask {path} has colors of 16 bits; {_EXPECTED}")
        with Image.open(io.BytesIO(content), formats=formats) as image:
            if (pages := getattr(image, "n_frames", 1)) > 1:
                raise DataError(
                    f"the mask {path} has {pages} pages; expected one, with a label for each object"
                )
            is_indexed = image.mode in ("P", "PA", "1")
            if in_color or image.mode in ("CMYK", "YCbCr"):
                return _Stored(_opaque(np.asarray(image.convert("RGBA")), path), is_indexed)
            values = np.asarray(image)
            if values.dtype.kind in "if" and ((values < 0) | (values != values.round())).any():
                raise DataError(f"the mask {path} has values that are no ids; {_EXPECTED}")
            if values.dtype != np.uint8:
                values = values.astype(np.uint8 if image.mode == "1" else np.int64)
            values = _opaque(values, path) if values.ndim == 3 else values
            return _Stored(values, is_indexed, bytes(image.getpalette("RGB") or ()))
    except FileNotFoundError:
        raise DataError(f"the mask {path} is missing") from None
    except UnidentifiedImageError:
        hint = ". A JPEG changes labels: --threshold 128 reads it" * content.startswith(b"\xff\xd8\xff")
        raise DataError(
            f"the mask {path} is not an image of {', '.join(formats)}; {_EXPECTED}{hint}"
        ) from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:  # from Pillow, on damaged files
        raise DataError(f"the mask {path} cannot be read: {error}") from None


def _opaque(values: NDArray[np.uint8], path: Path) -> NDArray[np.uint8]:
    """Make transparent pixels [height, width, 2 or 4] background; returns [height, width] or [..., 3]."""
    if values.shape[-1] in (2, 4):
        alpha = values[..., -1:]
        values = values[..., :-1] * (alpha > 0)
        if not values.any() and alpha.min() < alpha.max():
            raise DataError(
                f"the mask {path} is black, with an object in its alpha channel; save that as a mask"
            )
    return values[..., 0] if values.shape[-1] == 1 else values


def _try_to_load(file: Path) -> Iterator[_Stored]:
    with suppress(DataError):  # `read` raises it again
        yield _load(file, _EXACT_FORMATS)


def _pack(values: NDArray[Any]) -> NDArray[np.int64]:
    """Combine red, green and blue to one number per pixel; ids stay."""
    wide = values.astype(np.int64)
    return wide if wide.ndim == 2 else wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]


def _color(colors: bytes, label: int) -> bytes:
    """Return the color of a label; empty beyond the palette, and for the gray that a gray mask has."""
    color = colors[3 * label : 3 * label + 3]
    return b"" if color == bytes([label] * 3) else color


def _gray(values: NDArray[Any]) -> NDArray[Any]:
    return values if values.ndim == 2 else values.max(axis=-1)


def _is_soft(values: NDArray[Any]) -> bool:
    """Return whether most values, or all but 0 and 255, are thin edges or scattered noise.

    A value with an area of 3 x 3 pixels is an object. Objects below that size are at one place, not between
    others.
    """
    if values.dtype == np.uint8:
        present = np.flatnonzero(cv2.calcHist([values], [0], None, [256], [0, 256]))
    else:
        present = np.unique(values)
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


def _decode_plain_png(content: bytes) -> _Stored | None:
    """Decode a PNG of one byte per pixel without filters, as most masks are written; None for others.

    ISA-L inflates three times faster than zlib, and raises OSError for damage that Pillow does not notice.
    """
    if content[:16] != _PNG_START:
        return None
    width, height, depth, color, *rest = struct.unpack(">IIBBBBB", content[16:29])
    plain = depth == 8 and color in (_GRAY, _PALETTE) and not any(rest)
    if not plain or not 0 < width * height <= (Image.MAX_IMAGE_PIXELS or 0):
        return None
    data, colors, at = [], b"", len(_PNG_START) + 17
    while at + 12 <= len(content):
        size, kind = struct.unpack(">I4s", content[at : at + 8])
        if kind == b"IDAT":
            data.append(content[at + 8 : at + 8 + size])
        elif kind == b"PLTE":
            colors = content[at + 8 : at + 8 + size]
        at += size + 12
    try:
        rows = isal_zlib.decompress(b"".join(data), bufsize=height * (width + 1))
    except Exception as error:  # isal declares no exception type
        raise OSError(f"its data are damaged ({error})") from error
    if len(rows) != height * (width + 1):
        return None
    pixels = np.frombuffer(rows, np.uint8).reshape(height, width + 1)
    if pixels[:, 0].any():  # filter of each row
        return None
    return _Stored(np.ascontiguousarray(pixels[:, 1:]), color == _PALETTE, colors)
