"""What the tabs share: the lab, the image, model and resolution of the header, and a few wirings.

Contract of a tab
- app/tabs/NAME.py has `TITLE` and `build(shared)`, called once inside `gr.Tab(TITLE, id=NAME)`.
  `shared.tabs[NAME]` is that tab; its `select` event also fires once when the page loads.
- A view that shows the image of the header is appended to `shared.views`: the page sends it the value of
  every new image, model and resolution (`Shared.look`). A handler that depends on that image listens to the
  view's `load` event, which fires only while the view is visible: `view.load(find, [shared.photo,
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
- Downloads: `shared.save(button, draw, inputs, js)`; `draw` returns (file name, bytes).
- Tabs that take an image of the header set `USES_IMAGE = True`; elsewhere the header's images are hidden.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr

from app import fairness
from app.arrays import ArrayServer
from app.engine import Encoding
from app.errors import LabError
from app.lab import Lab
from app.photos import EXAMPLES, clean_name, for_screen, thumbnail
from app.progress import Progress, silent
from app.views import encoding_value, picture_address

PRIVATE: dict[str, Any] = {"api_visibility": "private"}
"""Of events that run a model."""
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
    saved: gr.DownloadButton
    """Hidden: clicked by the browser when a file is ready."""
    tabs: dict[str, gr.Tab] = field(default_factory=dict)
    views: list[gr.HTML] = field(default_factory=list)
    """Views that show the image of the header."""

    @property
    def server_functions(self) -> list[Callable]:
        """Argument of views: how they fetch arrays where there are no routes."""
        return [] if self.routes else [ArrayServer(self.lab).fetch_array]

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

    def save(
        self,
        button: gr.Button,
        draw: Callable[..., tuple[str, bytes]],
        inputs: Sequence[Any] = (),
        js: str | None = None,
    ) -> None:
        """Let a button download what `draw(*inputs)` returns: a file name and its bytes.

        Args:
            button: Visible.
            draw: Checks its arguments, raises `LabError`.
            inputs: Components.
            js: Script that returns the inputs instead, such as `() => [find("explore").request]`.
        """

        def write(*values: Any) -> str:
            name, content = draw(*values)
            folder = Path(tempfile.mkdtemp(dir=os.environ.get("GRADIO_TEMP_DIR")))
            (folder / clean_name(name)).write_bytes(content)
            return str(folder / clean_name(name))

        drawn = button.click(
            fairness.in_turn(write), list(inputs), self.saved, js=js, show_progress="minimal", **PRIVATE
        )
        drawn.success(None, js="() => setTimeout(() => document.querySelector('#saved').click(), 100)")


def split(photo: object) -> tuple[str, str]:
    """Split the value of `Shared.photo` into the name of an image and its title, "" for examples.

    Raises:
        LabError: It is no text.
    """
    if not isinstance(photo, str):
        raise LabError("The image must be named by text.")
    name, _, title = photo.partition("/")
    return name, "" if name in EXAMPLES else clean_name(title)
