"""Files of what is on the screen: overlay, mask, run lengths, raw maps."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.engine import Encoding
from app.photos import Picture, png
from app.view import PCA, Maps, View, overlay, scale_bar, shown_mask, weights
from segmentation import drawing
from segmentation.masks import enlarge, keep_mass_of_maps, rle


@dataclass(frozen=True)
class Scene:
    """A view with all that its files are made of.

    Attributes:
        picture: The image, at the size of the files.
        name: The user's name for it.
    """

    encoding: Encoding
    view: View
    maps: Maps
    picture: Picture
    name: str


def overlay_and_bar(scene: Scene) -> Picture:
    """Draw the stage, and below it the scale of its colors."""
    drawn = overlay(scene.picture, scene.maps, scene.view)
    bar = scale_bar(scene.maps, scene.view, drawn.shape[1])
    return drawn if bar is None else drawing.stack([drawn, bar])


def mask_png(scene: Scene) -> bytes:
    """Write `shown_mask` as a black and white PNG file: 0 and 255."""
    mask = enlarge(shown_mask(scene.maps, scene.view), scene.picture.shape[:2])
    return png(mask.astype(np.uint8) * 255)


def mask_json(scene: Scene) -> bytes:
    """Write `shown_mask` at the size of the image in COCO's run lengths."""
    return json.dumps(rle(enlarge(shown_mask(scene.maps, scene.view), scene.encoding.picture_size))).encode()


def maps_npz(scene: Scene) -> bytes:
    """Write maps and, except for a PCA, masks as a NumPy archive: [heads, rows, columns].

    Settings: quantity, query ("cls", or row and column), block (from 0), model, grid and mass.
    """
    view = scene.view
    settings = {name: getattr(view, name) for name in ("quantity", "query", "block", "mass")}
    arrays: dict[str, Any] = settings | {
        "maps": scene.maps,
        "model": scene.encoding.key.model,
        "grid": scene.encoding.grid,
    }
    if view.quantity not in PCA:
        arrays["mask"] = keep_mass_of_maps(weights(scene.maps, view), view.mass)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


FILES: Mapping[str, Callable[[Scene], bytes]] = {
    "overlay.png": lambda scene: png(overlay_and_bar(scene)),
    "mask.png": mask_png,
    "mask.json": mask_json,
    "maps.npz": maps_npz,
}
"""Downloads of a view by name."""
