"""Objects in an encoded image by the methods of `discovery.METHODS`.

Objects are labels, on the patch grid or in pixels: 0 is background, 1 the first object, 2 the second.
"""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field

from app.handlers.attention_maps import attention
from app.limits.errors import ClientValue, LabError
from app.store.engine import Encoding
from app.store.images import labels_png
from segmentation import discovery, drawing, edges
from segmentation.coco import coco_record, fill_results
from segmentation.discovery import Discovery
from segmentation.labels import Labels
from segmentation.masks import ImageArray, Mask, enlarge
from segmentation.video import shrunk

MASS = "a share of the attention from 0.01 to 1"
MOST_OBJECTS = 6
COLORS = drawing.head_colors(MOST_OBJECTS + 1)[1:]
"""Colors of objects. The first head's color, that of fur and wood, is left out."""
REFINED_SIDE = 640
"""Longer side, in pixels, at which edges are refined."""


def _known_method(name: str) -> str:
    discovery.discovery_method(name)
    return name


class ObjectSettings(ClientValue):
    """A method of `discovery.METHODS`, what it needs, and whether edges follow those of the image."""

    method: Annotated[str, AfterValidator(_known_method)] = "attention"
    head: str = Field(
        default="mean", pattern="^(mean|[0-9]{1,3})$", description='"mean" or the number of a head from 0'
    )
    mass: float = Field(default=0.6, ge=0.01, le=1, description=MASS)
    count: int = Field(
        default=3, ge=1, le=MOST_OBJECTS, description=f"a number of objects from 1 to {MOST_OBJECTS}"
    )
    refined: bool = False


def find(encoding: Encoding, settings: ObjectSettings) -> list[Discovery]:
    """Find objects on the patch grid, in the order found, without empty ones."""
    needs = discovery.discovery_method(settings.method).needs
    inputs: dict[discovery.Need, Any] = {"mass": settings.mass, "count": settings.count}
    if "attention" in needs:
        maps = attention(encoding)
        if settings.head != "mean" and int(settings.head) >= len(maps):
            raise LabError(f"There is no head {settings.head}: this model has heads 0 to {len(maps) - 1}.")
        inputs["attention"] = maps.mean(axis=0) if settings.head == "mean" else maps[int(settings.head)]
    if "keys" in needs:
        if encoding.predictor.grid == (1, 1):
            raise LabError("An image of a single patch cannot be divided: choose a higher resolution.")
        _, keys = encoding.queries_keys(encoding.predictor.blocks - 1)
        prefix, grid = encoding.predictor.prefix_tokens, encoding.predictor.grid
        inputs["keys"] = discovery.key_features(keys, prefix, grid)
    found = discovery.find_objects(settings.method, inputs)
    if len(found) > MOST_OBJECTS:
        raise LabError(f"{settings.method} found {len(found)} objects, and the page shows {MOST_OBJECTS}.")
    return found


def method_choices() -> list[dict[str, Any]]:
    """Return name, title, summary and needs of every method, for the view, which has a method `click`."""
    if "click" in discovery.METHODS:
        raise ValueError("a discovery method is named 'click', as the page's own: choose another name")
    return [
        {"key": name, "label": method.title, "help": method.summary, "needs": list(method.needs)}
        for name, method in discovery.METHODS.items()
    ]


def labels_of(objects: list[Discovery], grid: tuple[int, int]) -> Labels:
    """Return the object of each patch, [rows, columns]; where objects overlap, the later one."""
    labels = np.zeros(grid, np.uint8)
    for number, one in enumerate(objects, 1):
        labels[one.mask] = number
    return labels


def refine(labels: Labels, image: ImageArray, size: tuple[int, int] | None = None) -> Labels:
    """Align the edges of labels [rows, columns] with those of the image by the guided filter.

    Args:
        labels: On the patch grid.
        image: [any height, any width, 3].
        size: Height and width of the result. Default: those of the image, reduced to `REFINED_SIDE`.

    Returns:
        [height, width]. A pixel belongs to the object with the largest share of it, if that is above a half.
    """
    small = shrunk(image, REFINED_SIDE)
    height, width = small.shape[0], small.shape[1]
    size = size or (height, width)
    radius = max(1, round(max(height / labels.shape[0], width / labels.shape[1])))
    masks = enlarge(masks_of(labels), (height, width))
    refined, strongest = np.zeros(size, np.uint8), np.full(size, 0.5, np.float32)
    for number, soft in enumerate(edges.refine_edges(masks, small, radius), 1):
        share = enlarge(soft, size, "bilinear")  # one at a time: large images have many pixels
        refined[share > strongest] = number
        np.maximum(share, strongest, out=strongest)
    return refined


def in_pixels(labels: Labels, image: ImageArray, refined: bool) -> Labels:
    """Enlarge labels [rows, columns] to the size of the image, by nearest or refined: [height, width]."""
    size = (image.shape[0], image.shape[1])
    return refine(labels, image, size) if refined else enlarge(labels, size)


def masks_of(labels: Labels) -> Mask:
    """Return the masks of objects: [largest label, height, width]."""
    return labels[None] == np.arange(1, labels.max(initial=0) + 1)[:, None, None]


FILES: Mapping[str, Callable[[Labels], bytes]] = {
    "labels.png": labels_png,
    "masks.json": lambda labels: json.dumps(
        fill_results([coco_record(1, 1, mask) for mask in masks_of(labels)], labels.shape), indent=2
    ).encode(),
}
"""Downloads of objects by name; masks.json has results of COCO as `COCO.loadRes` reads them."""
