"""Read and write a class map: a folder with `map.json`, the figure `map.png`, and `thumbnails.jpg`.

`map.json` is written last: a folder that has it is complete.
"""

import base64
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dino_model.data.framing import Framing
from dino_model.inference.class_map.layout import ClassMap, MappedClass, Origin, Overlap, Protocol
from dino_model.inference.class_map.names import GROUPS
from dino_model.runtime.files import as_tuples, replace_file

FORMAT = "DINO class map 2"
JSON, FIGURE, THUMBNAILS = "map.json", "map.png", "thumbnails.jpg"
THUMBNAIL_SIDE, THUMBNAIL_COLUMNS = 64, 16
"""Pixels of an image of `THUMBNAILS`, and images of its rows: one for each class, in their order."""
COLORS = (
    *("#c2410c", "#b08300", "#0284c7", "#0f8f80", "#b832c6", "#3f8f29"),
    *("#dc2668", "#6366f1", "#9a4ff0", "#8a6d4f", "#5f7d95", "#71802a", "#7b7b86"),
)
"""Color of each of `GROUPS`, with a contrast of at least 3 : 1 on white and on dark."""


def render(drawn: ClassMap, images: Sequence[NDArray[np.uint8]] = ()) -> dict[str, bytes]:
    """Return the contents of a map's files by name; `images` has an RGB image of every class, or none."""
    pictures = {THUMBNAILS: thumbnails(images)} if images else {}
    text = json.dumps(as_json(drawn), ensure_ascii=False) + "\n"
    return {**pictures, FIGURE: draw_figure(drawn), JSON: text.encode()}


def write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write the files of `render` to a folder, which is created if missing; replace a former map."""
    for name, content in contents.items():
        with replace_file(folder / name) as temporary:
            temporary.write_bytes(content)


def thumbnails(images: Sequence[NDArray[np.uint8]]) -> bytes:
    """Join the centers of RGB images [height, width, 3], row by row, as a JPEG."""
    side, columns = THUMBNAIL_SIDE, min(THUMBNAIL_COLUMNS, len(images))
    sheet = Image.new("RGB", (columns * side, -(-len(images) // columns) * side))
    for number, image in enumerate(images):
        small = ImageOps.fit(Image.fromarray(image), (side, side))
        sheet.paste(small, (number % columns * side, number // columns * side))
    stream = io.BytesIO()
    sheet.save(stream, "JPEG")
    return stream.getvalue()


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
        framing = {name: as_tuples(value) for name, value in content["origin"]["framing"].items()}
        classes = tuple(
            MappedClass(**{**each, "neighbors": as_tuples(each["neighbors"])}) for each in content["classes"]
        )
        for each in classes:
            if not math.isfinite(each.x + each.y) or any(
                not 0 <= i < len(classes) for i, _ in each.neighbors
            ):
                raise ValueError(f"class {each.key!r} has no position, or neighbors that do not exist")
        features = np.frombuffer(base64.b64decode(content["features"], validate=True), "<f2")
        return ClassMap(
            origin=Origin(**{**content["origin"], "framing": Framing(**framing)}),
            protocol=Protocol(**content["protocol"]),
            overlap=Overlap(**content["overlap"]),
            classes=classes,
            features=features.reshape(len(classes), -1).astype(np.float16),
        )
    except (KeyError, TypeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{folder / JSON} is no class map of this program: {reason}") from error


def as_json(drawn: ClassMap) -> dict[str, Any]:
    """Return a map as JSON types; features are base64 of little-endian float16, row after row."""
    features = base64.b64encode(drawn.features.astype("<f2").tobytes()).decode()
    return {"format": FORMAT, **asdict(drawn), "features": features}


def draw_figure(drawn: ClassMap) -> bytes:
    """Draw every class with its name, in the color of its group, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # half a second to import
    from matplotlib.figure import Figure

    many = len(drawn.classes) > 300
    figure = Figure(figsize=(24, 22) if many else (13, 12), layout="constrained")
    axes = figure.add_subplot()
    for group, color in zip(GROUPS, COLORS, strict=True):
        points = [point for point in drawn.classes if point.group == group]
        if points:
            axes.scatter([p.x for p in points], [p.y for p in points], c=color, label=group)
        for point in points:
            style: Any = {"textcoords": "offset points", "fontsize": 7, "color": color}
            axes.annotate(point.name, (point.x, point.y), (4, 3), **style)
    axes.set(xticks=[], yticks=[], aspect="equal", xlabel=str(drawn.protocol), frame_on=False)
    axes.set_title(f"{drawn.origin.data}, {drawn.origin.model}: {drawn.overlap}")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    stream = io.BytesIO()
    FigureCanvasAgg(figure).print_png(stream)
    return stream.getvalue()
