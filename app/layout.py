"""The page: one `gr.Blocks` with a header (tabs, model, resolution), a rail of images, and a tab for each
module of `app.tabs`. The scripts of its events are functions of app/static/page.js.

A choice in the header changes `page.count`, which triggers one handler, `show`, with
`trigger_mode="always_last"`: of several quick choices, the newest is shown last. `show` returns one small
value to all views of `page.views`. A visible view fetches arrays and draws; the others wait until their tab
is opened. The first value is part of the document and needs no event.
"""

import html
import json
import re
from collections.abc import Mapping
from typing import Any

import gradio as gr

from app import STATIC
from app.handlers.api import add_endpoints
from app.handlers.arrays import static_address
from app.handlers.own import rail
from app.limits.errors import LabError
from app.page import HEAVY, Page, script
from app.store.backend import Backend
from app.store.images import EXAMPLES, FIRST
from app.tabs import TABS

PRELOAD = """
if (!/[?&](image|model|size|tab)=/.test(location.search))
  for (const [as, href] of Object.entries(PRELOADS)) {
    const fetchPriority = as === "image" ? "high" : "low"; // of a slow network, the image comes first
    const link = Object.assign(document.createElement("link"), { rel: "preload", as, href, fetchPriority });
    if (as === "fetch") link.crossOrigin = "";
    document.head.append(link);
  }"""
"""Fetches what the page opens with, unless its address names something else."""
NEXT = "(ask) => String(Number(ask) + 1)"
HEADER = '<a class="skip" href="#work">Skip to the image</a><h1>DINO <span>attention lab</span></h1>'


def build(backend: Backend) -> gr.Blocks:
    """Build the page; launch it with `app.handlers.arrays.routes(backend)`, which serve what it shows."""
    backend.models.load_first()
    with _Blocks(
        title="DINO attention lab", analytics_enabled=False, delete_cache=(600, 3600), fill_width=True
    ) as demo:
        add_endpoints(backend)  # first: the names of its functions stay as they are
        style, code = static_address("page.css"), static_address("page.js")
        gr.HTML(
            f'<link rel="stylesheet" href="{style}">{HEADER}',
            js_on_load=f"window.pageModule = import(new URL('{code}', document.baseURI));",
            elem_id="header",
        )
        page = Page(backend)
        with gr.Row(elem_id="choices"):
            page.model.render()
            page.size.render()
            page.facts.render()
        with gr.Column(elem_id="rail", elem_classes="rail", min_width=0):
            examples = [(name, title, page.address(name, small=True)) for name, title in EXAMPLES.items()]
            options = {
                "start": FIRST,
                "address": "image",
                "camera": "explore",
                "previews": True,
            }
            images = rail(page, "image", examples, elem_id="images", label="Open or drop images", **options)
        images.select(None, page.count, [page.image, page.count], js=script("chosenImage"))
        for choice in (page.model, page.size):
            choice.input(None, page.count, page.count, js=NEXT)
        with gr.Tabs(elem_id="tabs") as tabs:
            for name, module in TABS.items():
                with gr.Tab(module.TITLE, id=name) as tab:
                    module.build(page)
                used = json.dumps(module.USES)
                tab.select(None, js=f"async () => (await window.pageModule).tab('{name}', {used})")
        header = {"image": page.image, "model": page.model, "size": page.size}
        first = page.show_image(page.image.value, page.model.value, page.size.value)
        for view in page.views:
            view.value = first
        page.facts.value = model_facts(first)

        def show(*inputs: Any) -> list[Any]:
            value = page.show_image(*inputs)
            return [model_facts(value), *[value] * len(page.views)]

        choices = list(header.values())
        change = page.count.change(page.shows(show), choices, [page.facts, *page.views], **HEAVY)
        change.success(None, choices, None, js=script("writeHeader"))
        change.failure(None, choices, choices, js=script("shown"))
        linked = header | {name: control for name, (control, _) in page.linked.items()}
        opening = {
            "tabs": list(TABS),
            "start": {name: control.value for name, control in linked.items()},
            "choices": {name: choices for name, (_, choices) in page.linked.items()},
        }
        restore = f"async (count) => (await window.pageModule).restore({json.dumps(opening)}, count)"
        demo.load(None, page.count, [tabs, page.count, *linked.values()], js=restore)
    return demo


def model_facts(value: Mapping[str, Any]) -> str:
    """Return the line below the model of the header: size and patches; the pointer shows the rest."""
    return f'<span title="{html.escape(value["details"])}">{value["facts"]}</span>'


class _Blocks(gr.Blocks):
    def validate_inputs(self, block_fn: Any, inputs: list[Any]) -> None:
        """Refuse too few values of a client in a sentence; Gradio's own error does not reach clients."""
        expected, count = len(block_fn.inputs), len(inputs)
        if count < expected:
            raise LabError(f"{block_fn.name} takes {expected} values, found {count}: see /gradio_api/info.")


def head(backend: Backend) -> str:
    """Return tags by which a browser fetches early what the first view needs; for pages with routes."""
    first = backend.first
    modules = [static_address(path) for path in _modules("page.js", "views/attention_view.js")]
    sheets = [static_address(path) for path in ("page.css", "views/views.css")]
    preview = static_address("preview.jpg")
    arrays = f"lab/arrays/{first.key.token}/blocks/{first.predictor.blocks - 1}"
    tags = [f'<link rel="modulepreload" href="{address}">' for address in modules]
    tags += [f'<link rel="stylesheet" href="{address}">' for address in sheets]
    preloads = {"image": f"lab/images/{FIRST}.jpg", "fetch": arrays}
    tags += [
        f"<script>{PRELOAD.replace('PRELOADS', json.dumps(preloads))}</script>",
        '<meta name="description" content="Attention maps of vision transformers under the pointer.">',
        f'<meta property="og:image" content="{preview}">',
    ]
    return "\n".join(tags)


def _modules(*entries: str) -> list[str]:
    """Return the paths of modules and of all that they import, below app/static."""
    paths = list(entries)
    for path in paths:  # grows
        text = (STATIC / path).read_text(encoding="utf-8")
        for name in re.findall(r"""^import .*?from "(.+?)";$""", text, re.MULTILINE | re.DOTALL):
            target = str((STATIC / path).parent.joinpath(name).resolve().relative_to(STATIC))
            paths += [target] * (target not in paths)
    return paths


def theme() -> gr.themes.Base:
    """Return the colors of the page, in fonts that every machine has."""
    return gr.themes.Default(
        primary_hue="violet",
        neutral_hue="zinc",
        spacing_size="sm",
        font=["system-ui", "sans-serif"],
        font_mono=["monospace"],
    ).set(
        body_text_color_subdued="*neutral_500",
        body_text_color_subdued_dark="*neutral_400",
        button_primary_background_fill="*primary_600",  # white text on it has a contrast above 4.5
        button_primary_background_fill_hover="*primary_700",
    )
