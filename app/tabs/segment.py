"""Segment: the objects of a photograph, found in several ways, beside a mask that the visitor draws."""

import base64
from pathlib import Path
from typing import Annotated

import gradio as gr
from fastapi import APIRouter, Depends, HTTPException, Response
from fastapi.responses import JSONResponse

from app import objects, photos
from app.engine import Encoding, Engine
from app.objects import FILES, Recipe
from app.routes import PRIVATE
from app.tabs import Start, Tab, chooser, stage
from app.tabs.stage import MODEL_TURN, Answer, asked_photo, look, sent_photo


def build(page: gr.Blocks, engine: Engine, start: Start) -> None:
    """Draw the tab and wire its events."""
    with chooser.row("segment"):
        photo = chooser.photograph("segment")
        model = chooser.model("segment-model", engine, start.model)
        size = chooser.size("segment-size", start.size)
    facts = {
        "examples": stage.examples(),
        "objects": objects.COLORS.tolist(),
        "maxBytes": engine.limits.max_upload_bytes,
    }
    shown = stage.draw("segment", ["open"], facts)
    held = gr.State(None, time_to_live=3600)  # token of what this visitor looks at
    first = photos.example(start.example)

    def open_asked(model: str, size: int, held: str | None, event: gr.EventData) -> Answer:
        return look(engine, asked_photo(engine, event._data, first), model, size, held)

    def open_file(path: Path, model: str, size: int, held: str | None) -> Answer:
        return look(engine, sent_photo(engine, path), model, size, held)

    def look_again(model: str, size: int, held: str | None) -> Answer:
        return look(engine, asked_photo(engine, {"token": held}, first), model, size, held)

    asked, answered = [model, size, held], [shown, held]
    shown.open(open_asked, asked, answered, **MODEL_TURN)
    photo.upload(open_file, [photo, *asked], answered, **MODEL_TURN)
    gr.on([model.change, size.change], look_again, asked, answered, **MODEL_TURN)


def object_routes(engine: Engine) -> APIRouter:
    """Addresses under /lab/encodings/TOKEN/objects: what was found, as data and as files."""
    router = APIRouter(prefix="/lab/encodings/{token}/objects")

    def behind(token: str) -> Encoding:
        return engine.encoding(token)

    def find(encoding: Encoding, recipe: Recipe) -> list[objects.Discovery]:
        return objects.find(encoding, engine.queries_keys(encoding, encoding.blocks - 1), recipe)

    @router.get("/found")
    def found(
        encoding: Annotated[Encoding, Depends(behind)], recipe: Annotated[Recipe, Depends()]
    ) -> Response:
        """Labels as the stage shows them, base64 of a byte per cell; seeds as row and column of a patch."""
        discovered = find(encoding, recipe)
        labels = objects.labels_of(discovered, encoding.grid)
        if recipe.refined:
            labels = objects.refine(labels, encoding.picture, objects.refined_size(encoding.picture))
        content = {
            "rows": labels.shape[0],
            "columns": labels.shape[1],
            "labels": base64.b64encode(labels.tobytes()).decode(),
            "seeds": [one.seed for one in discovered],
        }
        return JSONResponse(content, headers=PRIVATE)

    @router.get("/{file}")
    def download(
        encoding: Annotated[Encoding, Depends(behind)], recipe: Annotated[Recipe, Depends()], file: str
    ) -> Response:
        if file not in FILES:
            raise HTTPException(404, f"There is no file of that name: choose one of {', '.join(FILES)}.")
        media_type, make = FILES[file]
        labels = objects.labels_of(find(encoding, recipe), encoding.grid)
        content = make(encoding.picture, objects.in_pixels(labels, encoding.picture, recipe.refined))
        name = f"{encoding.photo.stem}-{recipe.method}-{file}"
        return Response(
            content,
            media_type=media_type,
            headers=PRIVATE | {"Content-Disposition": f'attachment; filename="{name}"'},
        )

    return router


TAB = Tab("Segment", build, style="segment.css", routes=object_routes)
