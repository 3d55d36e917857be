"""Images and labels as files in memory."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segmentation.labels import Labels, palette


def png(picture: NDArray[np.uint8]) -> bytes:
    """Encode an image, RGB [height, width, 3] or gray [height, width], as PNG."""
    return _saved(Image.fromarray(picture), "PNG")


def labels_png(labels: Labels) -> bytes:
    """Encode labels [height, width] as a palette PNG, which keeps their values, as DAVIS and VOC do."""
    image = Image.fromarray(labels, mode="P")
    image.putpalette(palette().tobytes())
    return _saved(image, "PNG")


def jpeg(picture: NDArray[np.uint8], quality: int = 90, **options: Any) -> bytes:
    """Encode an image as JPEG; options as Pillow's."""
    return _saved(Image.fromarray(picture), "JPEG", quality=quality, **options)


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
