"""Recipes: functions that return a configuration, with command, hardware, time and expected score."""

from collections.abc import Callable, Sequence
from typing import Literal

from dino_model.errors import SettingError
from training.recipes import comparisons, dino
from training.recipes.recipe import METHODS, Advice, MethodName, OptimizerConfig, Recipe, recipe_of

__all__ = [
    "FROM_PICTURES",
    "METHODS",
    "NOMINAL",
    "RECIPES",
    "Advice",
    "MethodName",
    "OptimizerConfig",
    "Recipe",
    "RecipeName",
    "find",
    "recipe_of",
    "typical_short_side",
]

RecipeName = Literal[
    "official-default", "paper", "small-data", "embedded", "comparison", "small-batch", "resnet50", "deit"
]
RECIPES: dict[str, dict[str, Callable[..., Advice]]] = {
    "dino": {
        "official-default": dino.official_default,
        "paper": dino.paper,
        "resnet50": dino.resnet50,
        "small-data": dino.small_data,
        "embedded": dino.embedded,
    },
    "byol": {
        "paper": comparisons.byol_paper,
        "comparison": comparisons.byol_comparison,
        "small-data": comparisons.small_byol,
    },
    "moco-v2": {
        "paper": comparisons.moco_paper,
        "comparison": comparisons.moco_comparison,
        "small-data": comparisons.small_moco,
    },
    "swav": {
        "paper": comparisons.swav_paper,
        "small-batch": comparisons.swav_small_batch,
        "comparison": comparisons.swav_comparison,
        "small-data": comparisons.small_swav,
    },
    "supervised": {
        "deit": comparisons.deit,
        "resnet50": comparisons.supervised_resnet,
        "small-data": comparisons.small_supervised,
    },
}
"""By method and name, a method's usual one first."""


FROM_PICTURES = frozenset({"small-data"})
"""Recipes whose functions ask for the number of pictures and the short side of a typical one."""
NOMINAL = (10_000, 224)
"""Such pictures stand for those to come where a recipe is only shown."""


def find(method: str, name: str | None) -> tuple[str, Callable[..., Advice]]:
    """Name and function of a method's recipe; its first without a name.

    Raises:
        SettingError: the method has no such recipe.
    """
    there = RECIPES[method]
    name = name or next(iter(there))
    if name not in there:
        raise SettingError(f"{method} has no recipe {name!r}: choose {' or '.join(there)}")
    return name, there[name]


def typical_short_side(sizes: Sequence[tuple[int, int]]) -> int:
    """Median of the shorter sides of pictures of (height, width)."""
    shorter = sorted(min(size) for size in sizes)
    return shorter[len(shorter) // 2]
