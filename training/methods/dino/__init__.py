"""DINO: the algorithm, its configuration, and the variants that the paper compares it with.

The algorithm imports torch and is loaded on first access.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from training.methods.dino.config import DINOConfig, DINOSchedules

if TYPE_CHECKING:
    from training.methods.dino.algorithm import DINO

__all__ = ["DINO", "DINOConfig", "DINOSchedules"]


def __getattr__(name: str) -> Any:
    if name == "DINO":
        return import_module("training.methods.dino.algorithm").DINO
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
