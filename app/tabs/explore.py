"""Explore: a photograph, and where every head looks from any of its patches."""

from pathlib import Path

import gradio as gr

from app import photos
from app.engine import Engine, LabError
from app.tabs import Start, Tab, chooser, stage
from app.tabs.stage import MODEL_TURN, Answer, asked_photo, look, sent_photo


def build(page: gr.Blocks, engine: Engine, start: Start) -> None:
    """Draw the tab and wire its events."""
    with chooser.row("explore"):
        photo = chooser.photograph("explore")
        model = chooser.model("explore-model", engine, start.model)
        size = chooser.size("explore-size", start.size)
    facts = {"examples": stage.examples(), "maxBytes": engine.limits.max_upload_bytes}
    shown = stage.draw("explore", ["open"], stage.colors() | facts)
    held = gr.State(None, time_to_live=3600)  # token of what this visitor looks at
    first = photos.example(start.example)

    def open_first(model: str, size: int) -> Answer:
        return look(engine, first, model, size, None)

    def open_file(path: Path, model: str, size: int, held: str | None) -> Answer:
        return look(engine, sent_photo(engine, path), model, size, held)

    def open_asked(model: str, size: int, held: str | None, event: gr.EventData) -> Answer:
        return look(engine, asked_photo(engine, event._data, first), model, size, held)

    def look_again(model: str, size: int, held: str | None) -> Answer:
        try:
            return look(engine, engine.encoding(held).photo if held else first, model, size, held)
        except LabError as error:
            return stage.refusal(error), held

    asked, answered = [model, size, held], [shown, held]
    page.load(open_first, [model, size], answered, **MODEL_TURN)
    photo.upload(open_file, [photo, *asked], answered, **MODEL_TURN)
    shown.open(open_asked, asked, answered, **MODEL_TURN)
    gr.on([model.change, size.change], look_again, asked, answered, **MODEL_TURN)


TAB = Tab("Explore", build, style="explore.css")
