"""Segment: the objects of a photograph, found in several ways, beside a mask that the visitor draws."""

import base64
from pathlib import Path
from typing import Annotated, Any

import gradio as gr
from fastapi import APIRouter, Depends, HTTPException, Response
from fastapi.responses import JSONResponse

from app import objects, photos
from app.engine import Encoding, Engine, LabError
from app.limits import MEGABYTE
from app.objects import FILES, Recipe
from app.photos import EXAMPLES, Photo
from app.routes import PRIVATE
from app.tabs import Start, Tab, chooser
from app.tabs.explore import Answer, look, stage_facts

STATIC = Path(__file__).parents[1] / "static"

# Gradio runs this once, when the tab is first shown. The quoted word names the event for Python.
SCRIPT = """
import(new URL("lab/static/segment.js", document.baseURI)).then(({ mount }) =>
  mount({ element, props, watch, open: (asked) => trigger("open", asked) }));
"""


def build(page: gr.Blocks, engine: Engine, start: Start) -> None:
    """Draw the tab and wire its events."""
    with chooser.row("segment"):
        photo = chooser.photograph("segment")
        model = chooser.model("segment-model", engine, start.model)
        size = chooser.size("segment-size", start.size)
    stage = gr.HTML(
        html_template=(STATIC / "segment.html").read_text(encoding="utf-8"),
        js_on_load=SCRIPT,
        apply_default_css=False,
        elem_id="segment",
        elem_classes="lab-busy",
        facts=stage_facts()
        | {"objects": objects.COLORS.tolist(), "maxBytes": engine.limits.max_upload_bytes},
    )
    held = gr.State(None, time_to_live=3600)  # token of what this visitor looks at
    first = photos.example(start.example)

    def open_asked(model: str, size: int, held: str | None, event: gr.EventData) -> Answer:
        return look(engine, asked_photo(engine, event._data, first), model, size, held)

    def open_file(path: Path, model: str, size: int, held: str | None) -> Answer:
        max_pixels = engine.limits.max_megapixels * MEGABYTE
        return look(engine, photos.from_file(path, max_pixels=max_pixels), model, size, held)

    def look_again(model: str, size: int, held: str | None) -> Answer:
        return look(engine, asked_photo(engine, {"token": held}, first), model, size, held)

    queued: dict[str, Any] = {
        "outputs": [stage, held],
        "concurrency_id": "model",
        "concurrency_limit": 1,
        "trigger_mode": "multiple",
        "api_visibility": "private",
    }
    stage.open(open_asked, [model, size, held], **queued)
    photo.upload(open_file, [photo, model, size, held], **queued)
    gr.on([model.change, size.change], look_again, [model, size, held], **queued)


def asked_photo(engine: Engine, asked: dict[str, Any], first: Photo) -> Photo:
    """The example or the encoded photograph a visitor names; `first` where it is neither."""
    if asked.get("example") in EXAMPLES:
        return photos.example(asked["example"])
    try:
        return engine.encoding(str(asked.get("token"))).photo
    except LabError:
        return first


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
