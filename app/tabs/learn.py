"""Learn: a guided tour in eight steps that drives a stage of its own, each ending in a question."""

import gradio as gr

from app.engine import Engine
from app.tabs import Start, Tab, stage


def build(page: gr.Blocks, engine: Engine, start: Start) -> None:
    """Draw the tab and wire its one event: an example, seen by a model."""
    shown = stage.draw("learn", ["look"], stage.colors())
    stage.answer_looks(shown, engine, start.example, start.size)


TAB = Tab("Learn", build, style="learn.css")
