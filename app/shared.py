"""What the tabs share: the lab, the image, model and resolution of the header, and a few wirings.

Contract of a tab
- app/tabs/NAME.py has `TITLE` and `build(shared)`, called once inside `gr.Tab(TITLE, id=NAME)`.
  `shared.tabs[NAME]` is that tab; its `select` event also fires once when the page loads.
- A view that shows the image of the header is appended to `shared.views`: the page sends it the value of
  every new image, model and resolution (`Shared.look`). A handler that depends on that image listens to the
  view's `shown` event, which fires only while the view is visible: `view.shown(find, [shared.photo,
  shared.model, shared.size, …], …)`.
- `shared.photo` is the text "NAME" of an example or "NAME/TITLE" of a user's own image, `shared.model` a
  name of the catalogue, `shared.size` an int. `shared.encode(photo, model, size)` checks all three and
  returns an `Encoding`; everything slow takes `progress=gr.Progress()`.
- Every handler can be called by anybody with any JSON: check each argument, raise `LabError` with one
  sentence. No path, model or address is taken from a value; images and encodings are looked up by name or
  token.
- Handlers that run a model are wrapped: `fairness.in_turn(handler)`. All events have
  `api_visibility="private"` (`**PRIVATE`, `**LIGHT` for handlers without a model).
- What needs no Python has `fn=None, js=…`: `find("ELEM_ID")` in such a script is the view's instance.
- Downloads: `shared.save(button, draw, js)`; `draw` returns (file name, bytes).
- Tabs that take an image of the header are in `IMAGE_TABS` of page.js; elsewhere its images are hidden.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app import fairness
from app.arrays import ArrayServer
from app.downloads import Scene
from app.engine import Encoding
from app.errors import LabError
from app.lab import Lab
from app.photos import EXAMPLES, clean_name, for_screen, pin, thumbnail
from app.progress import Progress, silent
from app.temporary import read_upload
from app.view import View, maps_of, object_patch
from app.views import encoding_value, picture_address

PRIVATE: dict[str, Any] = {"api_visibility": "private"}
"""Of events that run a model."""
MAX_ALBUM = 20_000  # characters
LIGHT: dict[str, Any] = PRIVATE | {"concurrency_limit": None, "show_progress": "hidden"}
"""Of events that only look something up."""


@dataclass
class Shared:
    """Components and functions that tabs use; see the module docstring."""

    lab: Lab
    routes: bool
    """Whether the server has `app.arrays.routes`."""
    photo: gr.Textbox
    """Hidden: "NAME" of an example, or "NAME/TITLE" of a user's own image."""
    album: gr.Textbox
    """Hidden: the images of the strip in its order, one a line; the user's own come first."""
    model: gr.Dropdown
    size: gr.Dropdown
    asked: gr.JSON
    """Hidden: input of events whose script says what is asked, see `Shared.ask`."""
    saved: gr.DownloadButton
    """Hidden: clicked by the browser when a file is ready."""
    count: gr.Textbox
    """Hidden: its change asks for image, model and resolution. A refusal sets these three
    back without asking again, which would take the message away."""
    tabs: dict[str, gr.Tab] = field(default_factory=dict)
    views: list[gr.HTML] = field(default_factory=list)
    """Views that show the image of the header."""
    updates: list[tuple[Component, Callable[[Encoding], Any]]] = field(default_factory=list)
    """Components that follow from the encoding, such as the range of a slider, and their updates."""

    @property
    def server_functions(self) -> list[Callable]:
        """Argument of views: how they fetch arrays where there are no routes."""
        server = ArrayServer(self.lab)

        def fetch_array(question: list) -> str:
            return server.fetch_array(question)

        def fetch_frame(question: list) -> str:
            return server.fetch_frame(question)

        return [] if self.routes else [fetch_array, fetch_frame]  # Gradio marks functions, not methods

    @property
    def first(self) -> Encoding:
        """The encoding that the page opens with."""
        start = self.lab.start
        return self.lab.engine.encode(start.photo, start.model, start.size)

    def encode(self, photo: object, model: object, size: object, progress: Progress = silent) -> Encoding:
        """Encode an image of the header, or find its encoding in memory.

        Raises:
            LabError: An argument is invalid or forgotten.
        """
        name, _ = split(photo)
        return self.lab.engine.encode(name, model, size, progress)  # type: ignore[arg-type]  # checked there

    def value(self, encoding: Encoding, photo: object = "") -> dict[str, Any]:
        """Return the value of a view for an encoding; `photo` holds the title of a user's own image."""
        _, title = split(photo or encoding.key.photo)
        name = encoding.key.photo
        arrays = f"lab/arrays/{encoding.key.token}" if self.routes else None
        return encoding_value(encoding, title, self.picture(name), arrays)

    def picture(self, name: str, *, small: bool = False) -> str:
        """Return the address of an image, or of its thumbnail."""
        if self.routes:
            return f"lab/{'thumbnails' if small else 'pictures'}/{name}.jpg"
        picture = self.lab.pictures.read(name)
        return picture_address(thumbnail(picture) if small else for_screen(picture))

    def keep(self, path: object) -> str:
        """Take in an image that an upload component gives; return its name as `photo` has it.

        Raises:
            LabError: It is no image, too large, or no upload.
        """
        name, _ = self.lab.pictures.keep(read_upload(path, self.lab.limits.max_upload_bytes))
        return f"{name}/{clean_name(str(path))}"

    def scene(self, request: object, photo: object = None, *, full: bool = True) -> Scene:
        """Return what a view shows, with all that its files are made of.

        Args:
            request: The `request` of an attention view.
            photo: Another image than the one of its token, seen by the same model under the same settings.
            full: Pictures have the size of the image; otherwise that of a screen.

        Raises:
            LabError: The request is no view, or what it is about is forgotten.
        """
        view = View.of(request)
        assert isinstance(request, dict)
        name, token = str(request.get("name", "")), request.get("token")
        if not isinstance(token, str):
            raise LabError("Nothing is shown yet: wait for the maps, then try again.")
        encoding = self.lab.engine.encoding(token)
        if photo is not None:
            own, name = split(photo)
            encoding = self.lab.engine.encode(own, encoding.key.model, encoding.key.size)
        with self.lab.engine.reading:
            if photo is not None:
                asks = view.quantity == "likeness"
                place = pin(encoding.key.photo) if encoding.example else None
                row, column = object_patch(encoding, place) if asks else (0, 0)
                view = replace(view, query=f"{row},{column}" if asks else "cls")
            maps = maps_of(encoding, view)
        picture = self.lab.pictures.read(encoding.key.photo)
        title = encoding.key.photo if encoding.example else clean_name(name)
        return Scene(encoding, view, maps, picture if full else for_screen(picture), title)

    def photos(self, album: object) -> list[str]:
        """Return the images of an album, one a line, that are still in memory."""
        found = []
        for line in str(album)[:MAX_ALBUM].split("\n"):
            with contextlib.suppress(LabError):
                self.lab.pictures.check(split(line)[0])
                found.append(line)
        return found

    def ask(
        self, button: gr.Button, handler: Callable[[Any], Any], output: Component, js: str, **options: Any
    ) -> gr.events.Dependency:
        """Let a button send what a script returns, one JSON object, to a handler that runs a model.

        Args:
            button: Visible.
            handler: Takes the object, which may be any JSON.
            output: Takes what the handler returns.
            js: An expression, such as `lab("explore").request`.
            options: Of the event.
        """
        return button.click(
            fairness.in_turn(handler),
            [self.asked],
            output,
            js=f"() => [{js}]",
            show_progress="minimal",
            concurrency_limit=None,
            **PRIVATE | options,
        )

    def save(self, button: gr.Button, draw: Callable[[Any], tuple[str, bytes]], js: str) -> None:
        """Let a button download what `draw` returns: a file name and its bytes; arguments as `ask`."""

        def write(asked: Any) -> str:
            name, content = draw(asked)
            folder = Path(tempfile.mkdtemp(dir=os.environ.get("GRADIO_TEMP_DIR")))
            (folder / clean_name(name)).write_bytes(content)
            return str(folder / clean_name(name))

        # The link is there once Gradio has drawn it.
        click = "() => setTimeout(() => document.querySelector('#saved').click(), 50)"
        self.ask(button, write, self.saved, js).success(None, js=click)


def field_of(asked: object, name: str) -> str:
    """Return a text of the JSON object that a client sent.

    Raises:
        LabError: It is no object, or the field no text.
    """
    value = asked.get(name) if isinstance(asked, dict) else None
    if not isinstance(value, str):
        raise LabError(f"The request must be an object with the text {name}.")
    return value


def split(photo: object) -> tuple[str, str]:
    """Split the value of `Shared.photo` into the name of an image and its title, "" for examples.

    Raises:
        LabError: It is no text.
    """
    if not isinstance(photo, str):
        raise LabError("The image must be named by text.")
    name, _, title = photo.partition("/")
    return name, "" if name in EXAMPLES else clean_name(title)
