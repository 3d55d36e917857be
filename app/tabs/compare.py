"""Compare: two models look at one photograph, side by side, under one cursor."""

from pathlib import Path
from typing import Annotated

import gradio as gr
from fastapi import APIRouter, Depends, Response

from app import figure, photos
from app.engine import Engine, LabError
from app.figure import Figure
from app.photos import Photo
from app.routes import PRIVATE
from app.tabs import Start, Tab, chooser, stage
from app.tabs.stage import MODEL_TURN, Answer, asked_photo, sent_photo

SECOND_MODELS = ("random:embedded", "embedded")  # what the first is compared with, unless it is the same


def build(page: gr.Blocks, engine: Engine, start: Start) -> None:
    """Draw the tab and wire its events."""
    second = next(name for name in SECOND_MODELS if name != start.model)
    with chooser.row("compare"):
        photo = chooser.photograph("compare")
        left = chooser.model("compare-left", engine, start.model, "Left model")
        right = chooser.model("compare-right", engine, second, "Right model")
        size = chooser.size("compare-size", start.size)
    facts = {"examples": stage.examples(), "maxBytes": engine.limits.max_upload_bytes}
    shown = stage.draw("compare", ["open"], stage.colors() | facts)
    held = gr.State(None, time_to_live=3600)  # token of what this visitor looks at with the left model
    first = photos.example(start.example)

    def open_asked(left: str, right: str, size: int, held: str | None, event: gr.EventData) -> Answer:
        return look(engine, asked_photo(engine, event._data, first), (left, right), size, held)

    def open_file(path: Path, left: str, right: str, size: int, held: str | None) -> Answer:
        return look(engine, sent_photo(engine, path), (left, right), size, held)

    def look_again(left: str, right: str, size: int, held: str | None) -> Answer:
        return look(engine, asked_photo(engine, {"token": held}, first), (left, right), size, held)

    asked, answered = [left, right, size, held], [shown, held]
    shown.open(open_asked, asked, answered, **MODEL_TURN)
    photo.upload(open_file, [photo, *asked], answered, **MODEL_TURN)
    gr.on([left.change, right.change, size.change], look_again, asked, answered, **MODEL_TURN)


def look(engine: Engine, photo: Photo, models: tuple[str, str], size: int, held: str | None) -> Answer:
    """Encode a photograph with both models; one sentence when that cannot be, and what was held stays."""
    try:
        tokens = [engine.encode(photo, model, size) for model in models]
        left, right = (stage.told(token, engine.encoding(token)) for token in tokens)
        return {"token": tokens[0], "left": left, "right": right}, tokens[0]
    except LabError as error:
        return stage.refusal(error), held


def figure_routes(engine: Engine) -> APIRouter:
    """The address of the figure under /lab/compare."""
    router = APIRouter(prefix="/lab/compare")

    @router.get("/figure.png")
    def draw(asked: Annotated[Figure, Depends()]) -> Response:
        encodings = [engine.encoding(token) for token in (asked.left, asked.right)]
        blocks = [engine.queries_keys(encoding, encoding.blocks - 1) for encoding in encodings]
        name = f"{encodings[0].photo.stem}-compared.png"
        return Response(
            figure.png(encodings, blocks, asked),
            media_type="image/png",
            headers=PRIVATE | {"Content-Disposition": f'attachment; filename="{name}"'},
        )

    return router


TAB = Tab("Compare", build, style="compare.css", routes=figure_routes)
