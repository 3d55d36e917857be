"""Explore: a photograph, and where every head looks from any of its patches."""

import base64
import io
import time
from pathlib import Path
from typing import Any

import gradio as gr
import matplotlib
import numpy as np
from PIL import Image

from app import photos
from app.engine import Encoding, Engine, LabError
from app.limits import MEGABYTE
from app.photos import EXAMPLES, Photo
from app.tabs import Start, Tab, chooser
from app.view import COLORMAPS, DIVERGING, PIN_COLORS, SUMMARY_COLOR
from segmentation.render import head_colors

STATIC = Path(__file__).parents[1] / "static"
THUMBNAIL = 96  # pixels of each side

# Gradio runs this once, with what a component's script may use. The quoted word names the event for Python.
SCRIPT = """
import(new URL("lab/static/explore.js", document.baseURI)).then(({ mount }) =>
  mount({ element, props, watch, openExample: (name) => trigger("example", { name }) }));
"""

Answer = tuple[dict[str, Any], str | None]
"""What the stage is told, and the token that the visitor holds from now on."""


def build(page: gr.Blocks, engine: Engine, start: Start) -> None:
    """Draw the tab and wire its events."""
    with chooser.row("explore"):
        photo = chooser.photograph("explore")
        model = chooser.model("explore-model", engine, start.model)
        size = chooser.size("explore-size", start.size)
    stage = gr.HTML(
        html_template=(STATIC / "explore.html").read_text(encoding="utf-8"),
        js_on_load=SCRIPT,
        apply_default_css=False,
        elem_id="explore",
        facts=stage_facts() | {"maxBytes": engine.limits.max_upload_bytes},
    )
    held = gr.State(None, time_to_live=3600)  # token of what this visitor looks at
    first = photos.example(start.example)

    def open_first(model: str, size: int) -> Answer:
        return look(engine, first, model, size, None)

    def open_file(path: Path, model: str, size: int, held: str | None) -> Answer:
        max_pixels = engine.limits.max_megapixels * MEGABYTE
        return look(engine, photos.from_file(path, max_pixels=max_pixels), model, size, held)

    def open_example(model: str, size: int, held: str | None, event: gr.EventData) -> Answer:
        name = event._data.get("name")
        return look(engine, photos.example(name) if name in EXAMPLES else first, model, size, held)

    def look_again(model: str, size: int, held: str | None) -> Answer:
        try:
            return look(engine, engine.encoding(held).photo if held else first, model, size, held)
        except LabError as error:
            return _refusal(error), held

    # One photograph at a time goes through the model; the newest choice of a visitor is shown last.
    queued: dict[str, Any] = {
        "outputs": [stage, held],
        "concurrency_id": "model",
        "concurrency_limit": 1,
        "trigger_mode": "multiple",
        "api_visibility": "private",
    }
    page.load(open_first, [model, size], **queued)
    photo.upload(open_file, [photo, model, size, held], **queued)
    stage.example(open_example, [model, size, held], **queued)
    gr.on([model.change, size.change], look_again, [model, size, held], **queued)


def look(engine: Engine, photo: Photo, model: str, size: int, held: str | None) -> Answer:
    """Encode a photograph for a visitor; one sentence when that cannot be, and what was held stays."""
    try:
        token = engine.encode(photo, model, size)
        return stage_value(token, engine.encoding(token)), token
    except LabError as error:
        return _refusal(error), held


def stage_value(token: str, encoding: Encoding) -> dict[str, Any]:
    """What the browser is told of an encoding: numbers and words; pixels it fetches by the token."""
    height, width = encoding.picture.shape[:2]
    rows, columns = encoding.grid
    return {
        "token": token,
        "key": "/".join(map(str, encoding.key)),
        "name": encoding.name,
        "example": encoding.example,
        "width": width,
        "height": height,
        "rows": rows,
        "columns": columns,
        "heads": encoding.heads,
        "blocks": encoding.blocks,
        "prefix": encoding.prefix_tokens,
        "random": encoding.model.startswith("random:"),
        "facts": [
            ["Model", encoding.model],
            ["Weights", encoding.source],
            ["Network", f"{encoding.blocks} blocks of {encoding.heads} heads"],
            [
                "Picture",
                f"{width} × {height} pixels, seen at {encoding.input_size[1]} × {encoding.input_size[0]}",
            ],
            ["Grid", f"{columns} × {rows} patches of {encoding.patch_size} pixels"],
            ["Precision", f"{encoding.precision} on {encoding.device}"],
            ["Encoded in", f"{encoding.seconds:.2f} s"],
        ],
    }


def stage_facts() -> dict[str, Any]:
    """What the browser is told once: colours, and the examples with their thumbnails."""
    return {
        "colormaps": {name: base64.b64encode(_colors(name)).decode() for name in COLORMAPS},
        "heads": head_colors(24).tolist(),
        "summary": list(SUMMARY_COLOR),
        "diverging": list(DIVERGING),
        "pins": list(PIN_COLORS),
        "examples": [
            {"name": name, "title": title, "thumbnail": _thumbnail(photos.example(name))}
            for name, title in EXAMPLES.items()
        ],
    }


def _refusal(error: LabError) -> dict[str, Any]:
    return {"error": str(error), "at": time.time()}  # the time makes it news even when it is the same again


def _colors(name: str) -> bytes:
    """256 colours, three bytes each."""
    return (matplotlib.colormaps[name](np.arange(256))[:, :3] * 255).round().astype(np.uint8).tobytes()


def _thumbnail(photo: Photo) -> str:
    """A small square JPEG as a data address."""
    image = Image.fromarray(photo.read())
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    buffer = io.BytesIO()
    box = (left, top, left + side, top + side)
    image.resize((THUMBNAIL, THUMBNAIL), box=box).save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


TAB = Tab("Explore", build, style="explore.css")
