"""Settings of BYOL, without importing torch."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from dino_model.models.configs import HeadConfig
from training.methods.config import MethodConfig, SmallData
from training.methods.setup import MethodSchedules
from training.schedules import cosine
from training.settings import at_least, shares

HEAD = HeadConfig(256, layers=2, hidden=4096, bottleneck=None, batch_norm=True, activation="relu")


@dataclass(frozen=True)
class BYOLConfig(MethodConfig):
    """Settings of BYOL; the defaults are the paper's."""

    name: ClassVar[str] = "byol"
    implementation: ClassVar[str] = "training.methods.byol:BYOL"
    remedy: ClassVar[str] = "keep --predictor and --batch-norm, raise --teacher-momentum or lower --lr"

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
