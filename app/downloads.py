"""Files of what is on the screen: overlay, mask, run lengths, raw maps, Python; of one or many images."""

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.engine import Encoding
from app.files import png
from app.photos import Picture, stem
from app.snippet import snippet
from app.view import PCA, Maps, View, overlay, scale_bar, shown_mask, weights
from segmentation import drawing
from segmentation.masks import enlarge, keep_mass_of_maps, rle

MOST_PICTURES = 48
COLUMNS = 4
HEIGHT = 240  # pixels of an image on the contact sheet


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
    "view.py": lambda scene: snippet(scene.encoding, scene.view, scene.name).encode(),
}
"""Downloads of a view by name."""


def sheet_png(scenes: Iterable[Scene]) -> bytes:
    """Draw a contact sheet: overlays with their scales, under the names of their images."""
    cells = [(scene.name, overlay_and_bar(scene)) for scene in scenes]
    rows = [cells[first : first + COLUMNS] for first in range(0, len(cells), COLUMNS)]
    return png(drawing.contact_sheet(rows, height=HEIGHT))


def views_zip(scenes: Iterable[Scene]) -> bytes:
    """Pack overlay, mask and raw maps of every image, numbered in their order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # stored: PNG and NPZ are compressed already
        for number, scene in enumerate(scenes, 1):
            for file in ("overlay.png", "maps.npz", "mask.png"):
                if file != "mask.png" or scene.view.quantity not in PCA:
                    archive.writestr(f"{number:02d}-{stem(scene.name)}-{file}", FILES[file](scene))
    return buffer.getvalue()


SHEETS: Mapping[str, Callable[[Iterable[Scene]], bytes]] = {"sheet.png": sheet_png, "views.zip": views_zip}
"""Downloads of several images by name."""
