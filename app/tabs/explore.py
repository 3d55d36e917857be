"""The tab Explore: attention of every head, for the whole image or for the patch under the pointer."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import gradio as gr

from app.handlers.exports import export_file
from app.page import LIGHT, Page, export_button, inspector, script, segments, work
from app.store.images import WALK
from app.tabs import searching

TITLE = "Explore"
USES = ("image", "model", "size")

MODES = {
    "attention": [("Attention", "attention"), ("Rollout", "rollout"), ("q · k", "logits")],
    "similarity": [
        ("Keys", "key-similarity"),
        ("Keys of each head", "key-cosine"),
        ("Tokens", "token-cosine"),
    ],
    "overview": [("PCA of keys", "key-pca"), ("Norms", "token-norm")],
}
"""Variants of each mode, the default first."""
LAYERS = [("Heat", "heat"), ("Light", "light"), ("Mask", "mask")]
SUMMARIES = [("Mean", "mean"), ("Max", "max"), ("All", "heads")]
COLORMAPS = [
    ("Default of the variant", ""),
    ("Inferno", "inferno"),
    ("Viridis", "viridis"),
    ("Gray", "gray"),
    ("Blue to red, zero in the middle", "coolwarm"),
]


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    parts: dict[str, Any] = {"aside": "explore-aside", "blocks": True, "numbers": True}
    with work():
        view = page.view("attention", elem_id="explore", address=True, walk=WALK, exports=True, **parts)
    with inspector():
        mode = segments([(name.title(), name) for name in MODES], label="Show", elem_id="mode")
        controls = drawing_controls()
        page.aside("explore-aside")
        with gr.Accordion("More", open=False, elem_id="more"):
            variants = [
                gr.Radio(choices, value=choices[0][1], label="Variant", elem_classes=[f"of-{name}"])
                for name, choices in MODES.items()
            ]
            controls |= {
                "head": segments(SUMMARIES, label="Summary of the heads", elem_id="summary"),
                "outline": gr.Checkbox(False, label="Outline of the mask", elem_id="outline"),
                "opacity": gr.Slider(0, 100, 85, step=1, label="Opacity (%)", elem_id="opacity"),
                "colormap": gr.Dropdown(COLORMAPS, value="", label="Colors", elem_id="colormap"),
            }
        if page.backend.index:
            searching.build(page)
        export_button("explore")
    page.views.append(view)
    set_each(["explore"], controls)
    quantity = [mode, *variants]
    gr.on([one.change for one in quantity], None, quantity, None, js=script("setQuantity"))
    # The view changes settings itself: from the address, by its tiles, and back after a refusal.
    state = f"async () => (await pageModule).stateOf({list(MODES)}, {list(controls)})"

    page.save(view.exported, partial(export_file, page.backend), "viewOf('explore').exportRequest")
    for event in (view.shown, view.edited):  # no events that `gr.on` takes
        event(None, None, [*quantity, *controls.values()], js=state)


def drawing_controls(prefix: str = "") -> dict[str, Any]:
    """Build the controls of layer and mask, by the names of the settings; `prefix` begins their ids."""
    return {
        "layer": segments(LAYERS, label="Draw as", elem_id=f"{prefix}layer"),
        "mass": gr.Slider(10, 100, 60, step=1, label="Mask keeps (%)", elem_id=f"{prefix}mass"),
    }


def set_each(views: list[str], controls: Mapping[str, Any]) -> None:
    """Let each control change its setting of the views with these ids."""
    for name, control in controls.items():
        change = f"(value) => {views}.forEach((id) => viewOf(id)?.set({{ {name}: value }}))"
        control.change(None, control, None, js=change, **LIGHT)
