"""The tab Compare: two models on one image, with one pointer and one mask."""

from typing import Annotated, Any

import gradio as gr
from pydantic import Field

from app import fairness, figure
from app.errors import ClientValue, LabError
from app.following import from_runs
from app.lab import Lab
from app.limits import MEGABYTE
from app.objects import Head, Mass, cls_map
from app.photos import stem
from app.shared import HEAVY, LIGHT, Shared
from app.views import compare_view
from segmentation.masks import Mask, keep_mass_of_maps

TITLE = "Compare"
OTHER = "random:embedded"
QUANTITIES = [("Key similarity", "likeness"), ("Attention", "attention")]
LAYERS = [("Light", "light"), ("Heat map", "heat"), ("Mask", "mask")]


class DrawnMask(ClientValue):
    """A mask by hand: height and width, and run lengths [0 or 1, pixels, …]."""

    size: list[Annotated[int, Field(ge=1)]] = Field(min_length=2, max_length=2)
    runs: list[int]


class FigureRequest(ClientValue):
    """Contents of the figure: tokens of two encodings of one image, their heads, and the mass kept."""

    left: str
    right: str
    left_head: Head = "mean"
    right_head: Head = "mean"
    mass: Mass = 0.6
    name: str = "image"
    drawn: DrawnMask | None = None


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    lab = shared.lab
    with gr.Row():
        other = gr.Dropdown(
            lab.models.choices(), value=OTHER, label="Compare with", min_width=200, elem_id="other"
        )
        quantity = gr.Radio(
            QUANTITIES, value="likeness", label="Quantity", min_width=160, elem_id="compare-quantity"
        )
        layer = gr.Radio(LAYERS, value="light", label="Layer", min_width=200)
        mass = gr.Slider(10, 100, 60, step=1, label="Mass kept (%)", min_width=140)
    view = compare_view(elem_id="compare", server_functions=shared.server_functions)
    shared.views.append(view)
    with gr.Row():
        paper = gr.Button("Best heads at 60 %, as in the paper", size="sm")
        save = gr.Button("Figure (PNG)", size="sm")

    def look(photo: str, model: str, size: int, progress: gr.Progress = gr.Progress()) -> Any:
        return gr.HTML(right=shared.value(shared.encode(photo, model, size, progress), photo))

    for event in (view.shown, other.input):
        event(
            fairness.in_turn(look, lambda photo, model, size: lab.models.ready(model)),
            [shared.photo, other, shared.size],
            view,
            **HEAVY,
        ).failure(None, other, other, js="(other) => lab('compare').other || other")
    other.focus(lambda: gr.Dropdown(choices=lab.models.choices()), None, other, **LIGHT)
    controls: dict[str, Any] = {"quantity": quantity, "layer": layer, "mass": mass}
    for name, control in controls.items():
        script = f"(value) => lab('compare')?.set({{ {name}: value }})"
        control.change(None, control, None, js=script, **LIGHT)
    script = "() => { lab('compare').bestHeads(); return ['attention', 'mask', 60]; }"
    paper.click(None, None, [quantity, layer, mass], js=script, **LIGHT)
    shared.save(save, lambda asked: drawn(lab, asked), "lab('compare').request")


def drawn(lab: Lab, asked: object) -> tuple[str, bytes]:
    """Draw the figure of the paper; `asked` is a `FigureRequest` from a client."""
    request = FigureRequest.of(asked)
    encoding, other = lab.engine.encoding(request.left), lab.engine.encoding(request.right)
    if encoding.key.photo != other.key.photo:
        raise LabError("The two models encoded different images: open one image for both.")
    masks: list[tuple[str, Mask]] = []
    for one, head in ((encoding, request.left_head), (other, request.right_head)):
        title = "mean of the heads" if head == "mean" else f"head {head}"
        masks.append((f"{one.key.model}, {title}", keep_mass_of_maps(cls_map(one, head), request.mass)))
    mask = None
    if request.drawn is not None:
        height, width = request.drawn.size
        if height * width > lab.limits.max_pixels:
            raise LabError(f"A mask has at most {lab.limits.max_pixels // MEGABYTE} million pixels.")
        mask = from_runs(request.drawn.runs, (height, width), most=1)
    content = figure.png(lab.pictures.read(encoding.key.photo), masks, request.mass, mask)
    return f"{stem(encoding.key.photo if encoding.example else request.name)}-compared.png", content
