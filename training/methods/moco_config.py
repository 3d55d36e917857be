"""Settings of MoCo-v2 and its recipes, without importing torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from dino_model.models.configs import HeadConfig
from training.augmentation.crop_config import CropConfig
from training.methods.config import RESNET50, MethodConfig, MethodSchedules, RecipeChanges, SmallData, rates
from training.recipes.validation import at_least, multiple_of, positive, shares

HEAD = HeadConfig(128, layers=2, bottleneck=None, activation="relu")


@dataclass(frozen=True)
class MoCoConfig(MethodConfig):
    """Settings of MoCo-v2; the defaults are the paper's."""

    name: ClassVar[str] = "moco-v2"
    implementation: ClassVar[str] = "training.methods.moco:MoCo"
    remedy: ClassVar[str] = "lower --lr or raise --teacher-momentum"
    local_crops: ClassVar[bool] = True
    recipes: ClassVar[Mapping[str, RecipeChanges]] = {
        "paper": RecipeChanges(
            "MoCo-v2: SGD with learning rate 0.03 on a cosine, keys of 128, queue of 65,536; this "
            "project: batch normalization over the whole batch, no decay of biases and norms",
            "67.5 % linear on ImageNet with 8 V100 in 53 hours; 71.1 % after 800 epochs",
            {
                "epochs": 200,
                "batch_size": 256,
                "backbone": RESNET50,
                "crops": {"local_crops": 0, "global_scale": [0.2, 1.0], "augmentation": "moco-v2"},
                "optimizer": rates("sgd", 0.03, 1e-4, min_lr=0.0, warmup_epochs=0),
            },
        ),
        "comparison": RecipeChanges(
            "DINO paper: ViT-S/16, 2 crops, a head of 3 layers with batch normalization, keys of "
            "256, rates of DINO",
            "62.0 % k-NN, 71.6 % linear on ImageNet; with --local-crops 6: 65.4 % and 73.4 %",
            {
                "epochs": 300,
                "batch_size": 1024,
                "method": {"head": {"prototypes": 256, "layers": 3, "batch_norm": True}},
                "crops": {"local_crops": 0, "global_scale": [0.14, 1.0]},
            },
        ),
    }
    small_data: ClassVar[Mapping[str, Any] | None] = {
        "batch_size": 32,
        "crops": {"local_crops": 0},
        "method": {"head": {"hidden": 1024}},
    }

    head: HeadConfig = HEAD
    temperature: float = 0.2
    """Temperature of the similarities."""
    teacher_momentum: float = 0.999
    """Constant momentum of the teacher's moving average."""
    queue: int = 65536
    """Keys of earlier images that are negatives; a multiple of the batch."""

    def __post_init__(self) -> None:
        positive(self, "temperature")
        shares(self, "teacher_momentum")
        at_least(self, queue=1)

    def schedules(self, epochs: int, steps_per_epoch: int) -> MethodSchedules:
        """Momentum is constant."""
        return MethodSchedules(np.full(epochs * steps_per_epoch, self.teacher_momentum))

    def check(self, crops: CropConfig, batch_size: int, accumulate: int, classes: int) -> None:
        """Check also the length of the queue."""
        multiple_of("queue", self.queue, batch_size, "the batch")
        super().check(crops, batch_size, accumulate, classes)

    def fit(self, data: SmallData) -> Self:
        """Set the momentum, and a queue of an eighth of the images: an image seldom meets its own keys."""
        queue = max(1, min(65536, data.images // 8) // data.batch_size) * data.batch_size
        return replace(self, queue=queue, teacher_momentum=max(0.99, data.momentum))
