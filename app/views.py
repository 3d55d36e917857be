"""Views that follow the pointer, as Gradio components: each function returns a prepared `gr.HTML`.

They work in any `gr.Blocks`, also without the page of this package:

    predictor = AttentionPredictor("embedded")
    with gr.Blocks() as demo:
        image = gr.Image()
        view = attention_view()
        image.change(lambda pixels: attention_value(predictor, pixels), image, view)

Contract of a view NAME
- Python: `view(NAME, value, elem_id=…, **props)`. The value is small JSON; bytes go by address, see
  `app.handlers.arrays`. A handler replaces a value by returning a new one, a setting by `gr.HTML(mass=30)`.
- Browser: app/static/views/NAME_view.js exports the class NameView, which extends `View` of view.js. It is
  constructed with `{ element, props, watch, emit, id, server }` and needs nothing else of Gradio, so that a
  static page can construct it too. A view that was hidden is constructed again with its number, `id`. The
  instance is `element.view`. On the page of this package, handlers with `js=` use `viewOf(elem_id)`.
- Events: "select", a place was clicked; "edited", the view changed its own settings; "exported", the server
  is to write the file of `exportRequest`; "shown", with `{token}`.
  A hidden view computes and fetches nothing. It draws when it becomes visible and then emits "shown":
  handlers that depend on the image listen to `view.shown`.
- `element.dataset.token` is set when the value has been drawn; tests wait for it.
- `request`, a property of the instance, is the state on the screen as arguments of a handler.
"""

import hashlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from app import STATIC
from app.handlers.arrays import static_address

_NUMBERS = itertools.count(1)  # of components: their elements are new each time they become visible
MOUNT = """// Python listens to events whose names are in quotes here: "select", "shown", "edited", "exported"
const root = element.firstElementChild;
const failed = (error) => { root.textContent = "The server does not answer: reload the page."; throw error; };
import(new URL("%(module)s", document.baseURI)).catch(failed).then(({ %(constructor)s }) => {
  root.view ??= new %(constructor)s({ element: root, props, watch, emit: trigger, id: %(id)d,
    server: typeof server === "undefined" ? null : server });
});"""
"""Script that constructs a view in its element. `gr.HTML` defines `element`, `props` (its arguments, which
handlers change), `watch` (calls a function when props change) and `trigger` (emits an event)."""


def attention_view(
    value: Mapping[str, Any] | None = None, *, head: str | int | None = None, **props: Any
) -> gr.HTML:
    """Show an image with its attention maps, and below it the map of every head.

    Args:
        value: From `app.values.attention_value`, or None for an empty view.
        head: "mean", "max", "heads" or a number. A handler changes it by `gr.HTML(shown_head="max")`, because
            `gr.HTML` has a parameter `head` of its own.
        props: `elem_id` and other arguments of `gr.HTML`, and these settings.
            - quantity: "attention", "key-similarity", "logits", "key-cosine", "token-cosine", "token-norm"
              or "key-pca".
            - block: From 1; 0 is the last.
            - layer: "light", "heat" or "mask".
            - mass: 10..100. opacity: 0..100. colormap: A name. outline: True draws it on every layer.
            - title: True shows the name of the model. tiles: False hides the row of heads.
            - blocks: True shows a tile of each block, and every head of every block in a dialog.
            - numbers: True shows values and facts. pins: False makes a click only emit "select".
            - aside: The id of an element for pins, blocks and numbers; without it they are below the image.
            - group: Views of one group share the pointer.

    Events:
        select: A patch was clicked; data {row, column, x, y, token}. shown, edited: See the module.
    """
    if head is not None:
        props["shown_head"] = str(head)
    return view("attention", value, **props)


def view(name: str, value: Mapping[str, Any] | None = None, *, routes: bool = False, **props: Any) -> gr.HTML:
    """Show a value in the view of app/static/views/NAME_view.js; see the module for its contract.

    Args:
        name: attention, chart, class_map, clip, mask, pair, rail or signal.
        routes: Whether the server has `app.handlers.arrays.routes`.
        props: Settings of the view and arguments of `gr.HTML`.
    """
    path = f"views/{name}_view.js"
    if not routes:
        gr.set_static_paths([STATIC])
    module = static_address(path) if routes else f"gradio_api/file={STATIC}/{path}"
    constructor = name.title().replace("_", "") + "View"
    component = gr.HTML(
        dict(value) if value else None,
        html_template='<div class="lab-view"></div>',  # without ${value}: never rendered again
        js_on_load=MOUNT % {"module": module, "constructor": constructor, "id": next(_NUMBERS)},
        apply_default_css=False,
        **props,
    )
    vars(component).update(flag=_flag, read_from_flag=_read_from_flag)
    return component


def _flag(value: object, flag_dir: str | Path = "") -> str:
    """Store a value of a client, which holds images and arrays, in a file; return its path for the log."""
    if not value:
        return ""
    content = json.dumps(value).encode()
    file = Path(flag_dir, f"{hashlib.blake2b(content, digest_size=16).hexdigest()}.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return str(file)


def _read_from_flag(path: str) -> object:
    return json.loads(Path(path).read_bytes())
