"""The tab Segment: objects by a click, attention, LOST, TokenCut or MaskCut, and their scores."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import gradio as gr
from pydantic import Field

from app.handlers import objects, scribbles
from app.handlers.objects import ObjectSettings
from app.limits import fairness
from app.page import HEAVY, LIGHT, Page, export_button, inspector, segments, work
from app.store.backend import Backend
from app.store.clips import runs_of
from app.store.images import stem
from app.tabs.explore import set_each

TITLE = "Segment"
WAYS = [("Objects", "objects"), ("Scribbles", "scribbles")]
USES = ("image", "model", "size")


class ObjectsRequest(ObjectSettings):
    """Settings with the token of an encoding, a key that the answer repeats, and the wanted file."""

    token: str
    key: str = Field(default="", max_length=200)
    name: str = "image"
    file: Literal["labels.png", "masks.json"] = "labels.png"


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    with work():
        places: dict[str, Any] = {"aside": "segment-aside", "methods": objects.method_choices()}
        view = page.view("mask", elem_id="segment", address=["method"], **places)
        page.views.append(view)
        strokes = page.view("scribble", elem_id="scribbles", aside="scribbles-aside")
        page.views.append(strokes)
    with inspector():
        way = segments(WAYS, label="Segment by", elem_id="way")
        way.change(None, way, None, js="(way) => { document.body.dataset.segment = way; }", **LIGHT)
        with gr.Column(elem_classes="of-objects", min_width=0):
            page.aside("segment-aside")
            settings = {
                "reach": gr.Slider(
                    50, 99, 90, step=1, label="Key similarity kept (%)", elem_classes=["by-hand"]
                ),
                "mass": gr.Slider(
                    10, 100, 60, step=1, label="Attention kept (%)", elem_classes=["by-attention"]
                ),
                "count": gr.Slider(
                    1, objects.MOST_OBJECTS, 3, step=1, label="Most objects", elem_classes=["by-cuts"]
                ),
                "refined": gr.Checkbox(False, label="Edges follow the image", elem_classes=["computed"]),
            }  # the style sheet hides those that a method does not use
            set_each(["segment"], settings)
            export_button("segment")
        page.save(view.exported, partial(objects_file, page.backend), "viewOf('segment').exportRequest")
        with gr.Column(elem_classes="of-scribbles", min_width=0):
            page.aside("scribbles-aside")
            export_button("scribbles")

    page.save(
        strokes.exported, partial(scribbles.export_file, page.backend), "viewOf('scribbles').exportRequest"
    )
    segment = fairness.in_turn(_update(scribbles.segment_image, page.backend), turns=fairness.READING)
    strokes.edited(segment, page.request, strokes, js="() => [viewOf('scribbles').request]", **HEAVY)
    find = fairness.in_turn(_update(find_objects, page.backend), turns=fairness.FINDING)
    found = view.edited(find, page.request, view, js="() => [viewOf('segment').searchRequest]", **HEAVY)
    found.failure(None, js="() => viewOf('segment').failed()")


def _update(find: Callable[[Backend, object], dict[str, Any]], backend: Backend) -> Callable[[object], Any]:
    """Return a handler that sends the answer of `find` to a view; a view without a request gets none."""
    return lambda request: gr.skip() if request is None else gr.HTML(found=find(backend, request))


def find_objects(backend: Backend, raw_request: object) -> dict[str, Any]:
    """Compute the objects that the view requests; `raw_request` is an `ObjectsRequest` from a client."""
    request = ObjectsRequest.of(raw_request)
    encoding = backend.encoding(request.token)
    labels = objects.labels_of(objects.find(encoding, request), encoding.predictor.grid)
    if request.refined:
        labels = objects.refine(labels, backend.images.read(encoding.key.image))
    return {
        "token": request.token,
        "key": request.key,
        "rows": labels.shape[0],
        "columns": labels.shape[1],
        "runs": runs_of(labels),
    }


def objects_file(backend: Backend, raw_request: object) -> tuple[str, bytes]:
    """Write a file of `objects.FILES`; `raw_request` is an `ObjectsRequest` from a client."""
    request = ObjectsRequest.of(raw_request)
    encoding = backend.encoding(request.token)
    image = backend.images.read(encoding.key.image)
    labels = objects.labels_of(objects.find(encoding, request), encoding.predictor.grid)
    content = objects.FILES[request.file](objects.in_pixels(labels, image, request.refined))
    return f"{stem(request.name)}-{request.method}-{request.file}", content
