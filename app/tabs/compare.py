"""The tab Compare: two models on one image, with one pointer and one mask."""

from typing import Any

import gradio as gr

from app import fairness, figure
from app.errors import LabError
from app.figure import Side
from app.following import from_runs
from app.lab import Lab
from app.limits import MEGABYTE
from app.photos import stem
from app.shared import LIGHT, PRIVATE, Shared
from app.views import compare_view

TITLE = "Compare"
USES_IMAGE = True
OTHER = "random:embedded"
QUANTITIES = [("Key similarity", "likeness"), ("Attention", "attention")]
LAYERS = [("Light", "light"), ("Heat map", "heat"), ("Mask", "mask")]


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    lab = shared.lab
    with gr.Row():
        other = gr.Dropdown(_models(lab), value=OTHER, label="Compare with", min_width=200, elem_id="other")
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

    def prepare(photo: str, model: str, size: int) -> None:
        lab.models.ready(model)

    for event in (view.shown, other.input):
        event(
            fairness.in_turn(look, prepare),
            [shared.photo, other, shared.size],
            view,
            trigger_mode="always_last",
            concurrency_limit=None,
            show_progress="minimal",
            **PRIVATE,
        ).failure(None, other, other, js="(other) => lab('compare').other || other")
    other.focus(lambda: gr.Dropdown(choices=_models(lab)), None, other, **LIGHT)
    controls: dict[str, Any] = {"quantity": quantity, "layer": layer, "mass": mass}
    for name, control in controls.items():
        script = f"(value) => lab('compare')?.set({{ {name}: value }})"
        control.change(None, control, None, js=script, **LIGHT)
    script = "() => { lab('compare').bestHeads(); return ['attention', 'mask', 60]; }"
    paper.click(None, None, [quantity, layer, mass], js=script, **LIGHT)
    shared.save(save, lambda asked: drawn(lab, asked), "lab('compare').request")


def _models(lab: Lab) -> list[tuple[str, str]]:
    return [(choice.label, name) for name, choice in lab.models.offered().items()]


def drawn(lab: Lab, asked: object) -> tuple[str, bytes]:
    """Draw the figure of the paper for two encodings of one image.

    Args:
        lab: Whose images and models.
        asked: From a browser: left and right (tokens), left_head, right_head, mass, name, drawn.

    Raises:
        LabError: A field is invalid, or an encoding is unknown.
    """
    if not isinstance(asked, dict):
        raise LabError("Choose an image and a second model first.")
    sides = [_side(lab, asked, side) for side in ("left", "right")]
    encoding = sides[0].encoding
    if encoding.key.photo != sides[1].encoding.key.photo:
        raise LabError("The two models look at different images: open one image for both.")
    mass = asked.get("mass", 0.6)
    if isinstance(mass, bool) or not isinstance(mass, int | float):
        raise LabError("The mass must be a number from 0.01 to 1.")
    mask = _labels(asked.get("drawn"), lab.limits.max_pixels)
    content = figure.png(lab.pictures.read(encoding.key.photo), sides, mass, mask)
    name = encoding.key.photo if encoding.example else asked.get("name")
    return f"{stem(name if isinstance(name, str) else 'image')}-compared.png", content


def _side(lab: Lab, asked: dict[str, Any], side: str) -> Side:
    token, head = asked.get(side), asked.get(f"{side}_head", "mean")
    if not isinstance(token, str) or not isinstance(head, str):
        raise LabError("The figure needs the tokens and heads of two models.")
    encoding = lab.engine.encoding(token)
    with lab.engine.reading:
        return Side(encoding, encoding.queries_keys(encoding.blocks - 1), head)


def _labels(mask: object, most: int) -> figure.Labels | None:
    """Read a mask by hand: {size: [height, width], runs: [0 or 1, pixels, …]}."""
    if mask is None:
        return None
    size, runs = (mask.get("size"), mask.get("runs")) if isinstance(mask, dict) else (None, None)
    whole = all(type(number) is int for part in (size, runs) if isinstance(part, list) for number in part)
    if not (isinstance(size, list) and isinstance(runs, list) and len(size) == 2 and whole):
        raise LabError("The mask must have a size and runs of whole numbers.")
    if min(size) < 1 or size[0] * size[1] > most:
        raise LabError(f"A mask has at most {most // MEGABYTE} million pixels.")
    return from_runs(runs, (size[0], size[1]), most=1)
