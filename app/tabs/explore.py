"""The tab Explore: attention of every head, for the whole image or for the patch under the pointer."""

from collections.abc import Mapping
from typing import Any

import gradio as gr

from app import downloads
from app.errors import LabError
from app.photos import stem
from app.shared import Shared, field_of
from app.views import attention_view

TITLE = "Explore"

QUANTITIES = [
    ("Attention", "attention"),
    ("Key similarity", "likeness"),
    ("q · k", "logits"),
    ("Key cosine", "key-cosine"),
    ("Token cosine", "token-cosine"),
    ("Rollout", "rollout"),
    ("Key PCA", "key-pca"),
    ("Token PCA", "token-pca"),
]
LAYERS = [("Light", "light"), ("Heat map", "heat"), ("Mask", "mask")]
COLORMAPS = [
    ("Default of the quantity", ""),
    ("Inferno", "inferno"),
    ("Viridis", "viridis"),
    ("Gray", "gray"),
    ("Blue to red, zero in the middle", "coolwarm"),
]
SCALES = [
    ("From the median, capped at 98 %", "median"),
    ("From the minimum, capped at 98 %", "capped"),
    ("From minimum to maximum", "full"),
]
FILES = [
    ("Overlay PNG", "overlay.png"),
    ("Mask PNG", "mask.png"),
    ("Mask COCO", "mask.json"),
    ("Maps NPZ", "maps.npz"),
]
SHEETS = [("Contact sheet PNG", "sheet.png"), ("Overlays, masks, maps ZIP", "views.zip")]
REQUEST = 'lab("explore")?.request'
ALBUM = 'document.querySelector("#album textarea").value'


def build(shared: Shared) -> None:
    """Build the tab inside its `gr.Tab`."""
    with gr.Row(elem_classes="bench"):
        with gr.Column(scale=3, min_width=300):
            view = attention_view(
                elem_id="explore",
                address=True,
                grid=True,
                facts=True,
                server_functions=shared.server_functions,
            )
        with gr.Column(scale=2, min_width=300, elem_id="explore-side"):
            controls = _controls(shared)
            _files(shared)
    shared.views.append(view)
    names = list(controls)
    values = list(controls.values())
    gr.on(
        [control.change for control in values],
        None,
        values,
        None,
        js=f'async (...values) => (await labPage).setView("explore", {names}, values)',
    )
    # The view changes settings itself: from the address, by its grid of blocks, and back after a refusal.
    state = f'async () => (await labPage).stateOf("explore", {names})'
    for event in (view.shown, view.edited):  # no events that `gr.on` takes
        event(None, None, values, js=state)


def _controls(shared: Shared) -> dict[str, Any]:
    """Build the settings of the view, by the names that it knows."""
    blocks = shared.first.blocks
    quantity = gr.Radio(QUANTITIES, value="attention", label="Quantity", elem_id="quantity")
    layer = gr.Radio(LAYERS, value="light", label="Layer", elem_id="layer")
    with gr.Row():
        mass = gr.Slider(10, 100, 60, step=1, label="Mass kept, %", elem_id="mass", min_width=140)
        block = gr.Slider(1, blocks, blocks, step=1, label="Block", elem_id="block", min_width=140)
    shared.updates.append((block, lambda encoding: gr.Slider(maximum=encoding.blocks)))
    with gr.Accordion("Display", open=False):
        opacity = gr.Slider(0, 100, 80, step=1, label="Opacity, %", elem_id="opacity")
        with gr.Row():
            colormap = gr.Dropdown(COLORMAPS, value="", label="Colors", elem_id="colormap", min_width=140)
            scale = gr.Dropdown(SCALES, value="median", label="Scale", elem_id="scale", min_width=140)
        smooth = gr.Checkbox(True, label="Interpolate between patches", elem_id="smooth")
        outline = gr.Checkbox(False, label="Outline of the mass kept", elem_id="outline")
        same = gr.Checkbox(False, label="One scale for all heads", elem_id="shared-scale")
    return {
        "quantity": quantity,
        "layer": layer,
        "mass": mass,
        "block": block,
        "opacity": opacity,
        "colormap": colormap,
        "scale": scale,
        "smooth": smooth,
        "outline": outline,
        "shared": same,
    }


def _files(shared: Shared) -> None:
    """Build the downloads of what is on the screen."""

    def draw(asked: Any) -> tuple[str, bytes]:
        file = known(field_of(asked, "file"), downloads.FILES)
        scene = shared.scene(asked.get("request"))
        return f"{stem(scene.name)}-{file}", downloads.FILES[file](scene)

    def draw_all(asked: Any) -> tuple[str, bytes]:
        file = known(field_of(asked, "file"), downloads.SHEETS)
        photos = shared.photos(field_of(asked, "album"))
        own = [photo for photo in photos if "/" in photo]
        request = asked.get("request")
        chosen = (own or photos)[: downloads.MOST_PICTURES]
        scenes = [shared.scene(request, photo, full=False) for photo in chosen]
        if not scenes:
            raise LabError("Your images are no longer in the server's memory: open them again.")
        return f"{scenes[0].view.quantity}-{file}", downloads.SHEETS[file](scenes)

    def show(asked: Any) -> Any:
        return gr.Textbox(downloads.FILES["view.py"](shared.scene(asked)).decode(), visible=True)

    with gr.Accordion("Download", open=True, elem_id="downloads"):
        with gr.Row():
            for label, file in FILES:
                button = gr.Button(label, size="sm", min_width=100)
                shared.save(button, draw, f'{{request: {REQUEST}, file: "{file}"}}')
        gr.Markdown("Your images, or the examples, under the same settings:", elem_classes="soft")
        with gr.Row():
            for label, file in SHEETS:
                button = gr.Button(label, size="sm", min_width=100)
                shared.save(button, draw_all, f'{{request: {REQUEST}, album: {ALBUM}, file: "{file}"}}')
    with gr.Accordion("Python", open=False):
        python = gr.Button("Show the Python of this view", size="sm")
        code = gr.Textbox(
            show_label=False, lines=12, max_lines=24, buttons=["copy"], visible=False, elem_id="code"
        )
        shared.ask(python, show, code, REQUEST)


def known(file: str, files: Mapping[str, Any]) -> str:
    """Return the name of a download, or refuse it."""
    if file not in files:
        raise LabError(f"Unknown file. Available: {', '.join(files)}.")
    return file
