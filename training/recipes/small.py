"""What suits thousands of pictures instead of a million, on one machine, whatever the method."""

import math
from dataclasses import dataclass

from dino_model.configs import BackboneConfig
from dino_model.errors import SettingError
from training.crop_config import CropConfig
from training.recipes.recipe import Advice, Methods, OptimizerConfig, Recipe


@dataclass(frozen=True)
class Small:
    """Backbone, crops, rates and momentum for given pictures, with the reason for each."""

    batch_size: int
    epochs: int
    backbone: BackboneConfig
    crops: CropConfig
    optimizer: OptimizerConfig
    teacher_momentum: float
    momentum_reason: str
    reasons: tuple[str, ...]

    @classmethod
    def of(
        cls, pictures: int, short_side: int, batch_size: int, epochs: int, patch_size: int | None = None
    ) -> "Small":
        """Choose settings for a number of images and the short side of a typical one, in pixels.

        Without `patch_size`, patches have 16 pixels, or 8 for crops below 96.

        Raises:
            SettingError: no epochs, or batches of nothing.
        """
        numbers = {"epochs": epochs, "batch-size": batch_size, "patch-size": patch_size}
        for name, value in numbers.items():
            if value is not None and value < 1:
                raise SettingError(f"--{name} is {value}, expected at least 1")
        steps = epochs * (pictures // batch_size)
        momentum = max(0.9, min(0.996 ** (batch_size / 1024), 1 - 20 / max(steps, 1)))
        warmup = max(1, min(10, epochs // 10)) if epochs > 1 else 0
        unit = patch_size or 16
        side = max(-(-32 // unit) * unit, min(224, short_side) // unit * unit)  # in whole patches
        patch_size = patch_size or (16 if side >= 96 else 8)
        local = max(-(-16 // patch_size), side * 3 // 7 // patch_size) * patch_size  # 96 of 224
        lr = 0.0003 * math.sqrt(16 / batch_size) * 256 / 16  # for 256 pictures; 0.0003 at a batch of 16
        reasons = (
            f"crops of {side} and {local} pixels: the pictures are {short_side} pixels high or wide",
            f"learning rate {lr * batch_size / 256:.3g} ({lr:.3g} for 256): it goes with the batch's root",
            f"warm-up of {warmup} epochs: a tenth of the run, at most the official 10",
        )
        return cls(
            batch_size,
            epochs,
            BackboneConfig("vit_tiny", patch_size, image_size=side, depth=6, heads=6),
            CropConfig(global_size=side, local_size=local, local_crops=6),
            OptimizerConfig(lr=round(lr, 6), warmup_epochs=warmup),
            round(momentum, 5),
            f"teacher momentum from {momentum:.5f}: it averages a twentieth of the {steps:,} steps or less",
            reasons,
        )

    def advice(self, method: Methods, crops: CropConfig, *reasons: str) -> Advice:
        """The recipe of a method, with its own reasons before those of all."""
        recipe = Recipe(
            backbone=self.backbone,
            method=method,
            crops=crops,
            optimizer=self.optimizer,
            epochs=self.epochs,
            batch_size=self.batch_size,
        )
        return Advice(recipe, (*reasons, *self.reasons))
