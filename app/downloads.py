"""The files that show what a visitor sees: overlay, mask, run lengths, raw maps, and the same as Python."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.engine import Encoding
from app.files import png
from app.photos import Picture
from app.snippet import snippet
from app.view import PCA, Maps, View, overlay, scale_bar, shown_mask, weights
from segmentation import drawing
from segmentation.masks import enlarge, keep_mass_of_maps, rle


@dataclass(frozen=True)
class Scene:
    """A view with all that its files are made of."""

    encoding: Encoding
    view: View
    maps: Maps
    picture: Picture
    """The photograph, at the size that pictures of the scene shall have."""
    name: str
    """What its visitor calls the photograph."""


def overlay_png(scene: Scene) -> bytes:
    """`overlay_and_bar` as a PNG file."""
    return png(overlay_and_bar(scene))


def overlay_and_bar(scene: Scene) -> Picture:
    """The stage, and below it what its colours stand for."""
    drawn = overlay(scene.picture, scene.maps, scene.view)
    bar = scale_bar(scene.maps, scene.view, drawn.shape[1])
    return drawn if bar is None else drawing.stack([drawn, bar])


def mask_png(scene: Scene) -> bytes:
    """`shown_mask` as a black and white PNG file: 0 and 255."""
    mask = enlarge(shown_mask(scene.maps, scene.view), scene.picture.shape[:2])
    return png(mask.astype(np.uint8) * 255)


def mask_json(scene: Scene) -> bytes:
    """The same mask, at the photograph's own size, in COCO's run lengths, as `pycocotools.mask.decode` takes
    them: size and counts.
    """
    return json.dumps(rle(enlarge(shown_mask(scene.maps, scene.view), scene.encoding.picture_size))).encode()


def maps_npz(scene: Scene) -> bytes:
    """Raw maps as a NumPy archive: `maps` and, but for a PCA, `mask`, both [heads, rows, columns].

    Beside them stands what they are of: quantity, query ("cls", or row and column), block counted from 0,
    model, grid and mass.
    """
    view = scene.view
    arrays: dict[str, Any] = {
        "maps": scene.maps,
        "quantity": np.array(view.quantity),
        "query": np.array(view.query),
        "block": np.array(view.block),
        "model": np.array(scene.encoding.key.model),
        "grid": np.array(scene.encoding.grid),
        "mass": np.array(view.mass),
    }
    if view.quantity not in PCA:
        arrays["mask"] = keep_mass_of_maps(weights(scene.maps, view), view.mass)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def view_py(scene: Scene) -> bytes:
    """`snippet` as a file."""
    return snippet(scene.encoding, scene.view, scene.name).encode()


FILES: Mapping[str, tuple[str, Callable[[Scene], bytes]]] = {
    "overlay.png": ("image/png", overlay_png),
    "mask.png": ("image/png", mask_png),
    "mask.json": ("application/json", mask_json),
    "maps.npz": ("application/zip", maps_npz),
    "view.py": ("text/x-python; charset=utf-8", view_py),
}
"""What can be downloaded of a view: by name, its media type and who makes it."""
