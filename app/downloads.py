"""The files that show what a visitor sees: overlay, mask, run lengths, raw maps, and the same as Python."""

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from PIL import Image

from app.engine import Encoding
from app.snippet import snippet
from app.view import PCA, Maps, View, overlay, shown_mask, weights
from segmentation.masks import Mask, enlarge, keep_mass_of_maps, rle


def overlay_png(encoding: Encoding, maps: Maps, view: View) -> bytes:
    """`overlay` as a PNG file."""
    return _png(Image.fromarray(overlay(encoding, maps, view)))


def mask_png(encoding: Encoding, maps: Maps, view: View) -> bytes:
    """`shown_mask` at the photograph's own size as a black and white PNG file: 0 and 255."""
    return _png(Image.fromarray(_mask(encoding, maps, view).astype(np.uint8) * 255))


def mask_json(encoding: Encoding, maps: Maps, view: View) -> bytes:
    """The same mask in COCO's run lengths, as `pycocotools.mask.decode` takes them: size and counts."""
    return json.dumps(rle(_mask(encoding, maps, view))).encode()


def maps_npz(encoding: Encoding, maps: Maps, view: View) -> bytes:
    """Raw maps as a NumPy archive: `maps` and, but for a PCA, `mask`, both [heads, rows, columns].

    Beside them stands what they are of: quantity, query ("cls", or row and column), block counted from 0,
    model, grid and mass.
    """
    arrays: dict[str, Any] = {
        "maps": maps,
        "quantity": np.array(view.quantity),
        "query": np.array(view.query),
        "block": np.array(view.block),
        "model": np.array(encoding.model),
        "grid": np.array(encoding.grid),
        "mass": np.array(view.mass),
    }
    if view.quantity not in PCA:
        arrays["mask"] = keep_mass_of_maps(weights(maps, view), view.mass)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def view_py(encoding: Encoding, maps: Maps, view: View) -> bytes:
    """`snippet` as a file."""
    return snippet(encoding, view).encode()


def _mask(encoding: Encoding, maps: Maps, view: View) -> Mask:
    return enlarge(shown_mask(maps, view), encoding.picture.shape[:2])


def _png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", compress_level=6)
    return buffer.getvalue()


FILES: Mapping[str, tuple[str, Callable[[Encoding, Maps, View], bytes]]] = {
    "overlay.png": ("image/png", overlay_png),
    "mask.png": ("image/png", mask_png),
    "mask.json": ("application/json", mask_json),
    "maps.npz": ("application/zip", maps_npz),
    "view.py": ("text/x-python; charset=utf-8", view_py),
}
"""What can be downloaded of a view: by name, its media type and who makes it of the view's maps."""
