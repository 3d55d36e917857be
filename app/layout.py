"""The page: one `gr.Blocks` with a header (tabs, model, resolution), a rail of images, and a tab for each
module of `app.tabs`. The scripts of its events are functions of app/static/page.js.

A choice in the header changes `page.count`, which triggers one handler, `show`, with
`trigger_mode="always_last"`: of several quick choices, the newest is shown last. `show` returns one small
value to all views of `page.views`. A visible view fetches arrays and draws; the others wait until their tab
is opened. The first value is part of the document and needs no event.
"""

import json
import re
from typing import Any

import gradio as gr

from app import fairness
from app.api import add_endpoints
from app.arrays import STATIC, static_address
from app.backend import Backend
from app.errors import LabError
from app.images import EXAMPLES
from app.page import HEAVY, LIGHT, Page, samples, script, split, strip
from app.tabs import TABS

MOST_OWN = 48  # of a user's images that the strip shows
PRELOAD = """
if (!/[?&](image|model|size|tab)=/.test(location.search))
  for (const [as, href] of Object.entries(PRELOADS)) {
    const link = Object.assign(document.createElement("link"), { rel: "preload", as, href });
    if (as === "fetch") link.crossOrigin = "";
    document.head.append(link);
  }"""
"""Fetches what the page opens with, unless its address names something else."""
NEXT = "(ask) => String(Number(ask) + 1)"
HEADER = '<a class="skip" href="#work">Skip to the image</a><h1>DINO attention lab</h1>'


def build(backend: Backend) -> gr.Blocks:
    """Build the page; launch it with `app.arrays.routes(backend)`, which serve what it shows."""
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
        page = _header(backend)
        with gr.Tabs(elem_id="tabs") as tabs:
            for name, module in TABS.items():
                with gr.Tab(module.TITLE, id=name) as tab:
                    module.build(page)
                used = json.dumps(module.USES)
                tab.select(None, js=f"async () => (await window.pageModule).tab('{name}', {used})")
        header = {"image": page.image, "model": page.model, "size": page.size}
        first = page.value(backend.first)
        for view in page.views:
            view.value = first

        def show(*inputs: Any) -> list[Any]:
            return [page.encode_image(*inputs)] * len(page.views)

        choices = list(header.values())
        change = page.count.change(fairness.in_turn(show, page.loader), choices, page.views, **HEAVY)
        change.success(None, choices, None, js=script("writeHeader"))
        change.failure(None, choices, choices, js=script("shown"))
        linked = header | page.linked
        opening = {
            "tabs": list(TABS),
            "start": {name: control.value for name, control in linked.items()},
            "choices": {name: [value for _, value in one.choices] for name, one in page.linked.items()},
        }
        restore = f"async (count) => (await window.pageModule).restore({json.dumps(opening)}, count)"
        demo.load(None, page.count, [tabs, page.count, *linked.values()], js=restore)
    return demo


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
    preloads = {"fetch": arrays, "image": f"lab/images/{backend.start.image}.jpg"}
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


def _header(backend: Backend) -> Page:
    page = Page(backend)
    image, album, ask = page.image, page.album, page.count
    with gr.Row(elem_id="choices"):
        page.model.render()
        page.size.render()
    with gr.Column(elem_id="rail", elem_classes="rail", min_width=0):
        options: dict[str, Any] = {"file_types": ["image"], "file_count": "multiple", "elem_id": "upload"}
        upload = gr.UploadButton("Open", min_width=0, size="sm", **options)
        toggle = gr.Button("Camera", elem_id="toggle-camera", min_width=0, size="sm")
        images = strip(page.thumbnails(EXAMPLES), elem_id="strip", min_width=0)
        remove = gr.Button("Remove", elem_id="remove-image", min_width=0, size="sm")
    camera = gr.Image(sources=["webcam"], type="filepath", show_label=False, height=320, elem_id="camera")
    toggle.click(None, None, None, js="() => document.body.toggleAttribute('data-camera')")
    images.click(None, [images, album, ask], [image, ask], js=script("choose"))
    for choice in (page.model, page.size):
        choice.input(None, ask, ask, js=NEXT)

    def album_and_strip(names: list[str]) -> tuple[str, gr.Dataset]:
        """Return album and strip of images."""
        return "\n".join(names), gr.Dataset(samples=samples(page.thumbnails(names)))

    def keep(files: list[str] | str | None, album: str) -> tuple:
        """Take in the uploaded files; the first of them is shown. A damaged one is named and left out."""
        paths, fresh = [files] if isinstance(files, str) else list(files or []), []
        for path in paths:
            try:
                fresh.append(page.keep(path))
            except LabError as error:
                if path == paths[-1] and not fresh:
                    raise
                gr.Warning(error.message)
        own = [name for name in page.images_of(album) if "/" in name and name not in fresh]
        if len(every := [*fresh, *own]) > MOST_OWN:
            gr.Warning(f"Only {MOST_OWN} of your images are shown: the others are left out.")
        return fresh[0] if fresh else "", *album_and_strip(every[:MOST_OWN] + list(EXAMPLES))

    def forget(image: str, album: str) -> tuple:
        """Remove an uploaded image from the strip and from memory; the next one is shown."""
        names = page.images_of(album)
        place = names.index(image) if image in names else 0
        rest = [name for name in names if name != image] or list(EXAMPLES)
        backend.forget(split(image)[0])
        return rest[min(place, len(rest) - 1)], *album_and_strip(rest)

    opened = gr.Textbox(visible="hidden")
    for event, source, function in ((upload.upload, upload, "open"), (camera.input, camera, "show")):
        handler = fairness.in_turn(keep, turns=fairness.DECODING)
        kept = event(handler, [source, album], [opened, album, images], **HEAVY)
        kept.success(None, [opened, image, ask], [image, ask], js=script(function))
    removed = remove.click(forget, [image, album], [image, album, images], **LIGHT)
    removed.success(None, ask, ask, js=NEXT)
    return page
