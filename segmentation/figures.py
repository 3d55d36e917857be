"""Figures for print: an image, the map of every head and their mean, in one scale."""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dino_model.runtime.files import printable
from segmentation.masks import ImageArray

if TYPE_CHECKING:  # half a second to import
    from matplotlib.figure import Figure

WIDTH_INCHES = 7.0  # of the text of a page
DOTS_PER_INCH = 300
TEXT_POINTS = 8
MOST_COLUMNS = 4
FigureKind = Literal["png", "svg", "pdf"]
FIGURE_KINDS: tuple[FigureKind, ...] = ("png", "pdf")
"""Kinds that commands write."""


def map_figure(
    image: ImageArray,
    maps: NDArray[np.floating],
    *,
    label: str,
    caption: str,
    point: tuple[float, float] | None = None,
    common: bool = True,
) -> Figure:
    """Draw an image, a map for every head, and their mean.

    Args:
        image: uint8 RGB [height, width, 3].
        maps: [heads, rows, columns].
        label: Quantity and unit, for the color bar.
        caption: Text below the panels.
        point: Row and column of the query in pixels, marked in every panel; None for [CLS].
        common: All maps share the scale of the color bar. Otherwise each has its own, without a bar.
    """
    from matplotlib.figure import Figure

    height, width = image.shape[:2]
    panels = [("image", image), *((f"head {head}", values) for head, values in enumerate(maps))]
    if len(maps) > 1:
        panels.append(("mean", maps.mean(axis=0)))
    columns = min(MOST_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    panel_height = 0.86 * WIDTH_INCHES / columns * height / width + 0.25
    size = WIDTH_INCHES, rows * panel_height + 0.6
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    low, high = min(0.0, float(maps.min())), float(maps.max())
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (title, values) in zip(axes.flat, panels, strict=False):
        axis.set_title(title, fontsize=TEXT_POINTS)
        limits: dict[str, Any] = {"vmin": low, "vmax": high} if common else {}
        drawn = axis.imshow(values, "inferno", **limits, extent=(0, width, height, 0))
        if point:
            axis.plot(point[1], point[0], "o", markerfacecolor="none", markeredgecolor="cyan")
    if common:
        bar = figure.colorbar(drawn, ax=axes)
        bar.set_label(label, fontsize=TEXT_POINTS)
        bar.ax.tick_params(labelsize=TEXT_POINTS)
    figure.supxlabel(printable(textwrap.fill(caption, 110)), fontsize=TEXT_POINTS)
    return figure


_UNDATED: dict[FigureKind, dict[str, None]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
"""Metadata of each format without a date."""


def figure_bytes(figure: Figure, kind: FigureKind) -> bytes:
    """Encode a figure as PNG for print, or as SVG or PDF with fonts."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=_UNDATED[kind])
    return buffer.getvalue()
