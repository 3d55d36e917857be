"""The tab Compare: the maps of two models on one image, under one pointer."""

from functools import partial
from typing import Any

import gradio as gr

from app.handlers.exports import export_file
from app.page import HEAVY, LIGHT, Page, dropdown, export_button, inspector, segments, work
from app.tabs.explore import MODES, drawing_controls, set_each

TITLE = "Compare"
USES = ("image", "model", "size")
OTHER = "random:embedded"
SIDES = ("compare-left", "compare-right")


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    backend = page.backend
    with work(), gr.Row(elem_id="compare", elem_classes="lab-pair"):
        shared: dict[str, Any] = {"pins": False, "title": True, "group": "compare", "exports": "compare"}
        left, right = (
            page.view(
                "attention",
                elem_id=side,
                label=f"Image with maps, {side.removeprefix('compare-')} model",
                **shared,
            )
            for side in SIDES
        )
    with inspector():
        named: dict[str, Any] = {"label": "Compare with", "elem_id": "other", "allow_custom_value": True}
        other = dropdown(backend.models.choices(), value=OTHER, **named)
        page.link("other", other, list(backend.models.offer()))
        modes = [(name.title(), variants[0][1]) for name, variants in MODES.items()]
        controls: dict[str, Any] = {
            "quantity": segments(modes, label="Show", elem_id="compare-quantity")
        } | drawing_controls("compare-")
        export_button(SIDES[0])
    page.views.append(left)
    encode = page.shows(page.show_image)
    encoded = left.shown(encode, [page.image, other, page.size], right, **HEAVY)
    encoded.failure(
        None, other, other, js="(other) => viewOf('compare-right').encoding?.value.model || other"
    )
    other.input(None, js="() => viewOf('compare-left')?.showAgain()", **LIGHT)
    other.focus(lambda: gr.Dropdown(choices=backend.models.choices()), None, other, **LIGHT)
    set_each(list(SIDES), controls)
    for view, side in zip((left, right), SIDES, strict=True):
        page.save(view.exported, partial(export_file, backend), f"viewOf('{side}').exportRequest")
