"""Style of the figures of training: curves differ without color, too."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

from dino_model.runtime import files

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
"""Colors of Okabe and Ito's palette, which color-blind readers can distinguish."""
LINES = ("-", "--", "-.", ":")
STYLE: Any = {
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=COLORS, linestyle=LINES),
    "axes.spines.right": False,
    "axes.spines.top": False,
}
style = mpl.rc_context
"""Context manager that applies a style to what is drawn in it."""


def create_page(rows: int, columns: int, title: str, *, width: float, height: float) -> tuple[Figure, Any]:
    """A figure and its axes [rows, columns], each row so high, in inches; draw within `style(STYLE)`."""
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    figure.suptitle(files.printable(title))
    return figure, figure.subplots(rows, columns, squeeze=False)


def curve(axes: Axes, points: Sequence[tuple[float, float]], label: str, number: int) -> None:
    """Draw one curve of (step, value); many steps are drawn as running means."""
    steps, values = np.array(points, dtype=float).T
    window = max(1, len(values) // 60)
    smooth = np.convolve(values, np.ones(window) / window, mode="valid")
    color, line = COLORS[number % len(COLORS)], LINES[number % len(LINES)]
    axes.plot(steps[window - 1 :], smooth, label=label, color=color, linestyle=line)


def save(figure: Figure, path: Path) -> None:
    """Write the figure as PNG, whole or not at all."""
    with files.replace_file(path) as temporary:
        figure.savefig(temporary, format="png")
