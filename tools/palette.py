"""The colors of drawings in the browser: `python -m tools.palette` writes app/static/views/palette.js."""

import base64
import json
from typing import Any

from app import STATIC
from app.handlers import objects
from segmentation.drawing import color_table, head_colors

COLORMAPS = ("inferno", "viridis", "gray", "coolwarm")
DIVERGING = ("coolwarm",)  # color maps with zero in the middle
SUMMARY_COLORS = {"mean": (255, 0, 255), "max": (255, 255, 255)}
"""Colors of the mean and the maximum of the heads; no head has them."""
PIN_COLORS = ("#f97316", "#38bdf8", "#facc15", "#34d399", "#f472b6", "#a3e635", "#c084fc", "#fb7185")
FILE = STATIC / "views" / "palette.js"


def colors() -> dict[str, Any]:
    """Return color maps of 256 × 3 bytes in base64, and the colors of heads, pins and objects."""
    return {
        "colormaps": {name: base64.b64encode(color_table(name).tobytes()).decode() for name in COLORMAPS},
        "heads": head_colors(24).tolist(),
        "summary": SUMMARY_COLORS,
        "diverging": DIVERGING,
        "pins": PIN_COLORS,
        "objects": objects.COLORS.tolist(),
    }


def module() -> str:
    """Return the text of palette.js."""
    lines = "\n".join(f"  {name}: {json.dumps(value)}," for name, value in colors().items())
    head = "// Written by `python -m tools.palette`.\n\n// prettier-ignore\n"
    return f"{head}export const COLORS = {{\n{lines}\n}};\n"


if __name__ == "__main__":
    FILE.write_text(module(), encoding="utf-8")
