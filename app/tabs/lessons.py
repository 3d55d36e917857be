"""The lessons of the tab Learn: their texts, what their view shows, and the numbers of the current image."""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import entropy

from app import STATIC
from app.handlers.attention_maps import attention
from app.store.engine import Encoding
from app.store.runs import TrainingRun
from segmentation.masks import keep_mass_of_maps

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
    return tuple(_lesson(text, view) for text, view in zip(texts, _VIEWS, strict=True))


def _lesson(text: str, view: Mapping[str, Any]) -> Lesson:
    title, rest = text.split("\n", 1)
    body, rest = rest.split("### Answer\n")
    answer, paper = rest.split("### Paper\n")
    return Lesson(title, body.strip(), answer.strip(), paper.strip(), **view)


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


def training_numbers(run: TrainingRun) -> dict[str, str]:
    """Return the last values of a run for the lesson about the teacher."""
    keys = {"kl": "kl", "entropy": "teacher_entropy", "ln_k": "ln_k"}
    return {name: f"{run.log.newest[key]:.4g}" for name, key in keys.items()}


def _entropies(encoding: Encoding, block: int = -1) -> np.ndarray:
    """Return the entropy of each head's [CLS] attention in nats: [heads]."""
    return np.asarray(entropy(attention(encoding, block).astype(np.float64), axis=(1, 2)))


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
