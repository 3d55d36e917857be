"""The tab Training: the log of a run as curves, and the attention of its checkpoints."""

from functools import partial
from typing import Any

import gradio as gr

from app.limits.errors import LabError
from app.page import HEAVY, LIGHT, Page, dropdown, export_button, inspector, script, work
from app.store.runs import CHARTS, Checkpoint, chart_value, status_text, warnings_text

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
        with gr.Row(elem_id="film"):
            play = gr.Button("Play", size="sm", min_width=0, scale=0, elem_id="play-run")
            checkpoint = gr.Slider(
                0, max(1, last), value=last, step=1, label="Checkpoint", elem_id="checkpoint"
            )
            text = f"Shown: {status.checkpoints[last].label}" if status.checkpoints else "No checkpoint yet"
            label = gr.Markdown(text, elem_id="checkpoint-label")
    with inspector():
        run = dropdown(choices, value=first, label="Training run", elem_id="run")
        state = gr.Markdown(status_text(status), elem_id="run-state")
        faults = warnings_text(status)
        warnings = gr.Markdown(faults, visible=bool(faults), elem_id="run-warnings")
        loss, *others = CHARTS
        charts = [page.view("chart", chart_value(loss, status), elem_id="run-loss", marker=None)]
        with gr.Accordion("More curves", open=False, elem_id="more-curves"):
            charts += [page.view("chart", chart_value(chart, status)) for chart in others]
        export_button("checkpoints")
        gr.Markdown(HINT, elem_id="run-hint", elem_classes="note")

    shown: list[Any] = [state, warnings, checkpoint, *charts]

    run.focus(lambda: gr.Dropdown(choices=page.backend.runs.choices()), None, run, **LIGHT)  # new runs appear
    redrawn = run.input(partial(_read, page), run, shown, trigger_mode="always_last", **LIGHT)
    inputs = [run, checkpoint, page.image, page.size]
    load = lambda name, index, *_: page.backend.models.loader(_checkpoint(page, name, index).model)  # noqa: E731
    see = page.in_turn(partial(_see, page), load)
    page.image_signal("training-image").shown(see, inputs, [view, label, charts[0]], **HEAVY)
    for event in (checkpoint.input, redrawn.success):
        event(None, js="() => viewOf('training-image')?.showAgain()", **LIGHT)
    play.click(None, None, None, js=script("playRun"), **LIGHT)


def _see(page: Page, name: Any, index: Any, image: Any, size: Any) -> tuple[Any, str, Any]:
    checkpoint = _checkpoint(page, name, index)
    value = page.show_image(image, checkpoint.model, size)
    return value, f"Shown: {checkpoint.label}", gr.HTML(marker=checkpoint.step)


def _read(page: Page, name: Any) -> list[Any]:
    """Return state, warnings, checkpoint slider and plots of a run."""
    run = page.backend.runs.read(name)
    faults, last = warnings_text(run), len(run.checkpoints) - 1
    return [
        status_text(run),
        gr.Markdown(faults, visible=bool(faults)),
        gr.Slider(maximum=max(1, last), value=last, interactive=last > 0),
        *(chart_value(chart, run) for chart in CHARTS),
    ]


def _checkpoint(page: Page, name: Any, index: Any) -> Checkpoint:
    checkpoints = page.backend.runs.read(name).checkpoints
    if type(index) is not int or index not in range(max(2, len(checkpoints))):
        raise LabError("The checkpoint must be a number of the slider.")
    if not checkpoints:
        raise LabError(f"{name} has no checkpoint yet.")
    return checkpoints[min(index, len(checkpoints) - 1)]
