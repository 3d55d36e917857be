"""The tab Learn: eight topics from patches to the teacher, each with a question, next to one shared view.

Texts are in app/static/learn.md; placeholders such as {grid} stand for numbers of the image. The style sheet
shows the controls of a topic, and the training curves in the last, by `data-lesson` of the page.
"""

import json
import re
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import gradio as gr
import numpy as np

from app import STATIC
from app.handlers.attention_maps import attention
from app.limits.errors import LabError
from app.page import HEAVY, LIGHT, Page, inspector, work
from app.store.engine import Encoding
from app.store.runs import chart_value
from segmentation.masks import keep_mass_of_maps
from training.run.log import TERMS

TITLE = "Learn"
USES = ("image", "size")
APPLY = """(text) => {
  const { lesson, center, ...settings } = JSON.parse(text || "{}");
  document.body.dataset.lesson = lesson;
  viewOf("learn-view")?.set(settings);
  viewOf("learn-view")?.hoverAt(center ? { x: 0.5, y: 0.5 } : null);
}"""
TRAINED, RANDOM = "embedded-dino", "random:embedded"
PLAIN: Mapping[str, Any] = {"head": "mean", "layer": "light", "mass": 60, "opacity": 80, "block": 0}
MASK: Mapping[str, Any] = {"layer": "mask", "head": "narrowest"}
VIEWS: tuple[Mapping[str, Any], ...] = (
    {"opacity": 0},
    {"head": "heads"},
    {"center": True},
    MASK,
    MASK,
    {},
    {},
    {},
)
"""Settings of the view for each topic, in addition to `PLAIN`."""
RANDOM_TOPIC = 6  # has a choice of the weights


class Lesson(NamedTuple):
    """A topic: its title, and Markdown with placeholders; the answer is hidden until it is opened."""

    title: str
    body: str
    answer: str
    paper: str


@cache
def lessons() -> tuple[Lesson, ...]:
    """Return the lessons in their order."""
    texts = re.split(r"^## ", (STATIC / "learn.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    parts = (text.split("\n", 1) for text in texts)
    return tuple(
        Lesson(title, *map(str.strip, re.split("### (?:Answer|Paper)\n", rest))) for title, rest in parts
    )


def fill(text: str, numbers: Mapping[str, str]) -> str:
    """Replace the placeholders of a lesson; those without a number become "…"."""
    return re.sub(r"\{(\w+)\}", lambda found: numbers.get(found[1], "…"), text)


def settings(index: int, encoding: Encoding) -> dict[str, Any]:
    """Return the settings of the view for a lesson; the narrowest head has the smallest entropy."""
    values = {**PLAIN, **VIEWS[index], "lesson": index}
    return values | {"head": str(_entropies(encoding).argmin())} if VIEWS[index] is MASK else values


def numbers(encoding: Encoding, random: Encoding) -> dict[str, str]:
    """Compute the numbers in the texts for an image, encoded by the trained model and by random weights."""
    rows, columns = encoding.predictor.grid
    patches, prefix = rows * columns, encoding.predictor.prefix_tokens
    maps, entropies = attention(encoding), _entropies(encoding)
    narrowest, widest = int(entropies.argmin()), int(entropies.argmax())
    return {
        "grid": f"{columns} × {rows} = {patches:,}",
        "tokens": f"{patches + prefix:,}",
        "finer": f"{4 * patches + prefix:,}",
        "narrowest": f"head {narrowest} with {entropies[narrowest]:.2f} of {np.log(patches):.2f} nats",
        "widest": f"head {widest} with {entropies[widest]:.2f} of {np.log(patches):.2f} nats",
        "area": _area(maps[narrowest]),
        "trained_area": _area(maps.mean(axis=0)),
        "random_area": _area(attention(random).mean(axis=0)),
        "first_entropy": f"{_entropies(encoding, 0).mean():.2f} nats",
        "last_entropy": f"{entropies.mean():.2f} nats",
    }


def _entropies(encoding: Encoding, block: int = -1) -> np.ndarray:
    """Return the entropy of each head's [CLS] attention in nats: [heads]."""
    from scipy.special import entr  # half a second to import

    maps = attention(encoding, block).astype(np.float64)
    return np.asarray(entr(maps / maps.sum(axis=(1, 2), keepdims=True)).sum(axis=(1, 2)))


def _area(values: np.ndarray) -> str:
    return f"{100 * float(keep_mass_of_maps(values, PLAIN['mass'] / 100).mean()):.3g} %"


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    run = page.backend.runs.read(TRAINED)
    with work():
        view = page.view("attention", elem_id="learn-view", pins=False, blocks=True, aside="learn-aside")
        curves = chart_value(TERMS, run) | {"title": f"Training of {TRAINED}"}
        page.view("chart", curves, elem_id="lesson-curves")
    with inspector():
        first = lessons()[0]
        choices = [(f"{index + 1} {one.title}", index) for index, one in enumerate(lessons())]
        number = gr.Radio(choices, value=0, label="Topic", elem_id="lesson")
        body = gr.Markdown(fill(first.body, {}), elem_id="lesson-body")
        mass = gr.Slider(10, 100, PLAIN["mass"], step=1, label="Attention kept (%)", elem_id="lesson-mass")
        page.aside("learn-aside")
        trained = [("Trained with DINO", TRAINED), ("Random", RANDOM)]
        weights = gr.Radio(trained, value=TRAINED, label="Weights", elem_id="lesson-weights")
        with gr.Accordion("Answer", open=False) as accordion:
            answer = gr.Markdown(fill(first.answer, {}), elem_id="lesson-answer")
        paper = gr.Markdown(first.paper, elem_classes="note")
        with gr.Row():
            for label, step in (("Back", -1), ("Next", 1)):
                button = gr.Button(label, size="sm", variant="primary" if step > 0 else "secondary")
                turn = f"(index) => Math.max(0, Math.min({len(choices) - 1}, index + {step}))"
                button.click(None, number, number, js=turn, **LIGHT)

    state = gr.Textbox("", visible="hidden", elem_id="lesson-state")
    inputs, show = [number, weights, page.image, page.size], page.in_turn(partial(_show, page))
    outputs = [view, state, weights, body, answer, paper]
    shown = page.image_signal("learn-image").shown(show, inputs, outputs, **HEAVY)
    shown.success(None, state, None, js=APPLY, **LIGHT)
    for event in (number.change, weights.input):
        event(None, js="() => viewOf('learn-image')?.showAgain()", **LIGHT)
    number.change(lambda: (gr.Accordion(open=False), PLAIN["mass"]), None, [accordion, mass], **LIGHT)
    mass.change(None, mass, None, js="(mass) => viewOf('learn-view')?.set({ mass })", **LIGHT)


def _show(page: Page, index: Any, weights: Any, image: Any, size: Any) -> list[Any]:
    """Return the values of all components that change with the lesson, the weights or the image."""
    if type(index) is not int or not 0 <= index < len(lessons()):
        raise LabError(f"The lesson must be a number from 0 to {len(lessons()) - 1}.")
    weights = weights if index == RANDOM_TOPIC else TRAINED
    encoding, random = (page.encode(image, name, size) for name in (TRAINED, RANDOM))
    newest = page.backend.runs.read(TRAINED).log.newest
    values = numbers(encoding, random)
    values |= {name: f"{newest[name]:.4g}" for name in ("kl", "teacher_entropy", "ln_k")}
    lesson = lessons()[index]
    texts = [fill(lesson.body, values), fill(lesson.answer, values), lesson.paper]
    shown = json.dumps(settings(index, encoding))
    return [page.show_image(image, weights, size), shown, weights, *texts]
