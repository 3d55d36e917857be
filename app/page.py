"""Image, model and resolution of the header, which all tabs use, and the saving of files."""

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from app import views
from app.limits import fairness
from app.limits.bounds import RESOLUTIONS
from app.limits.errors import LabError
from app.store.backend import Backend
from app.store.engine import Encoding
from app.store.images import EXAMPLES, FIRST, clean_name, pin


def work() -> gr.Column:
    """Return the column of a tab for its views, which fill the height of the page."""
    return gr.Column(elem_classes="work", min_width=0)


def segments(choices: Sequence[tuple[str, str]], **props: Any) -> gr.Radio:
    """Return a choice of a few words, the first chosen, drawn as segments of one bar."""
    return gr.Radio(choices, value=choices[0][1], elem_classes=["segments"], **props)


def script(function: str) -> str:
    """Return the script of an event that calls a function of app/static/page.js."""
    return f"async (...values) => (await window.pageModule).{function}(...values)"


def inspector() -> gr.Column:
    """Return the column of a tab for its controls, on the right of `work`, or below it on a phone."""
    return gr.Column(elem_classes="inspector", min_width=0)


def export_button(elem_id: str) -> None:
    """Add the button that opens the export dialog of a view."""
    js = f"() => viewOf('{elem_id}')?.export()"
    gr.Button("Export…", elem_classes="export").click(None, js=js, **LIGHT)


PRIVATE: dict[str, Any] = {"api_visibility": "private"}
LIGHT: dict[str, Any] = PRIVATE | {"concurrency_limit": None, "show_progress": "hidden"}
"""Options of events that only look something up."""
HEAVY: dict[str, Any] = PRIVATE | {
    "concurrency_limit": None,
    "show_progress": "minimal",
    "trigger_mode": "always_last",
}
"""Options of events that run a model in turn: of several quick ones, the newest is answered last."""


class Page:
    """Components and functions that tabs use.

    The header has one image, model and resolution. A choice there changes `count`, and the page sends the
    value of the new encoding to all `views`. Hidden components carry values between scripts and handlers.

    Attributes:
        image: Hidden: "NAME" of an example, or "NAME/TITLE" of a user's own image.
        model, size: Of the header: a name of the catalogue and pixels of the short side.
        count: Hidden: number of requests. Its change requests image, model and resolution. A refusal sets
            these three back without another request, which would remove the message.
        request: Hidden: receives the JSON of events whose script makes the request.
        facts: Of the header: size of the model and grid of patches.
        saved: Hidden: clicked by the browser when a file is ready.
        view: `views.view` for pages with routes.
        views: Views that show the image of the header.
        linked: Controls of tabs whose value is in the address of the page, and their choices, by name.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.image = gr.Textbox(FIRST, visible="hidden", elem_id="image")
        self.count = gr.Textbox("0", visible="hidden", elem_id="ask")
        self.request = gr.JSON(visible=False)
        self.saved = gr.DownloadButton(visible="hidden", elem_id="saved")
        models = backend.models.choices()
        menu: dict[str, Any] = {"container": False, "min_width": 0, "render": False}
        menu["allow_custom_value"] = True
        self.model = dropdown(models, value=backend.models.first, label="Model", elem_id="model", **menu)
        pixels = [(f"{size} px", size) for size in sorted({*RESOLUTIONS, backend.size})]
        self.size = dropdown(pixels, value=backend.size, label="Resolution", elem_id="size", **menu)
        self.facts = gr.HTML(elem_id="model-facts", render=False)
        self.views: list[gr.HTML] = []
        self.linked: dict[str, tuple[gr.Dropdown | gr.Textbox, list[str]]] = {}
        self.view = partial(views.view, routes=True)

    def aside(self, elem_id: str) -> gr.HTML:
        """Return a place in the inspector for parts of a view, which has it as its setting `aside`."""
        slot = f'<div class="lab-view lab-aside" id="{elem_id}"></div>'
        return gr.HTML(slot, apply_default_css=False, padding=False)

    def image_signal(self, elem_id: str) -> gr.HTML:
        """Return a view without content: its event `shown` fires when the image of the header is another one.

        It fires only while the tab is open. Tabs that encode this image by a model of their own listen to it.
        """
        signal = self.view("signal", elem_id=elem_id)
        self.views.append(signal)
        return signal

    def link(self, name: str, control: gr.Dropdown | gr.Textbox, choices: Sequence[str]) -> None:
        """Keep the value of a control, one of some choices, in the address; `address.js` has the names."""
        self.linked[name] = control, list(choices)
        write = f"async (value) => (await pageModule).writeControl('{name}', value)"
        control.change(None, control, None, js=write, **LIGHT)

    def encode(self, image: object, model: object, size: object) -> Encoding:
        """Encode an image of the header, or return its cached encoding."""
        return self.backend.encode(split(image)[0], model, size)

    def show_image(self, image: object, model: object, size: object) -> dict[str, Any]:
        """Return the value of a view for an image, which is encoded when the view fetches arrays."""
        name, title = split(image)
        key, predictor, shape = self.backend.prepare(name, model, size)
        parameters = sum(one.numel() for one in predictor.model.backbone.parameters())
        network = f"{predictor.blocks} blocks of {predictor.heads} heads"
        source = f"{predictor.model.source}, {network}, {predictor.precision} on {predictor.device}"
        grid = f"{shape['columns']} × {shape['rows']} patches of {predictor.patch_size} pixels"
        return shape | {
            "token": key.token,
            "source": f"{name}/{title}" if title else name,
            "name": title or name,
            "model": key.model,
            "size": key.size,
            "random": key.model.startswith("random:"),
            "pin": pin(name) if name in EXAMPLES else None,
            "image": self.address(name),
            "arrays": f"lab/arrays/{key.token}",
            "facts": f"{parameters / 1e6:.1f} M parameters · {grid}",
            "details": source,
        }

    def in_turn(
        self,
        function: Callable[..., Any],
        prepare: Callable[..., Callable[[], object] | None] | None = None,
        turns: fairness.FairTurns | None = None,
    ) -> Callable[..., Any]:
        """Wrap a handler, as `fairness.in_turn`; the images that its inputs name stay in memory."""

        def hold(*inputs: object) -> AbstractContextManager[None]:
            names = [one.get("token") if isinstance(one, dict) else one for one in inputs]
            return self.backend.images.pinned(*names)

        return fairness.in_turn(function, prepare, turns, hold)

    def shows(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a handler that calls `show_image`: it loads the model and reads the image."""
        return self.in_turn(function, self.loader, fairness.DECODING)

    def loader(self, image: object, model: object, *others: object) -> Callable[[], object] | None:
        """Return what loads the model: the preparation of handlers that start with an image and a model."""
        return self.backend.models.loader(model)

    def address(self, name: str, *, small: bool = False) -> str:
        """Return the address of an image, or of its thumbnail."""
        return f"lab/{'thumbnails' if small else 'images'}/{name}.jpg"

    def save(self, event: Callable[..., Any], draw: Callable[[Any], tuple[str, bytes]], js: str) -> None:
        """Let an event, such as `view.exported`, download a file.

        `draw` takes the JSON of the expression `js`; it returns the name of the file and its bytes.
        """

        def write(request: Any) -> str:
            name, content = draw(request)
            path = Path(tempfile.mkdtemp(dir=os.environ.get("GRADIO_TEMP_DIR")), clean_name(name))
            path.write_bytes(content)
            return str(path)

        options = HEAVY | {"trigger_mode": "once"}
        handler = self.in_turn(write, None, fairness.FINDING)
        saved = event(handler, [self.request], self.saved, js=f"async () => [{js}]", **options)
        # The link is there once Gradio has drawn it.
        saved.success(None, js="() => setTimeout(() => document.querySelector('#saved').click(), 50)")


def dropdown(choices: Sequence[Any], **props: Any) -> gr.Dropdown:
    """Return a dropdown whose handlers refuse unknown values; one of digits becomes a number."""

    def preprocess(value: Any) -> Any:  # Gradio's own refusal lists every choice
        return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,5}", value) else value

    created = gr.Dropdown(choices, **props)
    vars(created).update(preprocess=preprocess)
    return created


def split(image: object) -> tuple[str, str]:
    """Split the value of `Page.image` into the name of an image and its title, "" for examples."""
    if not isinstance(image, str):
        raise LabError("The image must be named by text.")
    name, _, title = image.partition("/")
    return name, "" if name in EXAMPLES else clean_name(title)
