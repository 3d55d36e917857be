"""The tab Segment: objects by a click, attention, LOST, TokenCut or MaskCut, and their scores."""

from functools import partial
from typing import Any, Literal

import gradio as gr
from pydantic import Field

from app.handlers import objects, scribbles
from app.handlers.objects import ObjectSettings
from app.limits import fairness
from app.page import HEAVY, Page, export_button, inspector, work
from app.store.backend import Backend
from app.store.clips import runs_of
from app.store.images import stem
from app.tabs.explore import set_each

TITLE = "Segment"
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
    with inspector():
        page.aside("segment-aside")
        most = objects.MOST_OBJECTS
        settings = {
            "reach": gr.Slider(50, 99, 90, step=1, label="Key similarity kept (%)", elem_classes="by-hand"),
            "mass": gr.Slider(10, 100, 60, step=1, label="Attention kept (%)", elem_classes="by-attention"),
            "count": gr.Slider(1, most, 3, step=1, label="Most objects", elem_classes="by-cuts"),
            "refined": gr.Checkbox(False, label="Edges follow the image", elem_classes="computed"),
        }  # the style sheet hides those that a method does not use
        set_each(["segment"], settings)
        export_button("segment")
    page.save(view.exported, partial(_file, page.backend), "viewOf('segment').exportRequest")

    def find_labels(request: object) -> Any:
        """Answer a request of objects or of strokes; a view without a request gets nothing."""
        if request is None:
            return gr.skip()
        find = scribbles.segment_image if _has_strokes(request) else find_objects
        return gr.HTML(found=find(page.backend, request))

    find = page.in_turn(find_labels, None, fairness.FINDING)
    found = view.edited(find, page.request, view, js="() => [viewOf('segment').searchRequest]", **HEAVY)
    found.failure(None, js="() => viewOf('segment').failed()")


def _has_strokes(request: object) -> bool:
    return isinstance(request, dict) and "images" in request


def _file(backend: Backend, request: object) -> tuple[str, bytes]:
    return (scribbles.export_file if _has_strokes(request) else objects_file)(backend, request)


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
