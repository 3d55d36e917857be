"""The row above a stage: a photograph from the visitor, a model from the list, a resolution."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from app.engine import Engine

SIZES = (224, 336, 480, 640)


def row(name: str) -> gr.Row:
    """The row itself; `name` keeps apart the rows of several tabs."""
    return gr.Row(elem_id=f"{name}-toolbar", elem_classes="lab-toolbar")


def photograph(
    name: str, label: str = "Choose a photograph", file_types: Sequence[str] = ("image",)
) -> gr.UploadButton:
    """A button that takes one file, whatever its suffix claims: reading it judges it."""
    button = gr.UploadButton(
        label,
        file_types=list(file_types),
        variant="primary",
        elem_id=f"{name}-photo",
        elem_classes="lab-photo",
        scale=0,
        min_width=200,
    )
    # A subclass would make Gradio write a stub file beside this module at every start.
    button.preprocess = _sent_file  # type: ignore[assignment, method-assign]
    return button


def model(name: str, engine: Engine, first: str, label: str = "Model") -> gr.Dropdown:
    """The models of the catalogue, by what visitors read."""
    choices = [(choice.label, key) for key, choice in engine.models.items()]
    return _list(name, choices, first, label, scale=2)


def size(name: str, first: int) -> gr.Dropdown:
    """Resolutions, the page's first among them."""
    choices = [(f"{pixels} pixels", pixels) for pixels in sorted({*SIZES, first})]
    return _list(name, choices, first, "Resolution, short side", scale=1)


def _list(name: str, choices: Sequence[tuple[str, Any]], first: Any, label: str, scale: int) -> gr.Dropdown:
    return gr.Dropdown(
        list(choices),
        value=first,
        label=label,
        elem_id=name,
        elem_classes="lab-list",
        scale=scale,
        min_width=180,
    )


def _sent_file(payload: Any) -> Path | None:
    return None if payload is None else Path(payload.path)
