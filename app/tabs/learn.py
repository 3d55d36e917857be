"""The tab Learn: eight topics from patches to the teacher, each with a question, next to one shared view.

Texts are in app/static/learn.md; placeholders such as {grid} stand for numbers of the current image.
"""

import json
import re
from collections.abc import Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import gradio as gr
import numpy as np

from app import STATIC
from app.handlers.attention_maps import attention
from app.limits import fairness
from app.limits.errors import LabError
from app.page import HEAVY, LIGHT, Page, inspector, work
from app.store.engine import Encoding
from app.store.runs import CHARTS, chart_value
from segmentation.masks import keep_mass_of_maps

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
TRAINED, RANDOM = "embedded-dino", "random:embedded"
MASS = 0.6
PLAIN: Mapping[str, Any] = {"head": "mean", "layer": "light", "mass": 60, "opacity": 80, "block": 0}


class Lesson(NamedTuple):
    """A step of the tab Learn."""

    title: str
    body: str
    """Markdown with placeholders such as {grid}."""
    answer: str
    """Likewise, hidden until it is opened."""
    paper: str
    """Markdown with links to the sections of the paper."""
    settings: Mapping[str, Any] = MappingProxyType({})
    """Settings of the view in addition to `PLAIN`."""
    narrowest: bool = False
    """True if the view shows the head with the smallest entropy."""
    controls: tuple[str, ...] = ()
    """Further controls: "mass", "block" or "weights"."""
    plot: bool = False
    """True if the training curves replace the view."""


_VIEWS: tuple[dict[str, Any], ...] = (
    {"settings": {"opacity": 0}},
    {"settings": {"head": "heads"}},
    {"settings": {"center": True}},
    {"settings": {"layer": "mask"}, "narrowest": True, "controls": ("mass",)},
    {"settings": {"layer": "mask"}, "narrowest": True},
    {"controls": ("block",)},
    {"controls": ("weights",)},
    {"plot": True},
)


@cache
def lessons() -> tuple[Lesson, ...]:
    """Return the lessons in their order."""
    texts = re.split(r"^## ", (STATIC / "learn.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found = []
    for text, view in zip(texts, _VIEWS, strict=True):
        title, _, rest = text.partition("\n")
        body, answer, paper = map(str.strip, re.split("### (?:Answer|Paper)\n", rest))
        found.append(Lesson(title, body, answer, paper, **view))
    return tuple(found)


def fill(text: str, numbers: Mapping[str, str]) -> str:
    """Replace the placeholders of a lesson; those without a number become "…"."""
    return re.sub(r"\{(\w+)\}", lambda found: numbers.get(found[1], "…"), text)


def settings(lesson: Lesson, encoding: Encoding) -> dict[str, Any]:
    """Return the settings of the view for a lesson."""
    values = {**PLAIN, **lesson.settings}
    return values | {"head": str(_entropies(encoding).argmin())} if lesson.narrowest else values


def numbers(encoding: Encoding, random: Encoding | None = None) -> dict[str, str]:
    """Compute the numbers in the texts for an image.

    Args:
        encoding: By the trained model.
        random: By random weights; without it, {random_area} is left out.
    """
    rows, columns = encoding.predictor.grid
    patches, prefix = rows * columns, encoding.predictor.prefix_tokens
    maps, entropies = attention(encoding), _entropies(encoding)
    narrowest, widest = int(entropies.argmin()), int(entropies.argmax())
    found = {
        "grid": f"{columns} × {rows} = {patches:,}",
        "tokens": f"{patches + prefix:,}",
        "finer": f"{4 * patches + prefix:,}",
        "narrowest": f"head {narrowest} with {entropies[narrowest]:.2f} of {np.log(patches):.2f} nats",
        "widest": f"head {widest} with {entropies[widest]:.2f} of {np.log(patches):.2f} nats",
        "mutual": _mutual(encoding),
        "area": _area(maps[narrowest]),
        "trained_area": _area(maps.mean(axis=0)),
        "first_entropy": f"{_entropies(encoding, 0).mean():.2f} nats",
        "last_entropy": f"{entropies.mean():.2f} nats",
    }
    return found if random is None else found | {"random_area": _area(attention(random).mean(axis=0))}


def _entropies(encoding: Encoding, block: int = -1) -> np.ndarray:
    """Return the entropy of each head's [CLS] attention in nats: [heads]."""
    from scipy.special import entr  # half a second to import

    maps = attention(encoding, block).astype(np.float64)
    return np.asarray(entr(maps / maps.sum(axis=(1, 2), keepdims=True)).sum(axis=(1, 2)))


def _area(values: np.ndarray) -> str:
    return _percent(float(keep_mass_of_maps(values, MASS).mean()))


def _mutual(encoding: Encoding) -> str:
    """Describe how much attention the central patch and its strongest partner give each other."""
    rows, columns = encoding.predictor.grid
    own = (rows // 2, columns // 2)
    given = attention(encoding, -1, own).mean(axis=0)
    others = given.copy()
    others[own] = -1
    row, column = divmod(int(others.argmax()), columns)
    back = attention(encoding, -1, (row, column)).mean(axis=0)[own]
    return (
        f"The patch in row {own[0]}, column {own[1]} gives {_percent(float(given[row, column]))} of its "
        f"attention, averaged over the heads, to the patch in row {row}, column {column}, "
        f"and receives {_percent(float(back))}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def build(page: Page) -> None:
    """Build the tab inside its `gr.Tab`."""
    with work():
        with gr.Column(elem_id="lesson-stage", min_width=0) as stage:
            view = page.view("attention", elem_id="learn-view", pins=False)
        curves = page.view("chart", elem_id="lesson-curves", visible="hidden")
    with inspector():
        first = lessons()[0]
        choices = [(f"{index + 1} {one.title}", index) for index, one in enumerate(lessons())]
        number = gr.Radio(choices, value=0, label="Topic", elem_id="lesson")
        body = gr.Markdown(fill(first.body, {}), elem_id="lesson-body")
        mass = gr.Slider(10, 100, value=60, step=1, label="Attention kept (%)", visible=False)
        block = gr.Slider(1, 12, value=12, step=1, label="Block", visible=False)
        trained = [("Trained with DINO", TRAINED), ("Random", RANDOM)]
        weights = gr.Radio(trained, value=TRAINED, label="Weights", visible=False)
        with gr.Accordion("Answer", open=False) as accordion:
            answer = gr.Markdown(fill(first.answer, {}), elem_id="lesson-answer")
        paper = gr.Markdown(first.paper, elem_classes="note")
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
    value, shown, blocks, curves = gr.skip(), {}, 2, gr.HTML(visible="hidden")
    if "weights" not in lesson.controls:
        weights = TRAINED
    if lesson.plot:
        run = page.backend.runs.read(TRAINED)
        values = {name: f"{run.log.newest[name]:.4g}" for name in ("kl", "teacher_entropy", "ln_k")}
        curves = gr.HTML(chart_value(CHARTS[1], run) | {"title": f"Training of {TRAINED}"}, visible=True)
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
        curves,
        gr.Slider(value=60, visible="mass" in lesson.controls),
        gr.Slider(maximum=blocks, value=blocks, visible="block" in lesson.controls),
        gr.Radio(value=weights, visible="weights" in lesson.controls),
        fill(lesson.body, values),
        fill(lesson.answer, values),
        lesson.paper,
    ]
