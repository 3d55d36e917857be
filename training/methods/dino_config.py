"""Settings of DINO, Algorithm 1, and its recipes, without importing torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from dino_model.models.configs import HeadConfig
from dino_model.runtime.errors import SettingError
from training.augmentation.crop_config import CropConfig
from training.methods.config import RESNET50, MethodConfig, MethodSchedules, RecipeChanges, SmallData, rates
from training.recipes.schedules import cosine, linear_warmup
from training.recipes.validation import at_least, no_longer_than, positive, shares


@dataclass(frozen=True)
class DINOConfig(MethodConfig):
    """Settings of DINO and its head; the defaults are the official code's."""

    name: ClassVar[str] = "dino"
    implementation: ClassVar[str] = "training.methods.dino:DINO"
    remedy: ClassVar[str] = "keep --teacher-output centering and --teacher momentum, or lower --lr"
    rank_remedy: ClassVar[str] = "lower --lr or --weight-decay-end, or pass --spreading 0.3"
    global_crops: ClassVar[int | None] = None
    local_crops: ClassVar[bool] = True
    recipes: ClassVar[Mapping[str, RecipeChanges]] = {
        "official-default": RecipeChanges(
            "official code: ViT-S/16, 2 + 8 crops, batch 512, 100 epochs; random numbers and bf16 are this "
            "project's",
            "69.3 % k-NN, 74.0 % linear on ImageNet with 8 V100 in 1.75 days",
        ),
        "paper": RecipeChanges(
            "paper: ViT-S/16, 2 + 10 crops, batch 1024, 300 epochs; official code: drop path 0.1, clipping "
            "3.0, last learning rate 1e-6, center momentum 0.9, trainable gain of the prototypes",
            "72.8 % k-NN, 76.1 % linear on ImageNet with 16 GPUs",
            {
                "epochs": 300,
                "batch_size": 1024,
                "crops": {"local_crops": 10, "global_scale": [0.25, 1.0], "local_scale": [0.05, 0.25]},
                "method": {
                    "head": {"train_gain": True},
                    "teacher_temperature_start": 0.04,
                    "teacher_temperature": 0.07,
                    "teacher_temperature_warmup_epochs": 30,
                },
            },
        ),
        "resnet50": RecipeChanges(
            "official code: SGD with learning rate 0.03 for 256 images, weight decay 1e-4; the rest as "
            "official-default",
            "67.5 % k-NN, 75.3 % linear on ImageNet after 800 epochs",
            {
                "backbone": RESNET50,
                "crops": {"global_scale": [0.14, 1.0], "local_scale": [0.05, 0.14]},
                "optimizer": rates("sgd", 0.03, 1e-4, clip_grad=3.0),
            },
        ),
    }
    small_data: ClassVar[Mapping[str, Any] | None] = {
        "batch_size": 16,
        "method": {"head": {"hidden": 1024, "bottleneck": 128}},
    }

    head: HeadConfig = field(default_factory=HeadConfig)
    student_temperature: float = 0.1
    """Temperature tau_s of the student's softmax."""
    teacher_temperature_start: float = 0.04
    """Temperature tau_t of the teacher's softmax at the start of its warm-up."""
    teacher_temperature: float = 0.04
    """tau_t after its warm-up; 0: one-hot targets. Values above 0.06 need the warm-up."""
    teacher_temperature_warmup_epochs: int = 0
    """Epochs of linear warm-up of tau_t."""
    teacher_momentum: float = 0.996
    """Momentum l of the teacher's moving average at the start of its cosine schedule."""
    teacher_momentum_end: float = 1.0
    """Momentum l at the end of the cosine schedule."""
    center_momentum: float = 0.9
    """Momentum m of the center (Eq. 4)."""
    freeze_last_layer_epochs: int = 1
    """Epochs at the start in which the last layer, the prototypes, does not train."""

    def __post_init__(self) -> None:
        positive(self, "student_temperature")
        shares(self, "teacher_momentum", "teacher_momentum_end", "center_momentum")
        at_least(self, teacher_temperature=0, teacher_temperature_start=0)

    def check(self, crops: CropConfig, batch_size: int, accumulate: int, classes: int) -> None:
        """Check also that a pair of different crops exists."""
        if crops.global_crops + crops.local_crops < 2:
            raise SettingError("the loss compares two crops: raise --global-crops or --local-crops")
        super().check(crops, batch_size, accumulate, classes)

    def schedules(self, epochs: int, steps_per_epoch: int) -> MethodSchedules:
        """Schedule the momentum, which changes every step, and the temperature, which changes every epoch."""
        no_longer_than(epochs, self, "teacher_temperature_warmup_epochs", "freeze_last_layer_epochs")
        start, end = self.teacher_temperature_start, self.teacher_temperature
        temperatures = linear_warmup(start, end, epochs, self.teacher_temperature_warmup_epochs)
        momenta = cosine(self.teacher_momentum, self.teacher_momentum_end, epochs * steps_per_epoch)
        frozen = self.freeze_last_layer_epochs * steps_per_epoch
        return MethodSchedules(momenta, temperatures.repeat(steps_per_epoch), frozen)

    def fit(self, data: SmallData) -> Self:
        """Set a number of prototypes that the images can fill, and momenta of a small batch."""
        limits = ((20_000, 1024), (100_000, 4096), (500_000, 16384))
        prototypes = next((k for limit, k in limits if data.images < limit), 65536)
        many = data.images >= 100_000
        return replace(
            self,
            head=replace(self.head, prototypes=prototypes),
            teacher_momentum=data.momentum,
            teacher_temperature=0.07 if many else 0.04,
            teacher_temperature_warmup_epochs=min(30, data.epochs // 3) if many else 0,
            center_momentum=round(max(0.9, 0.98 ** (data.batch_size / 16)), 4),
            freeze_last_layer_epochs=min(1, data.epochs - 1),
        )
