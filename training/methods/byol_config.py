"""Settings of BYOL and its recipes, without importing torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from dino_model.models.configs import HeadConfig
from training.methods.config import RESNET50, MethodConfig, MethodSchedules, RecipeChanges, SmallData, rates
from training.recipes.schedules import cosine
from training.recipes.validation import at_least, shares

HEAD = HeadConfig(256, layers=2, hidden=4096, bottleneck=None, batch_norm=True, activation="relu")


@dataclass(frozen=True)
class BYOLConfig(MethodConfig):
    """Settings of BYOL; the defaults are the paper's."""

    name: ClassVar[str] = "byol"
    implementation: ClassVar[str] = "training.methods.byol:BYOL"
    remedy: ClassVar[str] = "keep --predictor and --batch-norm, raise --teacher-momentum or lower --lr"
    local_crops: ClassVar[bool] = True
    recipes: ClassVar[Mapping[str, RecipeChanges]] = {
        "paper": RecipeChanges(
            "BYOL: two views, LARS with learning rate 0.3 for 256 images, weight decay 1e-6, batch "
            "4096, 300 epochs",
            "72.5 % linear on ImageNet; the DINO paper's own run: 65.4 % k-NN, 72.7 % linear",
            {
                "epochs": 300,
                "batch_size": 4096,
                "backbone": RESNET50,
                "method": {"teacher_momentum": 0.99},
                "crops": {"local_crops": 0, "global_scale": [0.08, 1.0]},
                "optimizer": rates("lars", 0.3, 1e-6, min_lr=0.0),
            },
        ),
        "comparison": RecipeChanges(
            "DINO paper: ViT-S/16, 2 crops, optimizer and rates of DINO; BYOL: heads, teacher "
            "momentum 0.996 to 1",
            "66.6 % k-NN, 71.4 % linear on ImageNet",
            {"epochs": 300, "batch_size": 1024, "crops": {"local_crops": 0, "global_scale": [0.14, 1.0]}},
        ),
    }
    small_data: ClassVar[Mapping[str, Any] | None] = {
        "batch_size": 32,
        "crops": {"local_crops": 0},
        "method": {"head": {"prototypes": 128, "hidden": 1024}, "predictor": 1024},
    }

    head: HeadConfig = HEAD
    predictor: int = 4096
    """Width of the predictor's hidden layer; 0: no predictor, which collapses."""
    teacher_momentum: float = 0.996
    """Start of the cosine to 1 of the teacher's moving average."""

    def __post_init__(self) -> None:
        shares(self, "teacher_momentum")
        at_least(self, predictor=0)

    def schedules(self, epochs: int, steps_per_epoch: int) -> MethodSchedules:
        """Momentum changes every step."""
        return MethodSchedules(cosine(self.teacher_momentum, 1.0, epochs * steps_per_epoch))

    def fit(self, data: SmallData) -> Self:
        """Set the momentum."""
        return replace(self, teacher_momentum=data.momentum)
