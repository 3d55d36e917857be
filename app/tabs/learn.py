"""Learn: a guided tour in eight steps that drives a stage of its own, each ending in a question."""

from pathlib import Path

import gradio as gr

from app.engine import Engine
from app.tabs import Start, Tab
from app.tabs.explore import stage_facts
from app.tabs.training import answer_looks

STATIC = Path(__file__).parents[1] / "static"
SCRIPT = """
import(new URL("lab/static/learn.js", document.baseURI)).then(({ mount }) =>
  mount({ element, props, watch, look: (asked) => trigger("look", asked) }));
"""


def build(page: gr.Blocks, engine: Engine, start: Start) -> None:
    """Draw the tab and wire its one event: an example, seen by a model."""
    stage = gr.HTML(
        html_template=(STATIC / "learn.html").read_text(encoding="utf-8"),
        js_on_load=SCRIPT,
        apply_default_css=False,
        elem_id="learn",
        facts=stage_facts(),
    )
    answer_looks(stage, engine, start)


TAB = Tab("Learn", build, style="learn.css")
