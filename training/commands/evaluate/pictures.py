"""Figures and contact sheets of the evaluations, as files."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dino_model import files

TILE = 112
"""Side of a contact sheet's pictures in pixels."""
_MARGIN, _LINE = 6, 16


def curves(
    path: Path, lines: Mapping[str, Sequence[tuple[float, float]]], *, title: str, across: str, up: str
) -> None:
    """Lines over a logarithmic axis.

    Args:
        path: file to write (.png).
        lines: name of each, and its points.
        title, across, up: what is seen.
    """
    figure = Figure(figsize=(8, 5), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    for name, points in lines.items():
        x, y = zip(*points, strict=True)
        axes.plot(x, y, marker="o", markersize=4, label=name)
    axes.set(xscale="log", xlabel=across, ylabel=up)
    axes.set_title(title, fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    _save(path, figure)


def confusion_chart(path: Path, counts: NDArray[np.integer], names: Sequence[str], *, title: str) -> None:
    """What was taken for what: the classes with most mistakes, and the names that they were given.

    Args:
        path: file to write (.png).
        counts: pictures of each class (row) by the name they were given (column): [classes, classes].
        names: of the classes.
        title: what is seen.
    """
    wrong = counts - np.diag(np.diag(counts))
    most = np.argsort(-(wrong.sum(axis=0) + wrong.sum(axis=1)), kind="stable")[:30]
    most = most[np.argsort([names[i] for i in most])]
    shares = counts[np.ix_(most, most)] / np.maximum(1, counts[most].sum(axis=1, keepdims=True))
    figure = Figure(figsize=(10, 9), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    shown = axes.imshow(100 * shares, cmap="viridis", vmin=0, vmax=100)
    ticks = range(len(most))
    axes.set_xticks(ticks, [names[i] for i in most], rotation=90, fontsize=8)
    axes.set_yticks(ticks, [names[i] for i in most], fontsize=8)
    axes.set(xlabel="named", ylabel="class")
    few = f"the {len(most)} of {len(names)} classes with most mistakes" if len(most) < len(names) else "all"
    axes.set_title(f"{title}: {few}", fontsize=11, loc="left")
    figure.colorbar(shown, label="% of the class", shrink=0.6)
    _save(path, figure)


def contact_sheet(path: Path, rows: Sequence[Sequence[tuple[NDArray[np.uint8], str]]]) -> None:
    """Rows of small pictures, each with a line below it.

    Args:
        path: file to write (.jpg or .png).
        rows: pictures uint8 [height, width, 3] and what is said of each.
    """
    small = [[(_thumbnail(picture), told) for picture, told in row] for row in rows]
    heights = [max(tile.height for tile, _ in row) for row in small]
    across, columns = TILE + _MARGIN, max(len(row) for row in rows)
    down = sum(heights) + len(rows) * (_LINE + _MARGIN)
    sheet = Image.new("RGB", (columns * across + _MARGIN, down + _MARGIN), "white")
    draw, top = ImageDraw.Draw(sheet), _MARGIN
    for tiles, height in zip(small, heights, strict=True):
        for column, (tile, told) in enumerate(tiles):
            left = _MARGIN + column * across
            sheet.paste(tile, (left + (TILE - tile.width) // 2, top + height - tile.height))
            draw.text((left, top + height + 2), _fitted(draw, told), fill="black")
        top += height + _LINE + _MARGIN
    with files.replacing(path) as beside:
        sheet.save(beside, quality=90)


def _thumbnail(picture: NDArray[np.uint8]) -> Image.Image:
    tile = Image.fromarray(picture)
    tile.thumbnail((TILE, TILE), Image.Resampling.LANCZOS)
    return tile


def _fitted(draw: ImageDraw.ImageDraw, text: str) -> str:
    """The text, shortened in the middle to the width of a tile."""
    short = text
    while draw.textlength(short) > TILE and len(text) > 3:
        text = text[: len(text) // 2] + text[len(text) // 2 + 1 :]
        short = f"{text[: len(text) // 2]}…{text[len(text) // 2 :]}"
    return short


def _save(path: Path, figure: Figure) -> None:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    with files.replacing(path) as beside:
        beside.write_bytes(buffer.getvalue())
