"""What a visitor sees, as a description, and the files that show the same: overlay, mask, raw maps.

The browser and this module compute from the same queries and keys: a download holds what was on the screen.
"""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.engine import Encoding, LabError, QueriesKeys
from segmentation import render
from segmentation.masks import Interpolation, Mask, enlarge, keep_mass_of_maps

COLORMAPS = ("inferno", "viridis", "gray")
SUMMARY_COLOR = (139, 92, 246)  # of the mean and the maximum, which belong to no head
PIN_COLORS = ("#f97316", "#38bdf8", "#facc15", "#34d399", "#f472b6", "#a3e635", "#c084fc", "#fb7185")

Maps = NDArray[np.float32]


@dataclass(frozen=True)
class View:
    """One state of the stage.

    Raises:
        LabError: a setting that cannot be.
    """

    block: int
    """Counted from 0."""
    query: str = "cls"
    """"cls", or row and column of a patch as "12,20"."""
    show: str = "heads"
    """"heads": all in their colours; "mean", "max", or the number of a head, counted from 0."""
    layer: Literal["heat", "mask"] = "heat"
    mass: float = 0.6
    opacity: float = 0.65
    colormap: str = "inferno"
    smooth: bool = True
    """Bilinear between patches, else nearest. Masks keep the borders of patches."""
    shared: bool = False
    """One colour scale for all heads, else each map's own least to greatest."""
    outline: bool = True
    """Draw the border of the kept attention."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"cls|\d{1,5},\d{1,5}", self.query):
            raise LabError("The query must be cls, or row and column of a patch such as 12,20.")
        if not re.fullmatch(r"heads|mean|max|\d{1,3}", self.show):
            raise LabError("What is shown must be heads, mean, max or the number of a head.")
        if self.colormap not in COLORMAPS:
            raise LabError(f"The colours must be one of {', '.join(COLORMAPS)}.")
        if not 0.01 <= self.mass <= 1:  # refuses NaN too
            raise LabError("The attention kept must lie between 0.01 and 1.")
        if not 0 <= self.opacity <= 1:
            raise LabError("The opacity must lie between 0 and 1.")

    @property
    def patch(self) -> tuple[int, int] | None:
        """Row and column asked about; None for [CLS]."""
        if self.query == "cls":
            return None
        row, column = self.query.split(",")
        return int(row), int(column)

    @property
    def interpolation(self) -> Interpolation:
        """How the grid is enlarged."""
        return "bilinear" if self.smooth else "nearest"


def attention(encoding: Encoding, queries_keys: QueriesKeys, patch: tuple[int, int] | None) -> Maps:
    """Where one patch, or [CLS], looks: float32 [heads, rows, columns]; each head sums to less than 1.

    Raises:
        LabError: no such patch.
    """
    rows, columns = encoding.grid
    token = 0
    if patch is not None:
        if not (patch[0] < rows and patch[1] < columns):
            raise LabError(
                f"There is no patch {patch[0]},{patch[1]}: the grid has {rows} rows and {columns} columns."
            )
        token = encoding.prefix_tokens + patch[0] * columns + patch[1]
    queries, keys = (part.astype(np.float32) for part in queries_keys)
    logits = np.einsum("hd,htd->ht", queries[:, token], keys) / np.float32(np.sqrt(keys.shape[-1]))
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)  # [heads, tokens]
    return weights[:, encoding.prefix_tokens :].reshape(-1, rows, columns)


def shown_map(maps: Maps, view: View) -> Maps:
    """The map that masks and readout are about: [rows, columns]. "heads" stands for their mean.

    Raises:
        LabError: no such head.
    """
    if view.show in ("heads", "mean"):
        return maps.mean(axis=0)
    if view.show == "max":
        return maps.max(axis=0)
    if int(view.show) >= len(maps):
        raise LabError(f"There is no head {view.show}: this model has heads 0 to {len(maps) - 1}.")
    return maps[int(view.show)]


def shown_mask(maps: Maps, view: View) -> Mask:
    """The kept patches of what is shown: [rows, columns]. Of "heads", all patches that any head keeps."""
    if view.show == "heads":
        return np.logical_or.reduce(keep_mass_of_maps(maps, view.mass), axis=0)
    return keep_mass_of_maps(shown_map(maps, view), view.mass)


def overlay(encoding: Encoding, maps: Maps, view: View) -> render.Picture:
    """The stage at the photograph's own size: [height, width, 3]."""
    picture = encoding.picture
    if view.show == "heads":
        return render.overlay_heads(
            picture, maps, mass=view.mass, opacity=view.opacity, interpolation=view.interpolation
        )
    mask = enlarge(shown_mask(maps, view), picture.shape[:2])
    contour = max(2, min(picture.shape[:2]) // 200) if view.outline else 0
    if view.layer == "mask":
        color = np.array([_color(view.show, len(maps))], np.uint8)
        return render.overlay_masks(picture, mask, colors=color, opacity=view.opacity, contour=contour)
    heat = render.overlay_heat(
        picture,
        shown_map(maps, view),
        opacity=view.opacity,
        colormap=view.colormap,
        value_range=(float(maps.min()), float(maps.max())) if view.shared else None,
        interpolation=view.interpolation,
    )
    white = np.full((1, 3), 255, np.uint8)
    return render.overlay_masks(heat, mask, colors=white, opacity=0, contour=contour)


def _color(show: str, heads: int) -> tuple[int, int, int]:
    if show in ("mean", "max"):
        return SUMMARY_COLOR
    red, green, blue = render.head_colors(heads)[int(show)].tolist()
    return red, green, blue


def overlay_png(encoding: Encoding, queries_keys: QueriesKeys, view: View) -> bytes:
    """`overlay` as a PNG file."""
    maps = attention(encoding, queries_keys, view.patch)
    return _png(Image.fromarray(overlay(encoding, maps, view)))


def mask_png(encoding: Encoding, queries_keys: QueriesKeys, view: View) -> bytes:
    """`shown_mask` at the photograph's own size as a black and white PNG file: 0 and 255."""
    maps = attention(encoding, queries_keys, view.patch)
    mask = enlarge(shown_mask(maps, view), encoding.picture.shape[:2])
    return _png(Image.fromarray(mask.astype(np.uint8) * 255))


def maps_npz(encoding: Encoding, queries_keys: QueriesKeys, view: View) -> bytes:
    """Raw maps as a NumPy archive, under the names that `python -m segmentation attention` gives them.

    `attention` and `mask` [heads, rows, columns] are of [CLS]; with a patch asked about, `point_attention` is
    of that patch and `point` its row and column.
    """
    of_cls = attention(encoding, queries_keys, None)
    arrays: dict[str, Any] = {
        "attention": of_cls,
        "mask": keep_mass_of_maps(of_cls, view.mass),
        "grid": np.array(encoding.grid),
        "model": np.array(encoding.model),
        "block": np.array(view.block),
        "mass": np.array(view.mass),
    }
    if view.patch is not None:
        arrays["point_attention"] = attention(encoding, queries_keys, view.patch)
        arrays["point"] = np.array(view.patch)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", compress_level=6)
    return buffer.getvalue()


FILES: Mapping[str, tuple[str, Callable[[Encoding, QueriesKeys, View], bytes]]] = {
    "overlay.png": ("image/png", overlay_png),
    "mask.png": ("image/png", mask_png),
    "maps.npz": ("application/zip", maps_npz),
}
"""What can be downloaded of a view: by name, its media type and who makes it."""
