"""The tab Learn: eight topics from patches to the teacher, each with a question, next to one shared view."""

import json
from functools import partial
from typing import Any

import gradio as gr

from app.limits import fairness
from app.limits.errors import LabError
from app.page import HEAVY, LIGHT, Page, inspector, work
from app.store.runs import CHARTS, chart_value
from app.tabs.lessons import RANDOM, TRAINED, fill, lessons, numbers, settings, training_numbers

TITLE = "Learn"
USES = ("image", "size")
APPLY = """(text) => {
  const { lesson, center, ...settings } = JSON.parse(text || "{}");
  const view = viewOf("learn-view");
  if (!view) return;
  view.element.dataset.lesson = lesson;
  view.set(settings);
  view.hoverAt(center ? { x: 0.5, y: 0.5 } : null);
}"""


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    with work():
        with gr.Column(elem_id="lesson-stage", min_width=0) as stage:
            view = page.view("attention", elem_id="learn-view", pins=False)
        value = chart_value(CHARTS[1], page.backend.runs.read(TRAINED)) | {"title": f"Training of {TRAINED}"}
        curves = page.view("chart", value, elem_id="lesson-curves", visible="hidden")
    with inspector():
        choices = [(f"{index + 1} {one.title}", index) for index, one in enumerate(lessons())]
        number = gr.Radio(choices, value=0, label="Topic", elem_id="lesson")
        body = gr.Markdown(fill(lessons()[0].body, {}), elem_id="lesson-body")
        mass = gr.Slider(10, 100, value=60, step=1, label="Attention kept (%)", visible=False)
        block = gr.Slider(1, 12, value=12, step=1, label="Block", visible=False)
        trained = [("Trained with DINO", TRAINED), ("Random", RANDOM)]
        weights = gr.Radio(trained, value=TRAINED, label="Weights", visible=False)
        with gr.Accordion("Answer", open=False) as accordion:
            answer = gr.Markdown(fill(lessons()[0].answer, {}), elem_id="lesson-answer")
        paper = gr.Markdown(lessons()[0].paper, elem_classes="note")
        with gr.Row():
            for label, step in (("Back", -1), ("Next", 1)):
                button = gr.Button(label, size="sm", variant="primary" if step > 0 else "secondary")
                turn = f"(index) => Math.max(0, Math.min({len(choices) - 1}, index + {step}))"
                button.click(None, number, number, js=turn, **LIGHT)

    state = gr.Textbox("", visible="hidden", elem_id="lesson-state")
    inputs, show = [number, weights, page.image, page.size], fairness.in_turn(partial(_show, page))
    outputs = [view, state, stage, curves, mass, block, weights, body, answer, paper]
    shown = page.image_signal("learn-image").shown(show, inputs, outputs, **HEAVY)
    shown.success(None, state, None, js=APPLY, **LIGHT)
    for event in (number.change, weights.input):
        event(None, js="() => viewOf('learn-image')?.showAgain()", **LIGHT)
    number.change(lambda: gr.Accordion(open=False), None, accordion, **LIGHT)
    mass.input(None, mass, None, js="(mass) => viewOf('learn-view').set({ mass })", **LIGHT)
    block.input(None, block, None, js="(block) => viewOf('learn-view').set({ block })", **LIGHT)


def _show(page: Page, index: Any, weights: Any, image: Any, size: Any) -> list[Any]:
    """Return the values of all components that change with the lesson, the weights or the image."""
    if type(index) is not int or not 0 <= index < len(lessons()):
        raise LabError(f"The lesson must be a number from 0 to {len(lessons()) - 1}.")
    lesson = lessons()[index]
    value, shown, blocks = gr.skip(), {}, 2
    if "weights" not in lesson.controls:
        weights = TRAINED
    if lesson.plot:
        values = training_numbers(page.backend.runs.read(TRAINED))
    else:
        encoding = page.encode(image, TRAINED, size)
        random = page.encode(image, RANDOM, size) if "weights" in lesson.controls else None
        value, shown, blocks = (
            page.show_image(image, weights, size),
            settings(lesson, encoding),
            encoding.predictor.blocks,
        )
        values = numbers(encoding, random)
    return [
        value,
        json.dumps(shown | {"lesson": index}),
        gr.Column(visible=not lesson.plot),
        gr.HTML(visible=lesson.plot or "hidden"),
        gr.Slider(value=60, visible="mass" in lesson.controls),
        gr.Slider(maximum=blocks, value=blocks, visible="block" in lesson.controls),
        gr.Radio(value=weights, visible="weights" in lesson.controls),
        fill(lesson.body, values),
        fill(lesson.answer, values),
        lesson.paper,
    ]
