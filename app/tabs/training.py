"""The tab Training: the log of a run as curves that grow with it, and the attention of its checkpoints."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gradio as gr

from app import fairness
from app.errors import LabError
from app.page import HEAVY, LIGHT, Page
from app.runs import CHARTS, Chart, Checkpoint, TrainingRun, chart_table, status_text, warnings_text

TITLE = "Training"
BEAT = "(beat) => beat + (!document.hidden && document.querySelector('#checkpoints')?.offsetParent ? 1 : 0)"
POLL_SECONDS = 4
HINT = (
    "To watch your own runs here, start the app with their folder: `python -m app --models-dir runs`. "
    "`python -m training pretrain` writes such a folder."
)
GROWTH = (
    "### Attention during training\n"
    "The image above, encoded by the checkpoints of this run: the attention of [CLS], or of the patch "
    "under the pointer, in the last block."
)


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    choices = page.backend.runs.choices()
    first = choices[0][1]
    status = page.backend.runs.read(first)
    run = gr.Dropdown(choices, value=first, label="Training run", elem_id="run")
    state = gr.Markdown(status_text(status), elem_id="run-state")
    warnings = gr.Markdown(warnings_text(status), visible=bool(warnings_text(status)), elem_id="run-warnings")
    hint = gr.Markdown(HINT, visible=len(choices) == 1, elem_id="run-hint")
    plots: list[gr.LinePlot] = []
    for pair in (CHARTS[:2], CHARTS[2:]):
        with gr.Row():
            plots += [plot(chart, status, height=260, min_width=300, show_label=False) for chart in pair]
    gr.Markdown(GROWTH)
    last = len(status.checkpoints) - 1
    checkpoint = gr.Slider(0, max(1, last), value=last, step=1, label="Checkpoint", elem_id="checkpoint")
    text = f"Shown: {status.checkpoints[last].label}" if status.checkpoints else "No checkpoint yet"
    label = gr.Markdown(text, elem_id="checkpoint-label")
    view = page.view("attention", elem_id="checkpoints", pins=False)

    version = gr.State("")
    beat = gr.Number(0, visible="hidden")
    shown: list[Any] = [version, state, warnings, hint, checkpoint, *plots]

    run.focus(lambda: gr.Dropdown(choices=page.backend.runs.choices()), None, run, **LIGHT)  # new runs appear
    refresh = partial(_refresh, page)
    redrawn = run.input(partial(refresh, ""), [checkpoint, run], shown, trigger_mode="always_last", **LIGHT)
    timer = gr.Timer(POLL_SECONDS)
    timer.tick(None, beat, beat, js=BEAT, **LIGHT)
    beat.change(refresh, [version, checkpoint, run], shown, trigger_mode="once", **LIGHT)
    inputs = [run, checkpoint, page.photo, page.size]
    opened = page.tabs["training"].select
    events = [page.photo.change, page.size.change, opened, checkpoint.input, redrawn.success]
    page.question(events, inputs, "#checkpoints").change(
        fairness.in_turn(partial(_see, page), partial(_loader, page)), inputs, [view, label], **HEAVY
    )


def plot(chart: Chart, run: TrainingRun, **props: Any) -> gr.LinePlot:
    """Return the plot of a chart of a run; `props` are those of `gr.LinePlot`."""
    named = {"title": f"{chart.title} ({chart.unit})", "y_title": chart.unit} | props
    return gr.LinePlot(chart_table(chart, run), x="step", y="value", color="curve", tooltip="all", **named)


def _loader(page: Page, name: Any, index: Any, photo: Any, size: Any) -> Callable[[], object] | None:
    return page.backend.models.loader(_checkpoint(page.backend.runs.read(name), index).model)


def _see(page: Page, name: Any, index: Any, photo: Any, size: Any) -> tuple[Any, str]:
    checkpoint = _checkpoint(page.backend.runs.read(name), index)
    return page.encode_image(photo, checkpoint.model, size), f"Shown: {checkpoint.label}"


def _refresh(page: Page, known: Any, index: Any, name: Any) -> list[Any]:
    """Return version, state, warnings, hint, checkpoint slider and plots; what has not changed is skipped."""
    run = page.backend.runs.read(name)
    if run.version == known:
        return [gr.skip(), status_text(run), *[gr.skip()] * (3 + len(CHARTS))]
    last = len(run.checkpoints) - 1  # another run is shown at its newest checkpoint
    same = str(known).startswith(f"{run.name}/") and type(index) is int and index < last
    faults = warnings_text(run)
    return [
        run.version,
        status_text(run),
        gr.Markdown(faults, visible=bool(faults)),
        gr.Markdown(visible=len(page.backend.runs.choices()) == 1),
        gr.Slider(maximum=max(1, last), value=index if same else last, interactive=last > 0),
        *(chart_table(chart, run) for chart in CHARTS),
    ]


def _checkpoint(run: TrainingRun, index: Any) -> Checkpoint:
    checkpoints = run.checkpoints
    if type(index) is not int or not 0 <= index <= max(1, len(checkpoints) - 1):
        raise LabError("The checkpoint must be a number of the slider.")
    if not checkpoints:
        raise LabError(f"{run.name} has no checkpoint yet.")
    return checkpoints[min(index, len(checkpoints) - 1)]
