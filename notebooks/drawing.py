"""How the lessons draw: one style, readable in grey, every picture with a text for who cannot see it."""

import base64
import html
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import cv2
import matplotlib as mpl
import numpy as np
from IPython.display import HTML, display
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from numpy.typing import NDArray

from segmentation import drawing
from segmentation.masks import ImageArray, Mask

COLORMAP = "cividis"
"""Lightness grows with the value: the same in grey, and for who cannot tell red from green."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's palette, in an order in which neighbours differ in lightness too."""
LINES = ("-", "--", "-.", ":")
STYLE: Any = {
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=COLORS[:4], linestyle=LINES),  # told apart without colour
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "grid.alpha": 0.3,
    "image.cmap": COLORMAP,
    "lines.linewidth": 2,
}


TRUE, FOUND = (0, 60, 120), (250, 225, 60)
"""Of outlines: dark blue and light yellow."""


def masked(picture: ImageArray, mask: Mask) -> ImageArray:
    """What a mask [height, width] holds in its own colours and a white edge, the rest in the dark."""
    edge = np.full((1, 3), 255, np.uint8)
    lit = drawing.overlay_light(picture, mask.astype(np.float32))
    return drawing.overlay_masks(lit, mask, colors=edge, opacity=0, contour=1)


def outlined(picture: ImageArray, true: Mask, found: Mask) -> ImageArray:
    """A picture, twice as large, with two outlines: the true one dark on white, the found one bright dashes.

    Args:
        picture: [height, width, 3].
        true, found: masks [height, width].
    """
    drawn = picture.repeat(2, axis=0).repeat(2, axis=1)
    for color, width in (((255, 255, 255), 9), (TRUE, 4)):
        cv2.drawContours(drawn, _lines(true), -1, color, width)
    for line in _lines(found):
        for start in range(0, len(line), 40):
            for color, width in (((0, 0, 0), 9), (FOUND, 5)):
                cv2.polylines(drawn, [line[start : start + 24]], False, color, width)
    return drawn


def _lines(mask: Mask) -> Sequence[NDArray[Any]]:
    """Outlines of a mask, pixel by pixel, in a picture twice as large."""
    large = mask.astype(np.uint8).repeat(2, axis=0).repeat(2, axis=1)
    return cv2.findContours(large, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)[0]


def show(figure: Figure, alt: str) -> None:
    """Show a figure with a text for who cannot see it, and let go of it.

    Raises:
        ValueError: no text.
    """
    if not alt.strip():
        raise ValueError("a figure needs a text that says what it shows: pass alt")
    display(HTML(f'<img alt="{html.escape(alt)}" src="{_address(figure)}" style="max-width:100%">'))


def slider(figures: Mapping[str, Figure], name: str, alt: str) -> None:
    """Figures made beforehand, of which a slider shows one. It needs no kernel; on paper the first stays.

    Args:
        figures: by the setting they were made with.
        name: of the setting.
        alt: what the figures show, in words.

    Raises:
        ValueError: no figures.
    """
    if not figures:
        raise ValueError("a slider needs figures to choose from")
    shown = (
        f'<img alt="{html.escape(f"{alt} {name}: {setting}.")}" src="{_address(figure)}" '
        f'style="max-width:100%{";display:none" * bool(number)}">'
        for number, (setting, figure) in enumerate(figures.items())
    )
    settings = html.escape(json.dumps(list(figures)), quote=True)
    choose = (
        "const all = this.closest('figure');"
        "all.querySelectorAll('img').forEach((one, at) => {"
        "  one.style.display = at == this.value ? '' : 'none' });"
        "all.querySelector('output').textContent = JSON.parse(this.dataset.settings)[this.value];"
    )
    display(
        HTML(
            f'<figure style="margin:0"><label>{html.escape(name)} <input type="range" min="0" '
            f'max="{len(figures) - 1}" value="0" data-settings="{settings}" oninput="{choose}"> '
            f"<output>{html.escape(next(iter(figures)))}</output></label><br>{''.join(shown)}</figure>"
        )
    )


def _address(figure: Figure) -> str:
    """The figure as a data address; it is closed. A slider keeps a dozen: WebP takes a fifth of PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="webp", dpi=110, pil_kwargs={"quality": 85})
    plt.close(figure)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


@contextmanager
def plot(alt: str, width: float = 7, height: float = 3, columns: int = 1) -> Iterator[Any]:
    """Axes to draw curves into, shown when the block ends: one, or an array of `columns`.

    Args:
        alt: what the figure shows, in words.
        width, height: in inches.
        columns: axes side by side.
    """
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, columns, figsize=(width, height))
        yield axes
        show(figure, alt)


def pictures(
    images: Sequence[NDArray[Any]], titles: Sequence[str] = (), *, alt: str, **settings: Any
) -> None:
    """Show pictures and maps side by side.

    Args:
        images, titles, settings: as `grid` takes them.
        alt: what the figure shows, in words.
    """
    show(grid(images, titles, **settings), alt)


def grid(
    images: Sequence[NDArray[Any]],
    titles: Sequence[str] = (),
    *,
    columns: int = 6,
    width: float = 9,
    value_range: tuple[float, float] | None = None,
) -> Figure:
    """A figure of pictures and maps side by side.

    Args:
        images: uint8 [height, width, 3], or maps and masks [rows, columns], drawn in `COLORMAP`.
        titles: one for each, or none.
        columns: pictures in a row.
        width: of the figure in inches.
        value_range: values of the first and the last colour; by default each map has its own.
    """
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    tallest = max(image.shape[0] / image.shape[1] for image in images)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            rows, columns, figsize=(width, rows * (width / columns * tallest + 0.35)), squeeze=False
        )
        for number, place in enumerate(axes.flat):
            place.set_axis_off()
            if number < len(images):
                _draw(place, images[number], value_range)
                place.set_title(titles[number] if titles else "", fontsize=9)
        return figure


def _draw(place: Axes, image: NDArray[Any], value_range: tuple[float, float] | None) -> None:
    if image.ndim == 3:
        place.imshow(image)
        return
    low, high = value_range or (float(image.min()), float(image.max()))
    place.imshow(np.asarray(image, dtype=float), vmin=low, vmax=high)
