"""The tabs of the page, one module each.

A tab has a title and a function that draws it. Its script and style stand in `app/static`; bytes it serves
beside Gradio's events are routes of its own. To add one, write the module and name it in `app.server.TABS`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import gradio as gr
from fastapi import APIRouter

from app.engine import Engine


@dataclass(frozen=True)
class Start:
    """What the page opens with."""

    model: str
    size: int
    example: str = "cat"


@dataclass(frozen=True)
class Tab:
    """One tab: `build` draws its components and wires their events, inside the page it is given."""

    title: str
    build: Callable[[gr.Blocks, Engine, Start], None]
    style: str | None = None
    """Style sheet in `app/static` that only this tab needs, beside the page's own."""
    routes: Callable[[Engine], APIRouter] | None = None
    """Addresses under /lab that only this tab needs."""
