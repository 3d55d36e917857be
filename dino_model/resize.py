"""How a picture becomes a model's input: to which size, and sampled in which way."""

import cv2
import numpy as np
from PIL import Image

from dino_model.choices import Resize as Resize


def fed_size(height: int, width: int, size: int, resize: Resize, patch_size: int) -> tuple[int, int]:
    """Height and width, in pixels, that a picture is resized to; the ways are told in
    `dino_model.predictor.AttentionPredictor`.

    Raises:
        ValueError: `davis` with a size below 64.
    """
    short, long = sorted((height, width))
    if resize == "davis":
        if size < 64:
            raise ValueError(
                f"size is {size}, but resize='davis' cuts the long side to multiples of 64: choose 64 or more"
            )
        cut = size * long // short // 64 * 64
        return (cut, size) if height > width else (size, cut)
    if resize == "squash":
        return _whole_patches(size, patch_size), _whole_patches(size, patch_size)
    scale = size / short if resize == "short-side" else 1.0
    return _whole_patches(height * scale, patch_size), _whole_patches(width * scale, patch_size)


def _whole_patches(pixels: float, patch_size: int) -> int:
    """The nearest multiple of the patch size, at least one patch; halves go up."""
    return max(1, int(pixels / patch_size + 0.5)) * patch_size


def sample(image: np.ndarray, height: int, width: int, resize: Resize) -> np.ndarray:
    """A picture uint8 [any height, any width, channels] at another size: uint8 [height, width, channels].

    `davis` samples as the official video segmentation does, without antialiasing; the others with it.
    """
    return (_sample_opencv if resize == "davis" else _sample_antialiased)(image, height, width)


def _sample_antialiased(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear with antialiasing, as the official visualisation samples; any number of channels."""
    channels = (Image.fromarray(np.ascontiguousarray(image[..., index])) for index in range(image.shape[2]))
    resized = [np.asarray(channel.resize((width, height), Image.Resampling.BILINEAR)) for channel in channels]
    return np.stack(resized, axis=-1)


def _sample_opencv(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear without antialiasing, as the official video segmentation samples."""
    resized = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    return resized.reshape(height, width, image.shape[2])  # OpenCV drops a single channel's axis
