"""Resize an image to the input of a model."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dino_model.models.configs import Resize


def fed_size(height: int, width: int, size: int, resize: Resize, patch_size: int) -> tuple[int, int]:
    """Return the height and width that an image is resized to; see `AttentionPredictor` for `resize`."""
    short, long = sorted((height, width))
    sides: tuple[float, float]
    match resize:
        case "davis":
            if size < 64:
                raise ValueError(
                    f"size is {size}, but resize='davis' needs at least 64: the long side is a multiple of 64"
                )
            cut = size * long // short // 64 * 64
            return (cut, size) if height > width else (size, cut)
        case "squash":
            sides = (size, size)
        case "short-side":
            sides = (height * size / short, width * size / short)
        case "native":
            sides = (height, width)
    return _whole_patches(sides[0], patch_size), _whole_patches(sides[1], patch_size)


def sample(image: np.ndarray, height: int, width: int, resize: Resize) -> np.ndarray:
    """Resample an image: uint8 [any height, any width, channels] -> uint8 [height, width, channels].

    Bilinear. `davis` samples without antialiasing, as the official video segmentation; the others with it,
    as the official visualization.
    """
    if resize == "davis":
        resized = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
        return resized.reshape(height, width, image.shape[2])  # OpenCV drops a single channel's axis
    channels = (Image.fromarray(np.ascontiguousarray(image[..., index])) for index in range(image.shape[2]))
    planes = [np.asarray(channel.resize((width, height), Image.Resampling.BILINEAR)) for channel in channels]
    return np.stack(planes, axis=-1)


def resample_nearest(maps: NDArray[Any], size: Sequence[int]) -> NDArray[Any]:
    """Take the value under the center of each cell of another grid: [..., rows, columns] -> [..., *size]."""
    rows, columns = (
        (2 * np.arange(count) + 1) * cells // (2 * count)
        for count, cells in zip(size, maps.shape[-2:], strict=True)
    )
    return maps.take(columns, axis=-1).take(rows, axis=-2)


def _whole_patches(pixels: float, patch_size: int) -> int:
    """The nearest multiple of the patch size, at least one patch; halves go up."""
    return max(1, int(pixels / patch_size + 0.5)) * patch_size
