"""Tiny images, recipes, and trainings through the command."""

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image

from dino_model import photographs
from dino_model.models.backbones import BackboneConfig
from training import __main__ as command
from training.augmentation.crop_config import CropConfig
from training.methods.byol_config import BYOLConfig
from training.methods.dino_ablations_config import AblationsConfig
from training.methods.dino_config import DINOConfig
from training.methods.distill_config import DistillConfig
from training.methods.head import HeadConfig
from training.methods.moco_config import MoCoConfig
from training.methods.supervised_config import SupervisedConfig
from training.methods.swav_config import SwAVConfig
from training.recipes.recipe import OptimizerConfig, Recipe
from training.run.folder import Run
from training.train import Callbacks

RECIPE = Recipe(
    BackboneConfig("vit_tiny", 8, 16, width=12, depth=2, heads=2, drop_path=0.2),
    DINOConfig(HeadConfig(16, hidden=8, layers=2, bottleneck=4), freeze_last_layer_epochs=0),
    CropConfig(global_size=16, local_size=8, local_crops=2),
    OptimizerConfig("sgd", lr=1.0, warmup_epochs=0),
    epochs=1,
    batch_size=16,
)
NORMED = HeadConfig(8, hidden=8, layers=2, bottleneck=None, batch_norm=True, activation="relu")
DINO = RECIPE.method
ABLATIONS = AblationsConfig(**vars(DINO))
SWAV_HEAD = replace(DINO.head, batch_norm=True)
METHODS = {
    "dino": DINO,
    "dino with a norm": replace(DINO, head=SWAV_HEAD),
    "sinkhorn-knopp": replace(ABLATIONS, teacher_output="sinkhorn-knopp", kept_tokens=0.5),
    "mse": replace(ABLATIONS, loss="mse"),
    "infonce": replace(ABLATIONS, teacher_output="none", loss="infonce"),
    "infonce with a queue": replace(ABLATIONS, teacher_output="none", loss="infonce", queue=64),
    "spreading": replace(ABLATIONS, spreading=0.3),
    "koleo and ibot": replace(ABLATIONS, koleo=0.1, patch_loss="ibot"),
    "byol": BYOLConfig(NORMED, predictor=8),
    "moco-v2": MoCoConfig(NORMED, queue=16),
    "swav": SwAVConfig(SWAV_HEAD, queue=16, queue_start_epoch=0, freeze_last_layer_epochs=0),
    "supervised": SupervisedConfig(),
    "distill": DistillConfig("random:embedded", view_scales=(0.5, 1.0, 1.5)),
}
"""Methods, and the options of DINO that use the whole batch."""
CROPS = {"distill": CropConfig(global_size=16, local_crops=0, global_crops=1, augmentation="none")}
"""Crops of methods that do not train with those of `RECIPE`."""
NETWORK = [
    *("--architecture", "vit_tiny", "--width", "24", "--depth", "2", "--heads", "3", "--drop-path", "0.1"),
    *("--patch-size", "8", "--global-size", "32", "--local-size", "16", "--batch-size", "4", "--epochs", "3"),
    *("--warmup-epochs", "1", "--workers", "0", "--device", "cpu", "--precision", "fp32"),
    *("--save-every", "2"),
]
TINY = [*NETWORK, "--prototypes", "64", "--hidden", "16", "--bottleneck", "8", "--local-crops", "2"]
"""DINO: 10 images are 6 steps in 3 epochs."""


def noise(folder: Path, many: int, classes: int, height: int, width: int) -> Path:
    """The folder, with `many` images of noise, dealt to its classes in turn."""
    generator = np.random.default_rng(0)
    for i in range(many):
        target = folder / f"class{i % classes}" / f"{i}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (height, width, 3), np.uint8)).save(target)
    return folder


def write_rectangles(folder: Path, classes: dict[str, int], *, shade: int = 200) -> Path:
    """The folder, with images of rectangles: each class has its own width, each image its own shade."""
    for place, (name, many) in enumerate(classes.items()):
        (folder / name).mkdir(parents=True)
        for number in range(many):
            image = np.zeros((24, 30, 3), np.uint8)
            image[:12, : 6 * (place + 1)] = shade + number
            Image.fromarray(image).save(folder / name / f"{number:03}.png")
    return folder


def few_photographs(count: int = 2) -> AbstractContextManager[object]:
    """Let probes take their lift from the first of the package's images only."""
    return patch.object(photographs, "names", lambda: (*photographs.table(),)[:count])


def train(*words: object) -> int:
    """Exit code of `pretrain` in this process."""
    with few_photographs():
        return command.main(["pretrain", *map(str, words)])


def pretrain(images: Path | str, output: Path, *more: object) -> int:
    """Exit code of a training with the options `TINY`."""
    return train("--data", images, "--output", output, *TINY, *more)


def resume(output: Path, *more: object) -> int:
    """Exit code of a run that is resumed with its own settings."""
    return train("--output", output, "--resume", "--workers", 0, "--device", "cpu", *more)


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


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal to this process in the given step, until `monkeypatch.undo()`."""
    steps, honest = count(), Callbacks.is_stopped

    def is_stopped(callbacks: Callbacks, done: int, device: torch.device) -> bool:
        if next(steps) == step:
            signal.raise_signal(number)
        return honest(callbacks, done, device)

    monkeypatch.setattr(Callbacks, "is_stopped", is_stopped)


def out_of_memory_at(call: int, honest: Callable[..., Any]) -> Callable[..., Any]:
    """A function that finds the device full when it is called for the given time, from 0."""
    calls = count()

    def fails(*given: Any) -> Any:
        if next(calls) == call:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return honest(*given)

    return fails
