"""Training: what a run's log says while it grows, and how the attention of a fixed picture grew with it."""

from typing import Any

import gradio as gr
from fastapi import APIRouter, HTTPException, Response

from app.engine import Engine
from app.runs import Runs
from app.tabs import Start, Tab, stage


def build(page: gr.Blocks, engine: Engine, start: Start) -> None:
    """Draw the tab and wire its one event: an example, seen by a checkpoint."""
    shown = stage.draw("training", ["look"], stage.colors() | {"examples": stage.examples()})
    stage.answer_looks(shown, engine, start.example, start.size)


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
