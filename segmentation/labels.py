"""Labels per pixel, as mask files hold them: 0 is background, 255 void, anything else an object or class."""

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dino_model.files import replacing

Labels = NDArray[np.uint8]
"""One label per pixel: [height, width]."""

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
        with Image.open(path) as picture:
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
