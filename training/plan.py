"""Every per-step value of a training, from its recipe and the number of pictures."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dino_model.errors import SettingError
from training.recipes import Recipe
from training.schedules import Schedule, cosine


@dataclass(frozen=True)
class Plan:
    """What the loop and the method do in every step; arrays are [steps]."""

    lr: Schedule
    """Learning rate."""
    weight_decay: Schedule
    clip_grad: float
    """Largest gradient norm of a tensor; 0 for no clipping."""
    method: Any
    """What `MethodConfig.schedules` gave: a dataclass of arrays, or None."""
    steps_per_epoch: int

    @classmethod
    def of(cls, recipe: Recipe, pictures: int) -> "Plan":
        """The plan of a recipe; an epoch's last, incomplete batch is dropped.

        Raises:
            SettingError: fewer pictures than a batch, or a phase longer than training.
        """
        steps_per_epoch = pictures // recipe.batch_size
        if not steps_per_epoch:
            raise SettingError(
                f"{pictures} pictures are fewer than one batch of {recipe.batch_size}: lower --batch-size"
            )
        optimizer, steps = recipe.optimizer, recipe.epochs * steps_per_epoch
        peak = optimizer.lr * recipe.batch_size / 256  # "linear scaling rule", section 3.2
        return cls(
            lr=cosine(peak, optimizer.min_lr, steps, optimizer.warmup_epochs * steps_per_epoch),
            weight_decay=cosine(optimizer.weight_decay, optimizer.weight_decay_end, steps),
            clip_grad=optimizer.clip_grad,
            method=recipe.method.schedules(recipe.epochs, steps_per_epoch),
            steps_per_epoch=steps_per_epoch,
        )

    @property
    def steps(self) -> int:
        """Of the whole training."""
        return len(self.lr)

    def at(self, step: int) -> dict[str, float]:
        """Every value of a step by name, for the log."""
        own = {} if self.method is None else vars(self.method)
        values = {"lr": self.lr, "weight_decay": self.weight_decay} | own
        return {name: float(value[step]) for name, value in values.items() if isinstance(value, np.ndarray)}
