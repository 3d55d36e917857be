"""Training: what a run's log says while it grows, and how the attention of a fixed picture grew with it."""

from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import APIRouter, HTTPException, Response

from app import photos
from app.engine import Engine
from app.photos import EXAMPLES
from app.runs import Runs
from app.tabs import Start, Tab
from app.tabs.explore import look, stage_facts

STATIC = Path(__file__).parents[1] / "static"
SCRIPT = """
import(new URL("lab/static/training.js", document.baseURI)).then(({ mount }) =>
  mount({ element, props, watch, look: (asked) => trigger("look", asked) }));
"""


def build(page: gr.Blocks, engine: Engine, start: Start) -> None:
    """Draw the tab and wire its one event: an example, seen by a checkpoint."""
    stage = gr.HTML(
        html_template=(STATIC / "training.html").read_text(encoding="utf-8"),
        js_on_load=SCRIPT,
        apply_default_css=False,
        elem_id="training",
        facts=stage_facts(),
    )
    answer_looks(stage, engine, start)


def answer_looks(stage: gr.HTML, engine: Engine, start: Start) -> None:
    """Let a script ask, as `trigger("look", {model, example})`, for an example seen by a model.

    The answer becomes the component's value: an encoding, or one sentence why there is none.
    """

    def answer(event: gr.EventData) -> dict[str, Any]:
        asked = event._data if isinstance(event._data, dict) else {}
        name = asked.get("example")
        photo = photos.example(name if name in EXAMPLES else start.example)
        value, _ = look(engine, photo, str(asked.get("model")), start.size, None)
        return value

    stage.look(
        answer,
        None,
        stage,
        concurrency_id="model",
        concurrency_limit=1,
        trigger_mode="multiple",
        api_visibility="private",
        show_progress="minimal",  # says how many wait; the picture stays
    )


def run_routes(engine: Engine) -> APIRouter:
    """Addresses under /lab/runs: which runs there are, and what their logs say."""
    router = APIRouter(prefix="/lab/runs")
    runs = Runs(engine.models_dir)

    @router.get("")
    def names() -> list[dict[str, str]]:
        return [{"name": run.name, "title": run.title} for run in runs.all().values()]

    @router.get("/{name}", response_model=None)
    def told(name: str, version: str = "") -> dict[str, Any] | Response:
        """Nothing (204) while the run is still at `version`."""
        try:
            found = runs.told(name)
        except (KeyError, OSError) as error:
            raise HTTPException(404, "There is no such run here (any more): choose another.") from error
        return Response(status_code=204) if found["version"] == version else found

    return router


TAB = Tab("Training", build, style="training.css", routes=run_routes)
