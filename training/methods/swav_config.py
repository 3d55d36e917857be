"""Settings of SwAV and its recipes, without importing torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from dino_model.models.configs import HeadConfig
from dino_model.runtime.errors import SettingError
from training.augmentation.crop_config import CropConfig
from training.methods.config import RESNET50, MethodConfig, MethodSchedules, RecipeChanges, SmallData, rates
from training.recipes.validation import at_least, multiple_of, no_longer_than, positive

HEAD = HeadConfig(3000, layers=2, bottleneck=128, batch_norm=True, activation="relu")

CROPS = {
    "local_crops": 6,
    "global_scale": (0.14, 1.0),
    "local_scale": (0.05, 0.14),
    "augmentation": "swav",
}
"""Settings of the paper's crops."""


@dataclass(frozen=True)
class SwAVConfig(MethodConfig):
    """Settings of SwAV; the defaults are the paper's. Its prototypes are compared with the bottleneck."""

    name: ClassVar[str] = "swav"
    implementation: ClassVar[str] = "training.methods.swav:SwAV"
    remedy: ClassVar[str] = "lower --epsilon or --lr, or use fewer --prototypes"
    local_crops: ClassVar[bool] = True
    recipes: ClassVar[Mapping[str, RecipeChanges]] = {
        "paper": RecipeChanges(
            "SwAV: 2 + 6 crops, 3000 prototypes, LARS with learning rate 4.8 to 0.0048, batch 4096, "
            "800 epochs; this project: LARS without biases and norms, a warm-up from 0 instead of "
            "0.3",
            "75.3 % linear on ImageNet with 64 GPUs, 3:40 minutes an epoch",
            {
                "epochs": 800,
                "batch_size": 4096,
                "backbone": RESNET50,
                "crops": CROPS,
                "optimizer": rates("lars", 0.3, 1e-6, min_lr=0.0048),
            },
        ),
        "small-batch": RecipeChanges(
            "SwAV: batch 256, 200 epochs, learning rate 0.6 to 0.0006, a queue of 3,840 images; the "
            "rest as paper",
            "72.7 % linear on ImageNet with 4 GPUs",
            {
                "epochs": 200,
                "batch_size": 256,
                "backbone": RESNET50,
                "method": {"queue": 3840},
                "crops": CROPS,
                "optimizer": rates("lars", 0.6, 1e-6, min_lr=0.0006, warmup_epochs=0),
            },
        ),
        "comparison": RecipeChanges(
            "DINO paper: ViT-S/16, 2 + 6 crops, optimizer and rates of DINO; SwAV: head, prototypes, "
            "temperatures",
            "64.7 % k-NN, 71.8 % linear on ImageNet; without local crops: 60.5 % and 68.5 %",
            {
                "epochs": 300,
                "batch_size": 1024,
                "crops": {"local_crops": 6, "global_scale": [0.25, 1.0], "local_scale": [0.05, 0.25]},
            },
        ),
    }
    small_data: ClassVar[Mapping[str, Any] | None] = {
        "batch_size": 64,
        "method": {"head": {"hidden": 1024}, "epsilon": 0.03},
    }

    head: HeadConfig = HEAD
    temperature: float = 0.1
    """Temperature of the predictions."""
    epsilon: float = 0.05
    """Temperature of the codes: the regularization of Sinkhorn-Knopp."""
    sinkhorn_iterations: int = 3
    """Sinkhorn-Knopp iterations that balance the codes over the batch."""
    freeze_last_layer_epochs: int = 1
    """Epochs in which the prototypes do not train."""
    queue: int = 0
    """Earlier images that are clustered together with a small batch, a multiple of it; 0 for none."""
    queue_start_epoch: int = 15
    """Epochs before the queue begins to fill."""

    def __post_init__(self) -> None:
        positive(self, "temperature", "epsilon")
        at_least(self, sinkhorn_iterations=1, queue=0, queue_start_epoch=0)
        if self.head.bottleneck is None:
            raise SettingError("swav compares prototypes with the bottleneck: pass --bottleneck")

    @property
    def width(self) -> int:
        """Width of the features that are compared with prototypes."""
        return self.head.bottleneck or 0

    def schedules(self, epochs: int, steps_per_epoch: int) -> MethodSchedules:
        """Phases in steps."""
        no_longer_than(epochs, self, "freeze_last_layer_epochs")
        if self.queue and self.queue_start_epoch >= epochs:
            raise SettingError(
                f"--queue-start-epoch is {self.queue_start_epoch}, but training ends after {epochs} epochs: "
                "lower it or pass --queue 0"
            )
        return MethodSchedules(
            frozen_steps=self.freeze_last_layer_epochs * steps_per_epoch,
            queue_step=self.queue_start_epoch * steps_per_epoch,
        )

    def whole_batch(self) -> list[str]:
        """Codes are balanced over the batch."""
        return ["--method swav"]

    def check(self, crops: CropConfig, batch_size: int, accumulate: int, classes: int) -> None:
        """Check also the length of the queue."""
        multiple_of("queue", self.queue, batch_size, "the batch")
        super().check(crops, batch_size, accumulate, classes)

    def fit(self, data: SmallData) -> Self:
        """Set a number of prototypes that the images can fill."""
        prototypes = max(16, min(3000, data.images // 50))
        frozen = min(1, data.epochs - 1)
        head = replace(self.head, prototypes=prototypes)
        return replace(self, head=head, freeze_last_layer_epochs=frozen)
