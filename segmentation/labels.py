"""Labels per pixel as in mask files: 0 is background, 255 void, other values are objects or classes."""

from operator import add
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dino_model.runtime.files import replace_file

Labels = NDArray[np.uint8]
"""Labels of pixels: [height, width]."""

VOID = 255
"""Label of unannotated pixels."""


class DataError(ValueError):
    """A mask, video, or file of a data set that cannot be used. The message is one sentence."""


def check_size(name: str, size: tuple[int, ...], other: str, expected: tuple[int, ...]) -> None:
    """Raise DataError if the image or mask `name` has another height and width than `other`."""
    if size[:2] != expected[:2]:
        sizes = f"{name} is {size[1]}x{size[0]} pixels, {other} {expected[1]}x{expected[0]}"
        turned = ", turned upright as EXIF says, which masks are not" * (size[:2] == expected[1::-1])
        raise DataError(f"{sizes}{turned}; they must be of one size")


def object_ids(labels: Labels) -> tuple[int, ...]:
    """Return the labels in use in ascending order, without background (0) and void (255)."""
    return tuple(int(label) for label in np.unique(labels) if label not in (0, VOID))


def window(margin: int, *labels: Labels) -> tuple[slice, slice]:
    """Return rows and columns that hold all labels but 0 of masks, and `margin` pixels around them."""
    x, y, widths, heights = zip(*map(cv2.boundingRect, labels), strict=True)
    rows = slice(max(min(y) - margin, 0), max(map(add, y, heights)) + margin)
    return rows, slice(max(min(x) - margin, 0), max(map(add, x, widths)) + margin)


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


def write_mask_png(path: Path, labels: Labels, colors: NDArray[np.uint8] | None = None) -> None:
    """Write labels [height, width] as a palette PNG that keeps their values, whole or not at all.

    `colors` [256, 3] is its palette; default `palette`. Raises ValueError if `labels` are of another type.
    """
    if labels.dtype != np.uint8 or labels.ndim != 2:
        raise ValueError(f"labels are {labels.dtype} {labels.shape}; expected uint8 [height, width]")
    image = Image.fromarray(labels, mode="P")
    image.putpalette((palette() if colors is None else colors).tobytes())
    with replace_file(path) as temporary:
        image.save(temporary, format="PNG")
