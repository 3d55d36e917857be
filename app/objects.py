"""Objects in an encoded image by the attention kept, LOST, TokenCut or MaskCut.

Objects are labels, on the patch grid or in pixels: 0 is background, 1 the first object, 2 the second.
"""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.engine import Encoding
from app.errors import ClientValue, LabError
from app.photos import Picture, labels_png, png
from app.view import attention, map_of_head
from segmentation import discovery, drawing
from segmentation.coco import coco_record
from segmentation.discovery import Discovery
from segmentation.labels import Labels
from segmentation.masks import Mask, enlarge, keep_mass_of_maps

MOST_OBJECTS = 6
COLORS = drawing.head_colors(MOST_OBJECTS + 1)[1:]
"""Colors of objects. The first head's color, that of fur and wood, is left out."""
REFINED_SIDE = 640
"""Longer side, in pixels, at which edges are refined."""

Head = Annotated[str, Field(pattern="^(mean|[0-9]{1,3})$")]
"""The mean of the heads, or the number of a head from 0."""
Mass = Annotated[float, Field(ge=0.01, le=1)]
"""Share of the attention that is kept."""


class Recipe(ClientValue):
    """Method and settings by which objects are found.

    Attributes:
        head, mass: For attention.
        count: For MaskCut: largest number of objects.
        refined: Whether edges follow those of the image.
    """

    method: Literal["attention", "lost", "tokencut", "maskcut"] = "attention"
    head: Head = "mean"
    mass: Mass = 0.6
    count: int = Field(default=3, ge=1, le=MOST_OBJECTS)
    refined: bool = False


def find(encoding: Encoding, recipe: Recipe) -> list[Discovery]:
    """Find objects on the patch grid, in the order found, without empty ones."""
    if recipe.method == "attention":
        values = cls_map(encoding, recipe.head)
        row, column = divmod(int(values.argmax()), values.shape[1])
        return [Discovery(keep_mass_of_maps(values, recipe.mass), (row, column))]
    if encoding.grid == (1, 1):
        raise LabError("An image of a single patch cannot be divided: choose a higher resolution.")
    _, keys = encoding.queries_keys(encoding.blocks - 1)
    features = discovery.key_features(keys, encoding.prefix_tokens, encoding.grid)
    return discovery.find(recipe.method, features, recipe.count)


def cls_map(encoding: Encoding, head: str) -> NDArray[np.float32]:
    """Return the attention of [CLS] in the last block by one head, or the mean of all: [rows, columns]."""
    maps = attention(encoding, encoding.queries_keys(encoding.blocks - 1), None)
    return map_of_head(maps, head)


def labels_of(found: list[Discovery], grid: tuple[int, int]) -> Labels:
    """Return the object of each patch, [rows, columns]; where objects overlap, the later one."""
    labels = np.zeros(grid, np.uint8)
    for number, one in enumerate(found, 1):
        labels[one.mask] = number
    return labels


def refine(labels: Labels, picture: Picture, size: tuple[int, int]) -> Labels:
    """Align the edges of labels [rows, columns] with those of the image by the guided filter.

    Args:
        labels: On the patch grid.
        picture: [any height, any width, 3].
        size: Height and width of the result.

    Returns:
        [height, width]. A pixel belongs to the object with the largest share of it, if that is above a half.
    """
    height, width = refined_size(picture)
    small = np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
    radius = max(1, round(max(height / labels.shape[0], width / labels.shape[1])))
    refined, strongest = np.zeros(size, np.uint8), np.full(size, 0.5, np.float32)
    masks = enlarge(masks_of(labels, int(labels.max(initial=0))), (height, width))
    for number, soft in enumerate(discovery.refine_edges(masks, small, radius), 1):
        share = enlarge(soft, size, "bilinear")
        refined[share > strongest] = number
        np.maximum(share, strongest, out=strongest)
    return refined


def refined_size(picture: Picture) -> tuple[int, int]:
    """Return height and width at which edges are refined."""
    height, width = picture.shape[:2]
    scale = min(1.0, REFINED_SIDE / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def in_pixels(labels: Labels, picture: Picture, refined: bool) -> Labels:
    """Enlarge labels [rows, columns] to the size of the image, by nearest or refined: [height, width]."""
    size = (picture.shape[0], picture.shape[1])
    return refine(labels, picture, size) if refined else enlarge(labels, size)


def masks_of(labels: Labels, count: int) -> Mask:
    """Return the masks of the first `count` objects: [count, height, width]."""
    return labels[None] == np.arange(1, count + 1)[:, None, None]


def overlay_png(picture: Picture, labels: Labels) -> bytes:
    """Draw objects [height, width], tinted and outlined, over the image."""
    masks = masks_of(labels, int(labels.max(initial=0)))
    contour = max(2, min(labels.shape) // 200)
    return png(drawing.overlay_masks(picture, masks, colors=COLORS[: len(masks)], contour=contour))


def masks_json(labels: Labels) -> bytes:
    """Write COCO results as `COCO.loadRes` reads them: one record per object of labels [height, width]."""
    masks = masks_of(labels, int(labels.max(initial=0)))
    return json.dumps([coco_record(1, 1, mask) for mask in masks], indent=2).encode()


FILES: Mapping[str, Callable[[Picture, Labels], bytes]] = {
    "labels.png": lambda picture, labels: labels_png(labels),
    "overlay.png": overlay_png,
    "masks.json": lambda picture, labels: masks_json(labels),
}
"""Downloads of objects by name."""
