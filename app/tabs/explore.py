"""The tab Explore: attention of every head, for the whole image or for the patch under the pointer."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import gradio as gr

from app import searching
from app.album import album_zip
from app.attention_maps import FILES, MapSettings
from app.backend import Backend
from app.errors import LabError
from app.images import clean_name, stem
from app.page import LIGHT, Page, inspector, work, write_download

TITLE = "Explore"
USES = ("image", "model", "size")

QUANTITIES = [
    ("Attention", "attention"),
    ("Key similarity", "key-similarity"),
    ("Rollout", "rollout"),
    ("q · k", "logits"),
    ("Key cosine", "key-cosine"),
    ("Token cosine", "token-cosine"),
    ("Token norm", "token-norm"),
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
SCREEN_FILES = {"Overlay PNG": "overlay.png", "Mask PNG": "mask.png", "Mask COCO": "mask.json"}
"""Downloads that the browser makes of what it shows."""
SERVER_FILES = {"Maps NPZ": "maps.npz", "Figure PNG": "figure.png", "Figure PDF": "figure.pdf"}
NO_PROGRESS = gr.Progress()
REQUEST = 'viewOf("explore")?.request'


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    with work():
        view = page.view("attention", elem_id="explore", address=True, grid=True, facts=True)
    with inspector():
        controls = _controls(page)
        _files(page)
        if page.backend.index:
            searching.build(page)
    page.views.append(view)
    names, values = list(controls), list(controls.values())
    change = f'async (...values) => (await pageModule).setView("explore", {names}, values)'
    gr.on([control.change for control in values], None, values, None, js=change)
    # The view changes settings itself: from the address, by its grid of blocks, and back after a refusal.
    state = f'async () => (await pageModule).stateOf("explore", {names})'
    for event in (view.shown, view.edited):  # no events that `gr.on` takes
        event(None, None, values, js=state)


def _controls(page: Page) -> dict[str, Any]:
    blocks = page.backend.first.predictor.blocks
    controls: dict[str, Any] = {
        "quantity": gr.Radio(QUANTITIES, value="attention", label="Quantity", elem_id="quantity"),
        "layer": gr.Radio(LAYERS, value="light", label="Layer", elem_id="layer"),
    }
    controls |= {
        "mass": gr.Slider(10, 100, 60, step=1, label="Mass kept, %", elem_id="mass"),
        "block": gr.Slider(1, blocks, blocks, step=1, label="Block", elem_id="block"),
    }
    with gr.Accordion("Display", open=False):
        controls |= {
            "opacity": gr.Slider(0, 100, 80, step=1, label="Opacity, %", elem_id="opacity"),
            "similar": gr.Slider(0, 20, 5, step=1, label="Similar patches outlined", elem_id="similar"),
            "colormap": gr.Dropdown(COLORMAPS, value="", label="Colors", elem_id="colormap"),
        }
    page.block = controls["block"]
    return controls


def _files(page: Page) -> None:
    with gr.Accordion("Download", open=True, elem_id="downloads"), gr.Row():
        for label, file in SCREEN_FILES.items():
            button = gr.Button(label, size="sm", min_width=100)
            button.click(None, None, None, js=f"() => viewOf('explore')?.save('{file}')", **LIGHT)
        for label, file in SERVER_FILES.items():
            button = gr.Button(label, size="sm", min_width=100)
            page.save(button, partial(draw_map, page.backend, file), REQUEST)
        every = gr.Button("All images (ZIP)", size="sm", min_width=100, elem_id="save-album")

    async def export(
        raw_request: Any, request: gr.Request, progress: gr.Progress = NO_PROGRESS
    ) -> AsyncIterator[Any]:
        def report(done: int, count: int) -> None:
            progress((done, count), unit="images")

        async for content in album_zip(page, raw_request, request, report):
            yield write_download("attention.zip", content) if content else gr.skip()

    album = "document.querySelector('#album textarea')?.value ?? ''"
    page.save_result(every, export, f"{{ ...{REQUEST}, album: {album} }}")


def draw_map(backend: Backend, file: str, request: object) -> tuple[str, bytes]:
    """Write a download of `attention_maps.FILES`; `request` is that of an attention view from a client."""
    if not isinstance(request, dict) or not isinstance(request.get("token"), str):
        raise LabError("Nothing is shown yet: wait for the maps, then try again.")
    settings, encoding = MapSettings.of(request), backend.encoding(request["token"])
    content = FILES[file](encoding, settings, backend.images.read(encoding.key.image))
    name = encoding.key.image if encoding.example else str(request.get("name", ""))
    return f"{stem(clean_name(name))}-{file}", content
