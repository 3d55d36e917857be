"""The tab Compare: the maps of two models on one image, under one pointer."""

from typing import Any

import gradio as gr

from app import fairness
from app.page import HEAVY, LIGHT, Page, dropdown, inspector, work
from app.tabs.explore import LAYERS

TITLE = "Compare"
USES = ("image", "model", "size")
OTHER = "random:embedded"
QUANTITIES = [("Attention", "attention"), ("Key similarity", "key-similarity")]
SIDES = ("compare-left", "compare-right")


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    backend = page.backend
    with work(), gr.Row(elem_id="compare"):
        left, right = (_view(page, side) for side in SIDES)
    with inspector():
        other = dropdown(
            backend.models.choices(), value=OTHER, label="Compare with", min_width=200, elem_id="other"
        )
        page.link("other", other)
        controls: dict[str, Any] = {
            "quantity": gr.Radio(
                QUANTITIES,
                value="attention",
                label="Quantity",
                min_width=160,
                elem_id="compare-quantity",
            ),
            "layer": gr.Radio(LAYERS, value="light", label="Layer", min_width=200),
            "mass": gr.Slider(10, 100, 60, step=1, label="Mass kept (%)", min_width=140),
        }
    page.views.append(left)
    encode = fairness.in_turn(page.encode_image, page.loader)
    encoded = left.shown(encode, [page.image, other, page.size], right, **HEAVY)
    encoded.failure(
        None, other, other, js="(other) => viewOf('compare-right').encoding?.value.model || other"
    )
    other.input(None, js="() => viewOf('compare-left')?.showAgain()", **LIGHT)
    other.focus(lambda: gr.Dropdown(choices=backend.models.choices()), None, other, **LIGHT)
    for name, control in controls.items():
        script = f"(value) => {list(SIDES)}.forEach((side) => viewOf(side)?.set({{ {name}: value }}))"
        control.change(None, control, None, js=script, **LIGHT)


def _view(page: Page, side: str) -> gr.HTML:
    label = f"Image with maps of the {side.partition('-')[2]} model"
    options: dict[str, Any] = {"pins": False, "title": True, "group": "compare"}
    return page.view("attention", elem_id=side, label=label, **options)
