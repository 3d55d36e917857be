"""Objects in a photograph that a model has looked at: by the attention kept, LOST, TokenCut or MaskCut.

Everything follows from one encoding, the queries and keys of its last block; the model is not asked again.
Objects are labels: 0 is none, 1 the first object, 2 the second; on the patch grid or in pixels.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.engine import Encoding, QueriesKeys
from app.errors import LabError
from app.files import labels_png, png
from app.view import attention
from segmentation import discovery, drawing
from segmentation.coco import coco_record
from segmentation.discovery import Discovery
from segmentation.masks import Mask, enlarge, keep_mass_of_maps

METHODS = ("attention", "lost", "tokencut", "maskcut")
MOST_OBJECTS = 6
# The first head's colour is that of fur and wood: objects start at the second.
COLORS = drawing.head_colors(MOST_OBJECTS + 1)[1:]
REFINED_SIDE = 640  # pixels of the long side at which edges are refined: finer than the eye follows a patch

Labels = NDArray[np.uint8]


@dataclass(frozen=True)
class Recipe:
    """How objects are found.

    Raises:
        LabError: a setting that cannot be.
    """

    method: str = "attention"
    head: str = "mean"
    """For attention: "mean", or the number of a head, counted from 0."""
    mass: float = 0.6
    """For attention: the share kept."""
    count: int = 3
    """For MaskCut: the largest number of objects."""
    refined: bool = False
    """Let edges follow those of the picture."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise LabError(f"The method must be one of {', '.join(METHODS)}.")
        if not re.fullmatch(r"mean|\d{1,3}", self.head):
            raise LabError("The head must be mean or the number of a head.")
        if not 0.01 <= self.mass <= 1:  # refuses NaN too
            raise LabError("The attention kept must lie between 0.01 and 1.")
        if not 1 <= self.count <= MOST_OBJECTS:
            raise LabError(f"The number of objects must lie between 1 and {MOST_OBJECTS}.")

    @classmethod
    def of(cls, values: Mapping[str, object]) -> "Recipe":
        """Read settings that a stranger sent.

        Raises:
            LabError: A value of another type, or outside its range.
        """
        kinds: dict[str, Any] = {
            "method": str,
            "head": str,
            "mass": (int, float),
            "count": int,
            "refined": bool,
        }
        for name, value in values.items():
            if not isinstance(value, kinds[name]) or (isinstance(value, bool) and name != "refined"):
                raise LabError(f"The {name} has the wrong type.")
        return cls(**values)  # type: ignore[arg-type]


def find(encoding: Encoding, queries_keys: QueriesKeys, recipe: Recipe) -> list[Discovery]:
    """Objects on the patch grid, in the order found; empty ones are left out.

    Args:
        encoding: what a model made of the photograph.
        queries_keys: of its last block.
        recipe: how to find them.

    Raises:
        LabError: no such head, or a picture of a single patch, which cannot be cut.
    """
    if recipe.method == "attention":
        values = cls_map(encoding, queries_keys, recipe.head)
        row, column = np.unravel_index(int(values.argmax()), values.shape)
        return [Discovery(keep_mass_of_maps(values, recipe.mass), (int(row), int(column)))]
    if encoding.grid == (1, 1):
        raise LabError("A picture of a single patch cannot be cut: choose a higher resolution.")
    features = discovery.key_features(queries_keys[1], encoding.prefix_tokens, encoding.grid)
    if recipe.method == "maskcut":
        found = discovery.maskcut(features, recipe.count)
    else:
        found = [{"lost": discovery.lost, "tokencut": discovery.tokencut}[recipe.method](features)]
    return [one for one in found if one.mask.any()]


def cls_map(encoding: Encoding, queries_keys: QueriesKeys, head: str) -> NDArray[np.float32]:
    """Where [CLS] looks by one head, or by their mean: [rows, columns].

    Raises:
        LabError: no such head.
    """
    maps = attention(encoding, queries_keys, None)
    if head == "mean":
        return maps.mean(axis=0)
    if int(head) >= len(maps):
        raise LabError(f"There is no head {head}: this model has heads 0 to {len(maps) - 1}.")
    return maps[int(head)]


def labels_of(found: list[Discovery], grid: tuple[int, int]) -> Labels:
    """Which object each patch belongs to: [rows, columns]; of several objects the later."""
    labels = np.zeros(grid, np.uint8)
    for number, one in enumerate(found, 1):
        labels[one.mask] = number
    return labels


def refine(labels: Labels, picture: NDArray[np.uint8], size: tuple[int, int]) -> Labels:
    """Labels [rows, columns] whose edges follow those of the picture, by the guided filter.

    Args:
        labels: on the patch grid.
        picture: [any height, any width, 3]; looked at with at most `REFINED_SIDE` pixels of the long side.
        size: height and width of what is returned.

    Returns:
        A pixel goes to the object that claims it most, if any does by more than half: [height, width].
    """
    height, width = refined_size(picture)
    small = np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
    radius = max(1, round(max(height / labels.shape[0], width / labels.shape[1])))
    refined, strongest = np.zeros(size, np.uint8), np.full(size, 0.5, np.float32)
    for number in range(1, int(labels.max(initial=0)) + 1):
        mask = enlarge(labels == number, (height, width))
        claim = enlarge(discovery.refine_edges(mask, small, radius), size, "bilinear")
        refined[claim > strongest] = number
        np.maximum(claim, strongest, out=strongest)
    return refined


def refined_size(picture: NDArray[np.uint8]) -> tuple[int, int]:
    """Height and width at which edges are refined."""
    height, width = picture.shape[:2]
    scale = min(1.0, REFINED_SIDE / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def in_pixels(labels: Labels, picture: NDArray[np.uint8], refined: bool) -> Labels:
    """Labels [rows, columns] at the picture's own size, by nearest or refined: [height, width]."""
    size = (picture.shape[0], picture.shape[1])
    return refine(labels, picture, size) if refined else enlarge(labels, size)


def masks_of(labels: Labels, count: int) -> Mask:
    """The masks of the first `count` objects: [count, height, width]."""
    return labels[None] == np.arange(1, count + 1)[:, None, None]


def overlay_png(picture: NDArray[np.uint8], labels: Labels) -> bytes:
    """Objects [height, width], tinted and outlined over the photograph [height, width, 3]."""
    masks = masks_of(labels, int(labels.max(initial=0)))
    contour = max(2, min(labels.shape) // 200)
    drawn = drawing.overlay_masks(picture, masks, colors=COLORS[: len(masks)], contour=contour)
    return png(drawn)


def masks_json(labels: Labels) -> bytes:
    """COCO results, one record per object of labels [height, width], as `COCO.loadRes` reads them."""
    masks = masks_of(labels, int(labels.max(initial=0)))
    return json.dumps([coco_record(1, 1, mask) for mask in masks], indent=2).encode()


FILES: Mapping[str, tuple[str, Callable[[NDArray[np.uint8], Labels], bytes]]] = {
    "labels.png": ("image/png", lambda picture, labels: labels_png(labels)),
    "overlay.png": ("image/png", overlay_png),
    "masks.json": ("application/json", lambda picture, labels: masks_json(labels)),
}
"""What can be downloaded of objects: by name, its media type and who makes it of photograph and labels."""
