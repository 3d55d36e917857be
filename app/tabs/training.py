"""The tab Training: the log of a run as curves, and the attention of its checkpoints."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gradio as gr

from app import fairness
from app.errors import LabError
from app.page import HEAVY, LIGHT, Page, dropdown, inspector, work
from app.runs import CHARTS, Chart, Checkpoint, TrainingRun, chart_table, status_text, warnings_text

TITLE = "Training"
USES = ("image", "size")
HINT = (
    "To see your own runs here, start the app with their folder: `python -m app --models-dir runs`. "
    "Choose a run again to read its newest lines. `tensorboard --logdir runs` shows a live run."
)


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    choices = page.backend.runs.choices()
    first = choices[0][1]
    status = page.backend.runs.read(first)
    last = len(status.checkpoints) - 1
    with work():
        view = page.view("attention", elem_id="checkpoints", pins=False)
        checkpoint = gr.Slider(0, max(1, last), value=last, step=1, label="Checkpoint", elem_id="checkpoint")
        text = f"Shown: {status.checkpoints[last].label}" if status.checkpoints else "No checkpoint yet"
        label = gr.Markdown(text, elem_id="checkpoint-label")
    with inspector():
        run = dropdown(choices, value=first, label="Training run", elem_id="run")
        state = gr.Markdown(status_text(status), elem_id="run-state")
        faults = warnings_text(status)
        warnings = gr.Markdown(faults, visible=bool(faults), elem_id="run-warnings")
        plots = [plot(chart, status, height=200, show_label=False) for chart in CHARTS]
        gr.Markdown(HINT, elem_id="run-hint")

    shown: list[Any] = [state, warnings, checkpoint, *plots]

    run.focus(lambda: gr.Dropdown(choices=page.backend.runs.choices()), None, run, **LIGHT)  # new runs appear
    redrawn = run.input(partial(_read, page), run, shown, trigger_mode="always_last", **LIGHT)
    inputs = [run, checkpoint, page.image, page.size]
    see = fairness.in_turn(partial(_see, page), partial(_loader, page))
    page.image_signal("training-image").shown(see, inputs, [view, label], **HEAVY)
    for event in (checkpoint.input, redrawn.success):
        event(None, js="() => viewOf('training-image')?.showAgain()", **LIGHT)


def plot(chart: Chart, run: TrainingRun, **props: Any) -> gr.LinePlot:
    """Return the plot of a chart of a run; `props` are those of `gr.LinePlot`."""
    title = f"{chart.title} ({chart.unit})" if chart.unit else chart.title
    named = {"title": title, "y_title": chart.unit or chart.title}
    return gr.LinePlot(
        x="step", y="value", color="curve", tooltip="all", **named | _curves(chart, run) | props
    )


def _curves(chart: Chart, run: TrainingRun) -> dict[str, Any]:
    """Return the properties of a plot that depend on the run: its legend, and hidden without values."""
    table = chart_table(chart, run)
    curves = table["curve"].unique().tolist()
    return {"value": table, "colors_in_legend": curves, "visible": bool(curves) or "hidden"}


def _loader(page: Page, name: Any, index: Any, image: Any, size: Any) -> Callable[[], object] | None:
    return page.backend.models.loader(_checkpoint(page.backend.runs.read(name), index).model)


def _see(page: Page, name: Any, index: Any, image: Any, size: Any) -> tuple[Any, str]:
    checkpoint = _checkpoint(page.backend.runs.read(name), index)
    return page.encode_image(image, checkpoint.model, size), f"Shown: {checkpoint.label}"


def _read(page: Page, name: Any) -> list[Any]:
    """Return state, warnings, checkpoint slider and plots of a run."""
    run = page.backend.runs.read(name)
    faults, last = warnings_text(run), len(run.checkpoints) - 1
    return [
        status_text(run),
        gr.Markdown(faults, visible=bool(faults)),
        gr.Slider(maximum=max(1, last), value=last, interactive=last > 0),
        *(gr.LinePlot(**_curves(chart, run)) for chart in CHARTS),
    ]


def _checkpoint(run: TrainingRun, index: Any) -> Checkpoint:
    checkpoints = run.checkpoints
    if type(index) is not int or not 0 <= index <= max(1, len(checkpoints) - 1):
        raise LabError("The checkpoint must be a number of the slider.")
    if not checkpoints:
        raise LabError(f"{run.name} has no checkpoint yet.")
    return checkpoints[min(index, len(checkpoints) - 1)]
