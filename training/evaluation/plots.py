"""Figures and contact sheets of the evaluations."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dino_model import files

TILE = 112
"""Longest side of the images of a contact sheet in pixels."""
_MARGIN, _LINE = 6, 16
_MAX_CLASSES = 30  # of a confusion matrix


def curves(
    path: Path,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    x_label: str,
    y_label: str,
) -> None:
    """Draw named lines over a logarithmic axis to a .png file."""
    figure = Figure(figsize=(8, 5), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name)
    axes.set(xscale="log", xlabel=x_label, ylabel=y_label)
    axes.set_title(title, fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    with files.replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def confusion_chart(path: Path, counts: NDArray[np.integer], names: Sequence[str], *, title: str) -> None:
    """Draw the confusion matrix of the classes with most errors to a .png file.

    Args:
        path: File to write.
        counts: Images of each class (row) by predicted class (column): [classes, classes].
        names: Names of the classes.
        title: Title of the figure.
    """
    errors = counts - np.diag(np.diag(counts))
    most = np.argsort(-(errors.sum(axis=0) + errors.sum(axis=1)), kind="stable")[:_MAX_CLASSES]
    most = most[np.argsort([names[i] for i in most])]
    shares = counts[np.ix_(most, most)] / np.maximum(1, counts[most].sum(axis=1, keepdims=True))
    figure = Figure(figsize=(10, 9), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    shown = axes.imshow(100 * shares, cmap="viridis", vmin=0, vmax=100)
    axes.set_xticks(range(len(most)), [names[i] for i in most], rotation=90, fontsize=8)
    axes.set_yticks(range(len(most)), [names[i] for i in most], fontsize=8)
    axes.set(xlabel="predicted class", ylabel="class")
    part = f"the {len(most)} of {len(names)} classes with most errors" if len(most) < len(names) else "all"
    axes.set_title(f"{title}: {part}", fontsize=11, loc="left")
    figure.colorbar(shown, label="% of the class", shrink=0.6)
    with files.replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def contact_sheet(path: Path, rows: Sequence[Sequence[tuple[NDArray[np.uint8], str]]]) -> None:
    """Write rows of thumbnails, each with a line of text below it, to a .jpg or .png file.

    Args:
        path: File to write.
        rows: Images uint8 [height, width, 3] and their texts.
    """
    small = [[(_thumbnail(image), text) for image, text in row] for row in rows]
    heights = [max(tile.height for tile, _ in row) for row in small]
    column_width, columns = TILE + _MARGIN, max(len(row) for row in rows)
    height = sum(heights) + len(rows) * (_LINE + _MARGIN)
    sheet = Image.new("RGB", (columns * column_width + _MARGIN, height + _MARGIN), "white")
    draw, top = ImageDraw.Draw(sheet), _MARGIN
    for tiles, row_height in zip(small, heights, strict=True):
        for column, (tile, text) in enumerate(tiles):
            left = _MARGIN + column * column_width
            sheet.paste(tile, (left + (TILE - tile.width) // 2, top + row_height - tile.height))
            draw.text((left, top + row_height + 2), _shortened(draw, text), fill="black")
        top += row_height + _LINE + _MARGIN
    with files.replacing(path) as temporary:
        sheet.save(temporary, quality=90)


def _thumbnail(image: NDArray[np.uint8]) -> Image.Image:
    tile = Image.fromarray(image)
    tile.thumbnail((TILE, TILE), Image.Resampling.LANCZOS)
    return tile


def _shortened(draw: ImageDraw.ImageDraw, text: str) -> str:
    """Shorten a text in the middle to the width of a tile."""
    short = text
    while draw.textlength(short) > TILE and len(text) > 3:
        text = text[: len(text) // 2] + text[len(text) // 2 + 1 :]
        short = f"{text[: len(text) // 2]}…{text[len(text) // 2 :]}"
    return short
