"""Tiny trainings, as a recipe and through the command."""

import signal
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from training import __main__ as command
from training.crop_config import CropConfig
from training.methods.dino_config import DINOConfig
from training.recipe import OptimizerConfig, Recipe
from training.run import Run

RECIPE = Recipe(
    BackboneConfig("vit_tiny", 8, 16, width=12, depth=2, heads=2, drop_path=0.2),
    DINOConfig(HeadConfig(16, hidden=8, layers=2, bottleneck=4), freeze_last_layer_epochs=0),
    CropConfig(global_size=16, local_size=8, local_crops=2),
    OptimizerConfig("sgd", lr=1.0, warmup_epochs=0),
    epochs=1,
    batch_size=16,
)
NETWORK = [
    *("--architecture", "vit_tiny", "--width", "24", "--depth", "2", "--heads", "3", "--drop-path", "0.1"),
    *("--patch-size", "8", "--global-size", "32", "--local-size", "16", "--batch-size", "4", "--epochs", "3"),
    *("--warmup-epochs", "1", "--workers", "0", "--device", "cpu", "--precision", "fp32"),
    *("--save-every", "2"),
]
TINY = [*NETWORK, "--prototypes", "64", "--hidden", "16", "--bottleneck", "8", "--local-crops", "2"]
"""DINO: 10 images are 6 steps in 3 epochs."""


def pretrain(images: Path, output: Path, *more: object) -> int:
    """Exit code of a training with the options `TINY`."""
    words = ["pretrain", "--data", images, "--output", output, *TINY, *more]
    return command.main([str(word) for word in words])


def resume(output: Path, *more: object) -> int:
    """Exit code of a run that is resumed with its own settings."""
    words = ["pretrain", "--output", output, "--resume", "--workers", 0, "--device", "cpu", *more]
    return command.main([str(word) for word in words])


def values(output: Path) -> list[dict[str, Any]]:
    """Log of a run without the values of the clock; empty before its first step."""
    run = Run(output)
    lines = run.lines() if run.log.exists() else []
    clock = ("images_per_second", "data_wait")
    return [{name: value for name, value in line.items() if name not in clock} for line in lines]


def weights(output: Path, name: str = "checkpoint.pt") -> dict[str, torch.Tensor]:
    """State of the method in a checkpoint of a run."""
    state: dict[str, torch.Tensor] = torch.load(output / name, weights_only=True)["method"]
    return state


class SignalAt:
    """A signal that arrives in the given step."""

    def __init__(self, step: int, number: signal.Signals) -> None:
        self.steps, self.step, self.number = -1, step, number

    def __bool__(self) -> bool:
        self.steps += 1
        return self.steps >= self.step

    def __getitem__(self, _: int) -> signal.Signals:
        return self.number


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal to every training in the given step, until `monkeypatch.undo()`."""
    monkeypatch.setattr("training.commands.pretrain.stop_signal", lambda: nullcontext(SignalAt(step, number)))


def out_of_memory_at(call: int, honest: Callable[..., Any]) -> Callable[..., Any]:
    """A function that finds the device full when it is called for the given time, from 0."""
    calls = count()

    def fails(*given: Any) -> Any:
        if next(calls) == call:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return honest(*given)

    return fails
