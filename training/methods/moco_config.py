"""Settings of MoCo-v2, without importing torch."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from dino_model.models.configs import HeadConfig
from training.methods.config import MethodConfig, SmallData
from training.methods.setup import MethodSchedules
from training.settings import at_least, positive, shares

HEAD = HeadConfig(128, layers=2, bottleneck=None, activation="relu")


@dataclass(frozen=True)
class MoCoConfig(MethodConfig):
    """Settings of MoCo-v2; the defaults are the paper's."""

    name: ClassVar[str] = "moco-v2"
    implementation: ClassVar[str] = "training.methods.moco:MoCo"
    remedy: ClassVar[str] = "lower --lr or raise --teacher-momentum"

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

    def fit(self, data: SmallData) -> Self:
        """Set the momentum, and a queue of an eighth of the images: an image seldom meets its own keys."""
        queue = max(1, min(65536, data.images // 8) // data.batch_size) * data.batch_size
        return replace(self, queue=queue, teacher_momentum=max(0.99, data.momentum))
