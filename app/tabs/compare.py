"""The tab Compare: the maps of two models on one image, under one pointer."""

from typing import Any

import gradio as gr

from app import fairness
from app.shared import HEAVY, LIGHT, Shared

TITLE = "Compare"
OTHER = "random:embedded"
QUANTITIES = [("Key similarity", "key-similarity"), ("Attention", "attention")]
LAYERS = [("Light", "light"), ("Heat map", "heat"), ("Mask", "mask")]
SIDES = ("compare-left", "compare-right")


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    lab = shared.lab
    with gr.Row():
        other = gr.Dropdown(
            lab.models.choices(), value=OTHER, label="Compare with", min_width=200, elem_id="other"
        )
        controls: dict[str, Any] = {
            "quantity": gr.Radio(
                QUANTITIES,
                value="key-similarity",
                label="Quantity",
                min_width=160,
                elem_id="compare-quantity",
            ),
            "layer": gr.Radio(LAYERS, value="light", label="Layer", min_width=200),
            "mass": gr.Slider(10, 100, 60, step=1, label="Mass kept (%)", min_width=140),
        }
    with gr.Row(elem_id="compare"):
        left, right = (_view(shared, side) for side in SIDES)
    shared.views.append(left)
    for event in (left.shown, other.input):
        event(
            fairness.in_turn(shared.encode_image, shared.ready),
            [shared.photo, other, shared.size],
            right,
            **HEAVY,
        ).failure(None, other, other, js="(other) => lab('compare-right').encoding?.value.model || other")
    other.focus(lambda: gr.Dropdown(choices=lab.models.choices()), None, other, **LIGHT)
    for name, control in controls.items():
        script = f"(value) => {list(SIDES)}.forEach((side) => lab(side)?.set({{ {name}: value }}))"
        control.change(None, control, None, js=script, **LIGHT)


def _view(shared: Shared, side: str) -> gr.HTML:
    label = f"Image with maps of the {side.partition('-')[2]} model"
    options: dict[str, Any] = {"quantity": "key-similarity", "pins": False, "title": True, "group": "compare"}
    with gr.Column(min_width=300):
        return shared.view("attention", elem_id=side, label=label, **options)
