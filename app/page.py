"""Image, model and resolution of the header, which all tabs use, and the saving of files."""

import contextlib
import html
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from app import fairness, views
from app.backend import Backend
from app.engine import Encoding
from app.errors import LabError
from app.images import EXAMPLES, THUMBNAIL_SIDE, clean_name
from app.limits import RESOLUTIONS
from app.temporary import read_upload
from app.views import encoding_value


def work() -> gr.Column:
    """Return the column of a tab for its views, which fill the height of the page."""
    return gr.Column(elem_classes="work", min_width=0)


def segments(
    choices: Sequence[tuple[str, str]], *, elem_classes: Sequence[str] = (), **props: Any
) -> gr.Radio:
    """Return a choice of a few words, the first chosen, drawn as segments of one bar."""
    return gr.Radio(choices, value=choices[0][1], elem_classes=["segments", *elem_classes], **props)


def script(function: str) -> str:
    """Return the script of an event that calls a function of app/static/page.js."""
    return f"async (...values) => (await window.pageModule).{function}(...values)"


def inspector() -> gr.Column:
    """Return the column of a tab for its controls, on the right of `work`, or below it on a phone."""
    return gr.Column(elem_classes="inspector", min_width=0)


PRIVATE: dict[str, Any] = {"api_visibility": "private"}
LIGHT: dict[str, Any] = PRIVATE | {"concurrency_limit": None, "show_progress": "hidden"}
"""Options of events that only look something up."""
HEAVY: dict[str, Any] = PRIVATE | {
    "concurrency_limit": None,
    "show_progress": "minimal",
    "trigger_mode": "always_last",
}
"""Options of events that run a model in turn: of several quick ones, the newest is answered last."""
MAX_ALBUM = 20_000  # characters


class Page:
    """Components and functions that tabs use.

    The header has one image, model and resolution. A choice there changes `count`, and the page sends the
    value of the new encoding to all `views`. Hidden components carry values between scripts and handlers.

    Args:
        backend: Models, images and limits.

    Attributes:
        image: Hidden: "NAME" of an example, or "NAME/TITLE" of a user's own image.
        album: Hidden: the images of the strip, one per line; the user's own come first.
        model, size: Of the header: a name of the catalogue and pixels of the short side.
        count: Hidden: number of requests. Its change requests image, model and resolution. A refusal sets
            these three back without another request, which would remove the message.
        request: Hidden: receives the JSON of events whose script makes the request.
        saved: Hidden: clicked by the browser when a file is ready.
        views: Views that show the image of the header.
        linked: Controls of tabs whose value is in the address of the page, by their names there.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        start, sizes = backend.start, sorted({*RESOLUTIONS, backend.start.size})
        self.image = gr.Textbox(start.image, visible="hidden", elem_id="image")
        self.album = gr.Textbox("\n".join(EXAMPLES), visible="hidden", elem_id="album")
        self.count = gr.Textbox("0", visible="hidden", elem_id="ask")
        self.request = gr.JSON(visible=False)
        self.saved = gr.DownloadButton(visible="hidden", elem_id="saved")
        models = backend.models.choices()
        menu: dict[str, Any] = {"container": False, "min_width": 0, "render": False}
        self.model = dropdown(models, value=start.model, label="Model", elem_id="model", **menu)
        pixels = [(f"{size} px", size) for size in sizes]
        self.size = dropdown(
            pixels, value=start.size, label="Resolution", elem_id="size", allow_custom_value=True, **menu
        )
        self.views: list[gr.HTML] = []
        self.linked: dict[str, gr.Dropdown] = {}

    def view(self, name: str, value: dict[str, Any] | None = None, **props: Any) -> gr.HTML:
        """Return a view as `views.view`."""
        return views.view(name, value, routes=True, **props)

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

    def link(self, name: str, control: gr.Dropdown) -> None:
        """Keep the value of a control in the address of the page; `address.js` has the names."""
        self.linked[name] = control
        write = f"async (value) => (await pageModule).writeControl('{name}', value)"
        control.change(None, control, None, js=write, **LIGHT)

    def thumbnails(self, images: Iterable[str]) -> list[tuple[str, str]]:
        """Return address and title of the thumbnail of each image."""
        named = [split(image) for image in images]
        return [(self.address(name, small=True), title or EXAMPLES[name]) for name, title in named]

    def encode(self, image: object, model: object, size: object) -> Encoding:
        """Encode an image of the header, or return its cached encoding."""
        return self.backend.encode(split(image)[0], model, size)

    def value(self, encoding: Encoding, image: object = "") -> dict[str, Any]:
        """Return the value of a view for an encoding; `image` holds the title of a user's own image."""
        _, title = split(image or encoding.key.image)
        return encoding_value(encoding, title, self.address(encoding.key.image))

    def encode_image(self, image: object, model: object, size: object) -> dict[str, Any]:
        """Encode an image; return the value of a view."""
        return self.value(self.encode(image, model, size), image)

    def loader(self, image: object, model: object, *others: object) -> Callable[[], object] | None:
        """Return what loads the model: the preparation of handlers that start with an image and a model."""
        return self.backend.models.loader(model)

    def address(self, name: str, *, small: bool = False) -> str:
        """Return the address of an image, or of its thumbnail."""
        return f"lab/{'thumbnails' if small else 'images'}/{name}.jpg"

    def keep(self, path: object) -> str:
        """Read an uploaded image and keep it; return its name as `image` has it."""
        content, title = read_upload(path, self.backend.limits.max_upload_bytes), clean_name(str(path))
        name = self.backend.images.keep(content, title)
        if self.backend.images.is_halved(content):
            gr.Info(f"{html.escape(title)} is very large: it is shown at half its width and height.")
        return f"{name}/{title}"

    def images_of(self, album: object) -> list[str]:
        """Return the images of an album that are still in memory."""
        found = []
        for line in str(album)[:MAX_ALBUM].split("\n"):
            with contextlib.suppress(LabError):
                self.backend.images.check(split(line)[0])
                found.append(line)
        return found

    def save(self, button: gr.Button, draw: Callable[[Any], tuple[str, bytes]], js: str) -> None:
        """Let a button download a file that a handler draws.

        Args:
            button: Visible.
            draw: Takes the JSON of the script; returns the name of the file and its bytes.
            js: An expression, such as `viewOf("explore").request`.
        """

        def write(request: Any) -> str:
            return write_download(*draw(request))

        self.save_result(button, fairness.in_turn(write), js)

    def save_result(self, button: gr.Button, handler: Callable[..., Any], js: str) -> None:
        """Let a button download the file whose path a handler returns, see `write_download`."""
        options = HEAVY | {"trigger_mode": "once"}
        saved = button.click(handler, [self.request], self.saved, js=f"() => [{js}]", **options)
        # The link is there once Gradio has drawn it.
        saved.success(None, js="() => setTimeout(() => document.querySelector('#saved').click(), 50)")


def write_download(name: str, content: bytes) -> str:
    """Write a file that the browser will fetch; return its path."""
    path = Path(tempfile.mkdtemp(dir=os.environ.get("GRADIO_TEMP_DIR")), clean_name(name))
    path.write_bytes(content)
    return str(path)


def dropdown(choices: Sequence[Any], **props: Any) -> gr.Dropdown:
    """Return a dropdown whose value its handlers check: they refuse an unknown one in a sentence.

    A custom value of digits becomes a number.
    """

    def preprocess(value: Any) -> Any:  # Gradio's own refusal lists every choice
        return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,5}", value) else value

    created = gr.Dropdown(choices, **props)
    vars(created).update(preprocess=preprocess)
    return created


def samples(images: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the samples of a `strip`."""
    size = f'width="{THUMBNAIL_SIDE}" height="{THUMBNAIL_SIDE}"'
    return [[f'<img src="{source}" alt="{html.escape(title)}" {size}>'] for source, title in images]


def strip(images: Iterable[tuple[str, str]], **props: Any) -> gr.Dataset:
    """Return a strip of images, by address and title; its click gives the number of one."""
    props |= {"type": "index", "layout": "gallery", "samples_per_page": 100, "show_label": False}
    return gr.Dataset(components=[gr.HTML(visible=False)], samples=samples(images), **props)


def split(image: object) -> tuple[str, str]:
    """Split the value of `Page.image` into the name of an image and its title, "" for examples."""
    if not isinstance(image, str):
        raise LabError("The image must be named by text.")
    name, _, title = image.partition("/")
    return name, "" if name in EXAMPLES else clean_name(title)
