"""The tab Explore: attention of every head, for the whole image or for the patch under the pointer."""

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import gradio as gr

from app import searching
from app.album import album_zip
from app.attention_maps import FILES, MapSettings
from app.backend import Backend
from app.errors import LabError
from app.images import WALK, clean_name, stem
from app.page import LIGHT, Page, inspector, script, segments, work, write_download

TITLE = "Explore"
USES = ("image", "model", "size")

MODES = {
    "attention": [("Attention", "attention"), ("Rollout", "rollout"), ("q · k", "logits")],
    "similarity": [
        ("Keys", "key-similarity"),
        ("Keys of each head", "key-cosine"),
        ("Tokens", "token-cosine"),
    ],
    "overview": [("PCA of keys", "key-pca"), ("PCA of tokens", "token-pca"), ("Norms", "token-norm")],
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
SCREEN_FILES = {"Overlay PNG": "overlay.png", "Mask PNG": "mask.png", "Mask COCO": "mask.json"}
"""Downloads that the browser makes of what it shows."""
SERVER_FILES = {"Maps NPZ": "maps.npz", "Figure PNG": "figure.png", "Figure PDF": "figure.pdf"}
NO_PROGRESS = gr.Progress()
REQUEST = 'viewOf("explore")?.request'


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    parts: dict[str, Any] = {"aside": "explore-aside", "blocks": True, "numbers": True}
    with work():
        view = page.view("attention", elem_id="explore", address=True, walk=WALK, **parts)
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
        _files(page)
        if page.backend.index:
            searching.build(page)
    page.views.append(view)
    set_each(["explore"], controls)
    quantity = [mode, *variants]
    gr.on([one.change for one in quantity], None, quantity, None, js=script("setQuantity"))
    # The view changes settings itself: from the address, by its tiles, and back after a refusal.
    state = f"async () => (await pageModule).stateOf({list(MODES)}, {list(controls)})"
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
