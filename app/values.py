"""Values of views, and images as files: without Gradio, for notebooks and servers of any kind."""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dino_model.inference.class_map import files
from dino_model.inference.class_map.layout import ClassMap
from dino_model.inference.class_map.names import GROUPS
from dino_model.inference.predictor import AttentionPredictor
from segmentation import drawing
from segmentation.masks import ImageArray

SCREEN_SIDE = 1600
"""Longer side of images for the screen, in pixels."""


def attention_value(
    predictor: AttentionPredictor,
    image: np.ndarray,
    *,
    size: int | None = 224,
    blocks: Sequence[int] = (-1,),
    name: str = "image",
) -> dict[str, Any]:
    """Encode an image and return the value of an `attention_view` that holds all its arrays.

    Args:
        predictor: Any model with queries, keys and a [CLS] token.
        image: uint8 RGB [height, width, 3].
        size: Short side in pixels; None for the predictor's. A block of the embedded model at 480 has 5 MB.
        blocks: Blocks whose queries and keys are included, counted from 0; negative from the last.
        name: Shown to screen readers and used in file names.

    Raises:
        ValueError: The model has no [CLS] token or its attention needs more than queries and keys.
    """
    sized = predictor if size is None else predictor.at(size)
    sized.set_image(image)
    numbers = [block % sized.blocks for block in blocks]
    arrays = {f"blocks/{block}": np.stack(sized.queries_keys(block)).astype("<f2") for block in numbers}
    return shape_of(sized, (image.shape[0], image.shape[1]), sized.grid) | {
        "token": f"{id(predictor):x}-{sized.size}-{hash(image.tobytes()):x}",
        "name": name,
        "image": data_address("image/jpeg", screen_jpeg(image)),
        "arrays": {key: base64.b64encode(array.tobytes()).decode() for key, array in arrays.items()},
    }


def shape_of(predictor: AttentionPredictor, size: tuple[int, int], grid: tuple[int, int]) -> dict[str, int]:
    """Return the size of an image (height, width), its grid (rows, columns), and heads and blocks."""
    return {
        "width": size[1],
        "height": size[0],
        "rows": grid[0],
        "columns": grid[1],
        "heads": predictor.heads,
        "blocks": predictor.blocks,
        "prefix": predictor.prefix_tokens,
    }


def data_address(kind: str, content: bytes) -> str:
    """Return an address that holds its content, of a media type such as "image/jpeg"."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def class_map_value(drawn: ClassMap, pictures: str | None) -> dict[str, Any]:
    """Return what a class map view draws, without features; `pictures` is the address of the thumbnails."""
    sheet = pictures and {
        "address": pictures,
        "side": files.THUMBNAIL_SIDE,
        "columns": files.THUMBNAIL_COLUMNS,
    }
    groups = [{"name": name, "color": color} for name, color in zip(GROUPS, files.COLORS, strict=True)]
    return files.as_json(drawn) | {"features": None, "groups": groups, "pictures": sheet}


def screen_jpeg(image: ImageArray) -> bytes:
    """Encode an image at the size of a screen as JPEG."""
    scale = SCREEN_SIDE / max(image.shape[:2])
    return jpeg(image if scale >= 1 else drawing.rescale(image, scale))


def jpeg(image: NDArray[np.uint8], quality: int = 90, **options: Any) -> bytes:
    """Encode an image as JPEG; options as Pillow's."""
    return encode_image(Image.fromarray(image), "JPEG", quality=quality, **options)


def encode_image(image: Image.Image, kind: str, **options: Any) -> bytes:
    """Encode an image in a format of Pillow, such as "PNG"; options as Pillow's."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
