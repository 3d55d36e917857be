"""Below a tab's toolbar: the stage that a script of `app/static` draws, and what it is told of pictures."""

import base64
import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import matplotlib
import numpy as np
from PIL import Image

from app import photos
from app.engine import Encoding, Engine, LabError
from app.photos import EXAMPLES, Photo
from app.view import COLORMAPS, DIVERGING, PIN_COLORS, SUMMARY_COLOR
from segmentation.render import head_colors

STATIC = Path(__file__).parents[1] / "static"
THUMBNAIL = 96  # pixels of each side

MODEL_TURN: dict[str, Any] = {
    "concurrency_id": "model",
    "concurrency_limit": 1,
    "trigger_mode": "multiple",
    "api_visibility": "private",
}
"""Of events that need the model: one photograph at a time; a visitor's newest choice is shown last."""

Answer = tuple[dict[str, Any], str | None]
"""What the stage is told, and the token that the visitor holds from now on."""


def draw(
    name: str, events: Sequence[str], facts: dict[str, Any], value: dict[str, Any] | None = None
) -> gr.HTML:
    """The markup of `app/static/NAME.html`, driven by `mount({element, props, watch, send})` of `NAME.js`.

    Args:
        name: of both files; the element's id, with hyphens.
        events: what the script sends, as `send.EVENT(asked)` with plain data; `stage.EVENT(…)` answers.
        facts, value: the script's `props`: told once; told first, then replaced by every answer.
    """
    # Gradio runs this once, when the tab is first shown; the quoted words name the events for Python.
    send = ", ".join(f'{event}: (asked) => trigger("{event}", asked)' for event in events)
    script = f"""
    import(new URL("lab/static/{name}.js", document.baseURI)).then(({{ mount }}) =>
      mount({{ element, props, watch, send: {{ {send} }} }}));
    """
    return gr.HTML(
        value=value,
        html_template=(STATIC / f"{name}.html").read_text(encoding="utf-8"),
        js_on_load=script,
        apply_default_css=False,
        elem_id=name.replace("_", "-"),
        elem_classes="lab-busy",
        facts=facts,
    )


def asked_photo(engine: Engine, asked: Any, otherwise: Photo) -> Photo:
    """The example or the encoded photograph that a script names, as {example} or {token}."""
    asked = asked if isinstance(asked, dict) else {}
    if asked.get("example") in EXAMPLES:
        return photos.example(asked["example"])
    try:
        return engine.encoding(str(asked.get("token"))).photo
    except LabError:
        return otherwise


def sent_photo(engine: Engine, path: Path) -> Photo:
    """A file that a visitor uploaded, within the limits."""
    return photos.from_file(path, max_pixels=engine.limits.max_pixels)


def look(engine: Engine, photo: Photo, model: str, size: int, held: str | None) -> Answer:
    """Encode a photograph for a visitor; one sentence when that cannot be, and what was held stays."""
    try:
        token = engine.encode(photo, model, size)
        return told(token, engine.encoding(token)), token
    except LabError as error:
        return refusal(error), held


def answer_looks(stage: gr.HTML, engine: Engine, example: str, size: int) -> None:
    """Let a script ask, as `send.look({model, example})`, for an example seen by a model.

    The answer becomes the stage's value: an encoding, or one sentence why there is none.

    Args:
        stage: as `draw` made it, with the event "look".
        engine: encodes.
        example: taken where the script names none.
        size: pixels of the short side that the model sees.
    """

    def answer(event: gr.EventData) -> dict[str, Any]:
        asked = event._data if isinstance(event._data, dict) else {}
        photo = asked_photo(engine, {"example": asked.get("example")}, photos.example(example))
        value, _ = look(engine, photo, str(asked.get("model")), size, None)
        return value

    # Minimal progress says how many wait; the picture stays.
    stage.look(answer, None, stage, show_progress="minimal", **MODEL_TURN)


def refusal(error: LabError) -> dict[str, Any]:
    """A sentence for the stage to say."""
    return {"error": str(error), "at": time.time()}  # the time makes it news even when it is the same again


def told(token: str, encoding: Encoding) -> dict[str, Any]:
    """What a script is told of an encoding: numbers and words; pixels it fetches by the token."""
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


def colors() -> dict[str, Any]:
    """What a script draws maps with: colour maps of 256 × 3 bytes in base64, colours of heads and pins."""
    return {
        "colormaps": {name: base64.b64encode(_bytes(name)).decode() for name in COLORMAPS},
        "heads": head_colors(24).tolist(),
        "summary": list(SUMMARY_COLOR),
        "diverging": list(DIVERGING),
        "pins": list(PIN_COLORS),
    }


def examples() -> list[dict[str, str]]:
    """The photographs that are one click away: name, title, and a thumbnail as a data address."""
    return [
        {"name": name, "title": title, "thumbnail": _thumbnail(photos.example(name))}
        for name, title in EXAMPLES.items()
    ]


def _bytes(colormap: str) -> bytes:
    return (matplotlib.colormaps[colormap](np.arange(256))[:, :3] * 255).round().astype(np.uint8).tobytes()


def _thumbnail(photo: Photo) -> str:
    image = Image.fromarray(photo.read())
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    buffer = io.BytesIO()
    box = (left, top, left + side, top + side)
    image.resize((THUMBNAIL, THUMBNAIL), box=box).save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
