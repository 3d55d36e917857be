"""Every per-step value of a training, from its recipe and the number of images."""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from dino_model.errors import SettingError
from training.crop_config import CropConfig
from training.recipe import Recipe
from training.schedules import Schedule, cosine


class Stage(NamedTuple):
    """Steps with crops of one size."""

    first_step: int
    end: int
    """The first step after the stage."""
    crops: CropConfig


@dataclass(frozen=True)
class Plan:
    """Values of every step; arrays are [steps]."""

    lr: Schedule
    """Learning rate."""
    weight_decay: Schedule
    clip_grad: float
    """Largest gradient norm of a tensor; 0 for no clipping."""
    method: Any
    """Schedules of the method: a dataclass of arrays, or None."""
    steps_per_epoch: int
    stages: tuple[Stage, ...] = ()
    """Stages of the resolution curriculum, in order; a single one without a curriculum."""

    @classmethod
    def of(cls, recipe: Recipe, pictures: int) -> "Plan":
        """Plan a recipe for a number of images; an epoch's last, incomplete batch is dropped.

        Raises:
            SettingError: Fewer images than a batch, or a stage of the curriculum without a step.
        """
        steps_per_epoch = pictures // recipe.batch_size
        if not steps_per_epoch:
            raise SettingError(
                f"{pictures} images are fewer than one batch of {recipe.batch_size}: lower --batch-size"
            )
        optimizer, steps = recipe.optimizer, recipe.epochs * steps_per_epoch
        peak = optimizer.lr * recipe.batch_size / 256  # "linear scaling rule", section 3.2
        return cls(
            lr=cosine(peak, optimizer.min_lr, steps, optimizer.warmup_epochs * steps_per_epoch),
            weight_decay=cosine(optimizer.weight_decay, optimizer.weight_decay_end, steps),
            clip_grad=optimizer.clip_grad,
            method=recipe.method.schedules(recipe.epochs, steps_per_epoch),
            steps_per_epoch=steps_per_epoch,
            stages=stages_of(recipe, steps),
        )

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.lr)

    def at(self, step: int) -> dict[str, float]:
        """Every value of a step by name, for the log."""
        arrays = {"lr": self.lr, "weight_decay": self.weight_decay} | (
            vars(self.method) if self.method else {}
        )
        values = {name: float(v[step]) for name, v in arrays.items() if isinstance(v, np.ndarray)}
        if len(self.stages) > 1:
            values["global_size"] = next(s.crops.global_size for s in self.stages if step < s.end)
        return values


def stages_of(recipe: Recipe, steps: int) -> tuple[Stage, ...]:
    """Stages of the curriculum, in steps; borders are rounded to whole steps.

    Raises:
        SettingError: A stage without a step.
    """
    shares, crops = zip(*recipe.crop_stages(), strict=True)
    ends = [round(steps * total) for total in accumulate(shares)]
    stages = tuple(map(Stage, [0, *ends], ends, crops))
    for stage, text in zip(stages, recipe.crops.curriculum, strict=False):
        if stage.first_step == stage.end:
            raise SettingError(f"stage {text} of --curriculum has no step out of {steps}: raise --epochs")
    return stages
