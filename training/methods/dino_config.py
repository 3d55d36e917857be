"""Settings of Algorithm 1, without importing torch."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from dino_model.models.configs import HeadConfig
from dino_model.runtime.errors import SettingError
from training.crop_config import CropConfig
from training.methods.config import SmallData
from training.methods.dino_variants_config import DINOVariantsConfig
from training.methods.setup import MethodSchedules
from training.schedules import cosine, linear_warmup
from training.settings import at_least, flag, no_longer_than, positive, shares


@dataclass(frozen=True)
class DINOConfig(DINOVariantsConfig):
    """Settings of DINO and its head; the defaults are the official code's."""

    name: ClassVar[str] = "dino"
    implementation: ClassVar[str] = "training.methods.dino:DINO"
    remedy: ClassVar[str] = "keep --teacher-output centering and --teacher momentum, or lower --lr"
    rank_remedy: ClassVar[str] = "lower --lr or --weight-decay-end, or pass --spreading 0.3"
    two_views: ClassVar[bool] = False

    head: HeadConfig = field(default_factory=HeadConfig)
    predictor: int = 0
    """Width of the hidden layer of a predictor in the student's head, before the bottleneck; 0: none."""
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
    sharpen: bool = True
    """Sharpening. --no-sharpen gives the teacher the student's temperature (section 5.3)."""
    center_momentum: float = 0.9
    """Momentum m of the center (Eq. 4)."""
    freeze_last_layer_epochs: int = 1
    """Epochs at the start in which the last layer, the prototypes, does not train."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "student_temperature")
        shares(self, "teacher_momentum", "teacher_momentum_end", "center_momentum")
        at_least(self, predictor=0, teacher_temperature=0, teacher_temperature_start=0)
        for name in ("spreading", "alignment"):
            if getattr(self, name) and self.head.bottleneck is None:
                raise SettingError(f"{flag(name)} needs the head's bottleneck: pass --bottleneck 256")

    def algorithm(self) -> str:
        """Algorithm 1, or the class of its variants if an option asks for one."""
        if self.has_variant():
            return "training.methods.dino_variants:DINOVariants"
        return self.implementation

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
        if not self.sharpen:
            temperatures = np.full(epochs, self.student_temperature)
        momenta = cosine(self.teacher_momentum, self.teacher_momentum_end, epochs * steps_per_epoch)
        if self.teacher == "previous-epoch":  # 1 keeps the teacher, 0 copies the student
            momenta = np.arange(1, len(momenta) + 1) % steps_per_epoch != 0
        elif self.teacher != "momentum":
            momenta = np.zeros_like(momenta)
        frozen = self.freeze_last_layer_epochs * steps_per_epoch
        return MethodSchedules(momenta.astype(float), temperatures.repeat(steps_per_epoch), frozen)

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
