"""Compute attention maps and features of images: backbones, weights, collections, predictor."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dino_model.data.images import read as read_image
    from dino_model.inference.predictor import AttentionPredictor
    from dino_model.models.load import load_model

__all__ = ["AttentionPredictor", "load_model", "read_image"]

_EXPORTS = {
    "AttentionPredictor": ("dino_model.inference.predictor", "AttentionPredictor"),
    "load_model": ("dino_model.models.load", "load_model"),
    "read_image": ("dino_model.data.images", "read"),
}


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` at its first use, because `--help` must not wait for torch."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    return getattr(importlib.import_module(module), attribute)
