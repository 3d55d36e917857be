"""The state of an attention view, with the maps, masks and images that follow from it.

The browser computes the same from the same queries, keys and features, so that downloads equal the screen.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from app.engine import Encoding, QueriesKeys
from app.errors import LabError
from app.photos import Picture
from dino_model import quantities
from segmentation import drawing
from segmentation.discovery import key_features
from segmentation.masks import Interpolation, Mask, enlarge, keep_mass_of_maps

COLORMAPS = ("inferno", "viridis", "gray", "coolwarm")
DIVERGING = ("coolwarm",)  # color maps with zero in the middle
SUMMARY_COLORS = {"mean": (255, 0, 255), "max": (255, 255, 255)}
"""Colors of the mean and the maximum of the heads; no head has them."""
PIN_COLORS = ("#f97316", "#38bdf8", "#facc15", "#34d399", "#f472b6", "#a3e635", "#c084fc", "#fb7185")

Maps = NDArray[np.float32]
Quantity = Literal[
    "likeness", "attention", "rollout", "logits", "key-cosine", "token-cosine", "key-pca", "token-pca"
]
PCA: tuple[Quantity, ...] = ("key-pca", "token-pca")
"""Quantities that are colors of all patches: they have no query, heads or masks."""
SHARES: tuple[Quantity, ...] = ("attention", "rollout")
"""Quantities that are never negative, so that masks keep a share of their values."""


@dataclass(frozen=True)
class View:
    """The settings of an attention view.

    Raises:
        LabError: A setting is invalid.
    """

    block: int
    """Counted from 0."""
    query: str = "cls"
    """"cls", or row and column of a patch as "12,20"."""
    quantity: Quantity = "attention"
    show: str = "heads"
    """"heads": all in their colours; "mean", "max", or the number of a head, counted from 0."""
    layer: Literal["light", "heat", "mask"] = "light"
    """The image lit by the map, the map in false colors, or the mask of the kept mass."""
    mass: float = 0.6
    opacity: float = 0.8
    colormap: str = "inferno"
    smooth: bool = True
    """Bilinear interpolation between patches, else nearest; not of masks."""
    shared: bool = False
    """Use one color scale for all heads, else the range of each map."""
    scale: drawing.Scale = "median"
    """Display range, see `drawing.display_range`."""
    outline: bool = False
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

    @classmethod
    def of(cls, request: object) -> "View":
        """Check a request of a client; unknown keys are ignored.

        Raises:
            LabError: The request is no dictionary, or a setting has a wrong type or value.
        """
        if not isinstance(request, dict):
            raise LabError("Nothing is shown yet: wait for the maps, then try again.")
        given: dict[str, Any] = {}
        for name, (kind, words) in _KINDS.items():
            value = request.get(name, getattr(cls, name, None))
            if kind is float and type(value) is int:
                value = float(value)
            if type(value) is not kind or (name in _CHOICES and value not in _CHOICES[name]):
                raise LabError(f"The setting {name} must be {words}.")
            given[name] = value
        return cls(**given)

    @property
    def patch(self) -> tuple[int, int] | None:
        """Row and column of the query; None for [CLS]."""
        if self.query == "cls":
            return None
        row, column = self.query.split(",")
        return int(row), int(column)

    @property
    def diverging(self) -> bool:
        """Center the colors at zero."""
        return self.layer == "heat" and self.colormap in DIVERGING

    @property
    def interpolation(self) -> Interpolation:
        """Name the interpolation of maps."""
        return "bilinear" if self.smooth else "nearest"


_CHOICES: dict[str, tuple[str, ...]] = {
    "quantity": get_args(Quantity),
    "layer": ("light", "heat", "mask"),
    "colormap": COLORMAPS,
    "scale": get_args(drawing.Scale),
}
_KINDS: dict[str, tuple[type, str]] = {
    "block": (int, "a whole number"),
    "query": (str, "text"),
    "show": (str, "text"),
    **{name: (str, f"one of {', '.join(choices)}") for name, choices in _CHOICES.items()},
    "mass": (float, "a number"),
    "opacity": (float, "a number"),
    **dict.fromkeys(("smooth", "shared", "outline"), (bool, "true or false")),
}


def object_patch(encoding: Encoding, pinned: tuple[float, float] | None) -> tuple[int, int]:
    """Return row and column of a patch on the object: at a known place, or where [CLS] attends most.

    Patches on the border are excluded, as in `likelyPatch` of app/static/maths/attention.js.
    """
    rows, columns = encoding.grid
    if pinned is not None:
        return min(rows - 1, int(pinned[1] * rows)), min(columns - 1, int(pinned[0] * columns))
    if min(rows, columns) < 3:
        return rows // 2, columns // 2
    last = maps_of(encoding, View(encoding.blocks - 1)).mean(axis=0)
    sums = sliding_window_view(last, (3, 3)).sum(axis=(2, 3))  # of each inner patch and its neighbors
    row, column = np.unravel_index(int(sums.argmax()), sums.shape)
    return int(row) + 1, int(column) + 1


def maps_of(encoding: Encoding, view: View) -> Maps:
    """Compute the quantity of a view for every head: float32 [heads, rows, columns].

    Quantities of whole tokens have one map; a PCA has red, green and blue.

    Raises:
        LabError: Unknown block or patch.
    """
    if view.quantity in PCA:
        return np.moveaxis(principal_colors(encoding, view.block, view.quantity), -1, 0)
    token = token_of(encoding, view.patch)
    if view.quantity == "rollout":
        return _on_grid(encoding, encoding.rollout(view.block)[token, None].astype(np.float32))
    if view.quantity == "token-cosine":
        return _on_grid(encoding, quantities.cosines(encoding.features(view.block)[None], token))
    queries, keys = encoding.queries_keys(view.block)
    if view.quantity == "likeness":
        return _on_grid(encoding, quantities.likeness(keys, encoding.prefix_tokens, token)[None])
    if view.quantity == "key-cosine":
        return _on_grid(encoding, quantities.cosines(keys, token))
    relate = quantities.logits if view.quantity == "logits" else quantities.attention
    return _on_grid(encoding, relate(queries, keys, token))


def attention(encoding: Encoding, queries_keys: QueriesKeys, patch: tuple[int, int] | None) -> Maps:
    """Compute the attention of a patch, or of [CLS] for None: float32 [heads, rows, columns].

    Raises:
        LabError: Unknown patch.
    """
    return _on_grid(encoding, quantities.attention(*queries_keys, token_of(encoding, patch)))


def principal_colors(encoding: Encoding, block: int, quantity: Quantity) -> Maps:
    """Compute principal components as colors: [rows, columns, 3], from 0 to 1.

    Raises:
        LabError: Unknown block.
    """
    if quantity == "token-pca":
        patches = encoding.features(block)[encoding.prefix_tokens :]
        return quantities.principal_colors(patches.reshape(*encoding.grid, -1))
    _, keys = encoding.queries_keys(block)
    return quantities.principal_colors(key_features(keys, encoding.prefix_tokens, encoding.grid))


def token_of(encoding: Encoding, patch: tuple[int, int] | None) -> int:
    """Return the index of a patch's token; of [CLS] for None.

    Raises:
        LabError: Unknown patch.
    """
    if patch is None:
        return 0
    rows, columns = encoding.grid
    if not (patch[0] < rows and patch[1] < columns):
        raise LabError(
            f"There is no patch {patch[0]},{patch[1]}: the grid has {rows} rows and {columns} columns."
        )
    return encoding.prefix_tokens + patch[0] * columns + patch[1]


def weights(maps: Maps, view: View) -> Maps:
    """Return the non-negative values of which masks keep a share."""
    return maps if view.quantity in SHARES else quantities.above_least(maps)


def shown_map(maps: Maps, view: View) -> Maps:
    """Return the map on the stage: [rows, columns]; for "heads" their mean.

    Raises:
        LabError: Unknown head.
    """
    if view.show in ("heads", "mean"):
        return maps.mean(axis=0)
    if view.show == "max":
        return maps.max(axis=0)
    if int(view.show) >= len(maps):
        raise LabError(f"There is no head {view.show}: this model has heads 0 to {len(maps) - 1}.")
    return maps[int(view.show)]


def shown_mask(maps: Maps, view: View) -> Mask:
    """Return the kept patches: [rows, columns]; for "heads" all that any head keeps.

    Raises:
        LabError: Unknown head, or a PCA, which has no mask.
    """
    if view.quantity in PCA:
        raise LabError("A PCA has no mask: choose another quantity.")
    if view.show == "heads":
        return np.logical_or.reduce(keep_mass_of_maps(weights(maps, view), view.mass), axis=0)
    return keep_mass_of_maps(weights(shown_map(maps, view), view), view.mass)


def overlay(picture: Picture, maps: Maps, view: View) -> Picture:
    """Draw the stage at the size of `picture`: uint8 [height, width, 3]."""
    if view.quantity in PCA:
        layer = np.moveaxis(enlarge(maps, picture.shape[:2], view.interpolation), 0, -1)
        return drawing.blend(picture, np.rint(255 * layer).astype(np.uint8), view.opacity)
    if view.show == "heads":
        return drawing.overlay_heads(
            picture,
            weights(maps, view),
            mass=view.mass,
            opacity=view.opacity,
            interpolation=view.interpolation,
        )
    mask = enlarge(shown_mask(maps, view), picture.shape[:2])
    contour = contour_width(picture.shape) if view.outline else 0
    if view.layer == "mask":
        color = np.array([mask_color(view.show, len(maps))], np.uint8)
        return drawing.overlay_masks(picture, mask, colors=color, opacity=view.opacity, contour=contour)
    shares = drawing.levels(
        shown_map(maps, view), picture.shape[:2], value_range(maps, view), view.interpolation
    )
    if view.layer == "light":
        drawn = drawing.overlay_light(picture, shares, opacity=view.opacity)
    else:
        drawn = drawing.overlay_glow(
            picture, shares, opacity=view.opacity, colormap=view.colormap, diverging=view.diverging
        )
    white = np.full((1, 3), 255, np.uint8)
    return drawing.overlay_masks(drawn, mask, colors=white, opacity=0, contour=contour)


def value_range(maps: Maps, view: View) -> tuple[float, float]:
    """Return the values at both ends of the colors."""
    return drawing.display_range(
        maps if view.shared else shown_map(maps, view), view.scale, diverging=view.diverging
    )


def scale_bar(maps: Maps, view: View, width: int) -> Picture | None:
    """Draw a color bar; None if the colors do not stand for values."""
    if view.quantity in PCA or view.show == "heads" or view.layer == "mask":
        return None
    colormap = view.colormap if view.layer == "heat" else "gray"
    shares = view.quantity in SHARES
    return drawing.color_bar(
        colormap, value_range(maps, view), width, capped=view.scale != "full", percent=shares
    )


def contour_width(size: tuple[int, ...]) -> int:
    """Return the width of an outline in pixels for an image of (height, width)."""
    return max(2, min(size[:2]) // 200)


def mask_color(show: str, heads: int) -> tuple[int, int, int]:
    """Return red, green and blue of a head, the mean or the maximum."""
    if show in SUMMARY_COLORS:
        return SUMMARY_COLORS[show]
    red, green, blue = drawing.head_colors(heads)[int(show)].tolist()
    return red, green, blue


def _on_grid(encoding: Encoding, rows: NDArray[np.float32]) -> Maps:
    """Drop the prefix tokens and reshape [heads, tokens] to [heads, rows, columns]."""
    return rows[:, encoding.prefix_tokens :].reshape(-1, *encoding.grid)
