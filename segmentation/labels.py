"""Labels per pixel as in mask files: 0 is background, 255 void, other values are objects or classes."""

import io
import struct
from pathlib import Path

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dino_model.runtime.files import replacing

Labels = NDArray[np.uint8]
"""Labels of pixels: [height, width]."""

_PNG_START = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"
_GRAY, _PALETTE = 0, 3  # color types
_EXPECTED = "expected a palette or 8-bit gray PNG whose values are the labels"

VOID = 255
"""Label of unannotated pixels."""


class DataError(ValueError):
    """A mask, video, or file of a data set that cannot be used. The message is one sentence."""


def check_size(name: str, size: tuple[int, ...], other: str, expected: tuple[int, ...]) -> None:
    """Raise DataError if the image or mask `name` has another height and width than `other`."""
    if size[:2] != expected[:2]:
        sizes = f"{name} is {size[1]}x{size[0]} pixels, {other} {expected[1]}x{expected[0]}"
        raise DataError(f"{sizes}; they must be of one size")


def read_labels(path: Path, *, binary: bool = False) -> Labels:
    """Read a mask file: the palette indices or gray values of a PNG, uint8 [height, width].

    Other formats are refused: JPEG changes the values, and GIF may renumber the palette. With `binary`, every
    label other than 0 becomes object 1.

    Raises:
        DataError: Missing, damaged, no PNG, or in true color.
    """
    try:
        content = path.read_bytes()
        labels = _decode_plain_png(content)
        if labels is None:
            with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
                if image.mode not in ("P", "L", "1"):
                    raise DataError(f"{path} is an image of mode {image.mode}; {_EXPECTED}")
                labels = np.array(image, dtype=np.uint8)
    except FileNotFoundError:
        raise DataError(f"the mask {path} is missing") from None
    except UnidentifiedImageError:
        raise DataError(f"the mask {path} is not a PNG; {_EXPECTED}") from None
    except (OSError, SyntaxError) as error:  # from Pillow, on damaged files
        raise DataError(f"the mask {path} cannot be read: {error}") from None
    return (labels != 0).astype(np.uint8) if binary else labels


def _decode_plain_png(content: bytes) -> Labels | None:
    """Decode a PNG of one byte per pixel without filters, as most masks are written; None for others.

    ISA-L inflates three times faster than zlib, and raises OSError for damage that Pillow does not notice.
    """
    if content[:16] != _PNG_START:
        return None
    width, height, depth, color, *rest = struct.unpack(">IIBBBBB", content[16:29])
    plain = depth == 8 and color in (_GRAY, _PALETTE) and not any(rest)
    if not plain or not 0 < width * height <= (Image.MAX_IMAGE_PIXELS or 0):
        return None
    data, at = [], len(_PNG_START) + 17
    while at + 12 <= len(content):
        size, kind = struct.unpack(">I4s", content[at : at + 8])
        if kind == b"IDAT":
            data.append(content[at + 8 : at + 8 + size])
        at += size + 12
    try:
        rows = isal_zlib.decompress(b"".join(data), bufsize=height * (width + 1))
    except Exception as error:  # isal declares no exception type
        raise OSError(f"its data are damaged ({error})") from error
    if len(rows) != height * (width + 1):
        return None
    pixels = np.frombuffer(rows, np.uint8).reshape(height, width + 1)
    return None if pixels[:, 0].any() else np.ascontiguousarray(pixels[:, 1:])  # filter of each row


def object_ids(labels: Labels) -> tuple[int, ...]:
    """Return the labels in use in ascending order, without background (0) and void (255)."""
    return tuple(int(label) for label in np.unique(labels) if label not in (0, VOID))


def without_void(labels: Labels) -> Labels:
    """Return labels [height, width] in which void (255) is background."""
    return np.where(labels == VOID, 0, labels).astype(np.uint8)


def resize_nearest(labels: Labels, size: tuple[int, int]) -> Labels:
    """Resize labels to (height, width): each pixel takes the label of the nearest center."""
    height, width = size
    return np.asarray(Image.fromarray(labels).resize((width, height), Image.Resampling.NEAREST))


def palette() -> NDArray[np.uint8]:
    """Return the colors of labels 0 to 255 in PASCAL VOC and DAVIS masks: uint8 [256, 3]."""
    labels = np.arange(256)
    colors = np.zeros((256, 3), dtype=np.uint8)
    for group in range(3):
        for channel in range(3):
            bit = (labels >> (3 * group + channel)) & 1
            colors[:, channel] |= (bit << (7 - group)).astype(np.uint8)
    return colors


def read_palette(path: Path) -> NDArray[np.uint8]:
    """Return the colors of labels 0 to 255 in a PNG, uint8 [256, 3]: `palette` if it has none."""
    try:
        with Image.open(path, formats=["PNG"]) as image:
            stored = image.getpalette("RGB") if image.mode == "P" else None
    except (OSError, SyntaxError) as error:
        raise DataError(f"the mask {path} cannot be read: {error}") from None
    colors = palette()
    if stored:
        colors[: len(stored) // 3] = np.array(stored, dtype=np.uint8).reshape(-1, 3)
    return colors


def write_mask_png(path: Path, labels: Labels, colors: NDArray[np.uint8] | None = None) -> None:
    """Write labels [height, width] as a palette PNG that keeps their values, whole or not at all.

    `colors` [256, 3] is its palette; default `palette`. Raises ValueError if `labels` are of another type.
    """
    if labels.dtype != np.uint8 or labels.ndim != 2:
        raise ValueError(f"labels are {labels.dtype} {labels.shape}; expected uint8 [height, width]")
    image = Image.fromarray(labels, mode="P")
    image.putpalette((palette() if colors is None else colors).tobytes())
    with replacing(path) as temporary:
        image.save(temporary, format="PNG")
