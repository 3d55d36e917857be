"""Labels per pixel, as mask files hold them: 0 is background, 255 void, anything else an object or class."""

import io
import struct
from pathlib import Path

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dino_model.files import replacing

Labels = NDArray[np.uint8]
"""One label per pixel: [height, width]."""

_PNG_BEGINS = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"
_GREY, _PALETTE = 0, 3  # colour types

VOID = 255
"""Label of pixels that were left unannotated, or belong to nothing."""


class LabelError(ValueError):
    """A mask file that cannot be used. The message is one sentence for people."""


def read_labels(path: Path, *, binary: bool = False) -> Labels:
    """Labels of a mask file: the palette indices of a PNG, or its grey values: uint8 [height, width].

    Args:
        path: a PNG of 8 bits or fewer.
        binary: make every label but 0 object 1.

    Raises:
        LabelError: missing, unreadable or in true colour, whose colours are no labels.
    """
    try:
        content = path.read_bytes()
        if (labels := _plain_labels(content)) is not None:
            return (labels != 0).astype(np.uint8) if binary else labels
        with Image.open(io.BytesIO(content)) as picture:
            if picture.mode not in ("P", "L", "1"):
                raise LabelError(
                    f"{path} is a picture of mode {picture.mode}; expected a palette or 8-bit grey PNG "
                    "whose values are the labels"
                )
            labels = np.array(picture, dtype=np.uint8)
    except FileNotFoundError:
        raise LabelError(f"the mask {path} is missing") from None
    except UnidentifiedImageError:
        raise LabelError(f"the mask {path} is no picture, or damaged from its beginning") from None
    except (OSError, SyntaxError) as error:  # what Pillow raises on damaged files
        raise LabelError(f"the mask {path} cannot be read: {error}") from None
    return (labels != 0).astype(np.uint8) if binary else labels


def _plain_labels(content: bytes) -> Labels | None:
    """Labels of a PNG of a byte a pixel and no filter, as most masks are written; None of any other file.

    Nearly all the time that a mask takes is spent on inflating it, which ISA-L does three times faster; and
    it compares checksums, where Pillow would hand out damaged labels.

    Raises:
        OSError: damaged.
    """
    if content[:16] != _PNG_BEGINS:
        return None
    width, height, depth, color, *rest = struct.unpack(">IIBBBBB", content[16:29])
    plain = depth == 8 and color in (_GREY, _PALETTE) and not any(rest)
    if not plain or not 0 < width * height <= (Image.MAX_IMAGE_PIXELS or 0):
        return None
    data, at = [], len(_PNG_BEGINS) + 17
    while at + 12 <= len(content):
        size, kind = struct.unpack(">I4s", content[at : at + 8])
        if kind == b"IDAT":
            data.append(content[at + 8 : at + 8 + size])
        at += size + 12
    try:
        rows = isal_zlib.decompress(b"".join(data), bufsize=height * (width + 1))
    except Exception as error:  # of a kind that isal's stubs do not tell
        raise OSError(f"its data are damaged ({error})") from error
    if len(rows) != height * (width + 1):
        return None
    pixels = np.frombuffer(rows, np.uint8).reshape(height, width + 1)
    return None if pixels[:, 0].any() else np.ascontiguousarray(pixels[:, 1:])  # a filter before each row


def object_ids(labels: Labels) -> tuple[int, ...]:
    """The labels [height, width] in use, in rising order, without background (0) and void (255)."""
    return tuple(int(label) for label in np.unique(labels) if label not in (0, VOID))


def without_void(labels: Labels) -> Labels:
    """The labels [height, width] with void (255) made background."""
    return np.where(labels == VOID, 0, labels).astype(np.uint8)


def resize_nearest(labels: Labels, size: tuple[int, int]) -> Labels:
    """Labels [H, W] at another height and width, each pixel that of the nearest centre; invents no label."""
    height, width = size
    return np.asarray(Image.fromarray(labels).resize((width, height), Image.Resampling.NEAREST))


def palette() -> NDArray[np.uint8]:
    """Colours of the label values 0–255 in PASCAL VOC and DAVIS masks: [256, 3].

    The three lowest bits of a label become the highest bits of red, green and blue, the next three bits the
    second highest, and so on: neighbouring labels get colours far apart.
    """
    labels = np.arange(256)
    colors = np.zeros((256, 3), dtype=np.uint8)
    for group in range(3):
        for channel in range(3):
            bit = (labels >> (3 * group + channel)) & 1
            colors[:, channel] |= (bit << (7 - group)).astype(np.uint8)
    return colors


def mask_png(labels: NDArray[np.uint8]) -> bytes:
    """Labels [height, width] as a palette PNG that keeps their values.

    Raises:
        ValueError: `labels` is no uint8 array of two axes.
    """
    if labels.dtype != np.uint8 or labels.ndim != 2:
        raise ValueError(f"labels are {labels.dtype} {labels.shape}; expected uint8 [height, width]")
    picture = Image.fromarray(labels, mode="P")
    picture.putpalette(palette().tobytes())
    content = io.BytesIO()
    picture.save(content, format="PNG")
    return content.getvalue()


def write_mask_png(path: Path, labels: NDArray[np.uint8]) -> None:
    """Write labels [height, width] as `mask_png`, whole or not at all.

    Raises:
        ValueError: `labels` is no uint8 array of two axes.
    """
    try:
        content = mask_png(labels)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    with replacing(path) as beside:
        beside.write_bytes(content)
