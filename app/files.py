"""Pictures and labels as files in memory."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segmentation.labels import palette

Picture = NDArray[np.uint8]
"""RGB [height, width, 3], or grey [height, width]."""


def png(picture: Picture) -> bytes:
    """A picture as a PNG file."""
    return _saved(Image.fromarray(picture), "PNG")


def labels_png(labels: NDArray[np.uint8]) -> bytes:
    """Labels [height, width] as a palette PNG, which keeps their numbers: as DAVIS and VOC store masks."""
    image = Image.fromarray(labels, mode="P")
    image.putpalette(palette().tobytes())
    return _saved(image, "PNG")


def jpeg(picture: Picture, quality: int = 90, **options: Any) -> bytes:
    """A picture as a JPEG file; options as Pillow's."""
    return _saved(Image.fromarray(picture), "JPEG", quality=quality, **options)


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
