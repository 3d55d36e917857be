"""Read and write a class map: a folder with JSON, CSV, a figure and thumbnails.

`map.json` is written last: a folder that has it is complete.
"""

import base64
import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dino_model.class_map.layout import ClassMap, MappedClass, Origin, Overlap, Protocol, Sprite
from dino_model.class_map.names import GROUPS
from dino_model.files import replacing, write_text
from dino_model.views import View

FORMAT = "DINO class map 1"
JSON, CSV, FIGURE, THUMBNAILS = "map.json", "map.csv", "map.png", "thumbnails.webp"
THUMBNAIL_SIDE = 64
COLORS = (
    *("#c2410c", "#b08300", "#0284c7", "#0f8f80", "#b832c6", "#3f8f29"),
    *("#dc2668", "#6366f1", "#9a4ff0", "#8a6d4f", "#5f7d95", "#71802a", "#7b7b86"),
)
"""Color of each of `GROUPS`, with a contrast of at least 3 : 1 on white and on dark."""


def write(folder: Path, drawn: ClassMap, pictures: Sequence[NDArray[np.uint8]] | None = None) -> ClassMap:
    """Write a map, with thumbnails if there is an image of each class; replace a former map.

    Args:
        folder: Created if missing.
        drawn: The map.
        pictures: uint8 [height, width, 3], one for each class.

    Returns:
        The map as it was written.
    """
    sheet, sprite = (b"", None) if pictures is None else thumbnail_sheet(pictures)
    drawn = replace(drawn, thumbnails=sprite)
    for name, content in {FIGURE: figure_png(drawn), THUMBNAILS: sheet}.items():
        with replacing(folder / name) as beside:
            beside.write_bytes(content)
    if not sheet:
        (folder / THUMBNAILS).unlink()
    write_text(folder / CSV, as_csv(drawn))
    write_text(folder / JSON, json.dumps(as_json(drawn), ensure_ascii=False) + "\n")
    return drawn


def read(folder: Path) -> ClassMap:
    """Read a map from a folder.

    Raises:
        ValueError: No map of this format.
        OSError: It cannot be read.
    """
    try:
        content = json.loads((folder / JSON).read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"found format {content['format']!r}, expected {FORMAT!r}")
        return _from_json(content)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{folder / JSON} is no class map of this program: {reason}") from error


def as_json(drawn: ClassMap) -> dict[str, Any]:
    """Return a map as JSON types; features are base64 of little-endian float16, row after row."""
    return {
        "format": FORMAT,
        **asdict(drawn),
        "features": base64.b64encode(drawn.features.astype("<f2").tobytes()).decode(),
    }


def as_csv(drawn: ClassMap) -> str:
    """Return a line for each class; its nearest classes are separated by "; "."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["class", "name", "group", "pictures", "x", "y", "nearest classes", "cosine distances"])
    for point in drawn.classes:
        near = "; ".join(drawn.classes[index].key for index, _ in point.neighbours)
        far = "; ".join(f"{distance:.5f}" for _, distance in point.neighbours)
        place = (f"{point.x:.4f}", f"{point.y:.4f}")
        table.writerow([point.key, point.name, point.group, point.pictures, *place, near, far])
    return text.getvalue()


def thumbnail_sheet(pictures: Sequence[NDArray[np.uint8]]) -> tuple[bytes, Sprite]:
    """Encode the center squares of all images in one WebP file."""
    side, columns = THUMBNAIL_SIDE, math.ceil(math.sqrt(len(pictures)))
    sheet = Image.new("RGB", (columns * side, math.ceil(len(pictures) / columns) * side))
    for index, picture in enumerate(pictures):
        row, column = divmod(index, columns)
        square = ImageOps.fit(Image.fromarray(picture), (side, side), Image.Resampling.LANCZOS)
        sheet.paste(square, (column * side, row * side))
    buffer = io.BytesIO()
    sheet.save(buffer, "WEBP", quality=80)
    return buffer.getvalue(), Sprite(side, columns)


def figure_png(drawn: ClassMap) -> bytes:
    """Draw every class with its name, in the color of its group."""
    many = len(drawn.classes) > 300
    figure = Figure(figsize=(24, 22) if many else (13, 12), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    for group, color in zip(GROUPS, COLORS, strict=True):
        points = [point for point in drawn.classes if point.group == group]
        if points:
            axes.scatter([p.x for p in points], [p.y for p in points], s=30, c=color, label=group)
        for point in points:
            style: Any = {"textcoords": "offset points", "fontsize": 6 if many else 8, "color": color}
            axes.annotate(point.name, (point.x, point.y), (4, 3), **style)
    axes.set(xticks=[], yticks=[], aspect="equal", xlabel=str(drawn.protocol), frame_on=False)
    axes.set_title(f"{drawn.origin.data}, {drawn.origin.model}: {drawn.overlap}", fontsize=11)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()


def _from_json(content: dict[str, Any]) -> ClassMap:
    origin, thumbnails = content["origin"], content["thumbnails"]
    view: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in origin["view"].items()
    }
    classes = tuple(_class_from_json(point, len(content["classes"])) for point in content["classes"])
    features = np.frombuffer(base64.b64decode(content["features"], validate=True), "<f2")
    return ClassMap(
        origin=Origin(**{**origin, "view": View(**view)}),
        protocol=Protocol(**content["protocol"]),
        overlap=Overlap(**content["overlap"]),
        classes=classes,
        features=features.reshape(len(classes), -1).astype(np.float16),
        thumbnails=None if thumbnails is None else Sprite(**thumbnails),
    )


def _class_from_json(point: dict[str, Any], classes: int) -> MappedClass:
    neighbours = tuple((int(index), float(distance)) for index, distance in point["neighbours"])
    x, y = float(point["x"]), float(point["y"])
    if not (math.isfinite(x) and math.isfinite(y)) or any(not 0 <= i < classes for i, _ in neighbours):
        raise ValueError(f"class {point['key']!r} has no position, or neighbors that do not exist")
    return MappedClass(**{**point, "x": x, "y": y, "neighbours": neighbours})
