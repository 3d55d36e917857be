"""BYOL: predict, from one view, what a slow target makes of the other (J.-B. Grill et al., arXiv:2006.07733).

No negatives, no centering: the predictor, which the target lacks, and batch normalisation keep different
pictures apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from training import losses
from training.methods import diagnosis
from training.methods.base import Batch, Loss, Method, MethodConfig
from training.methods.network import Network
from training.methods.pair import StudentAndTeacher, create_pair
from training.schedules import Schedule, cosine
from training.settings import at_least, between, two_views

HEAD = HeadConfig(prototypes=256, layers=2, hidden=4096, bottleneck=None, batch_norm=True, activation="relu")
"""The paper's, of projections; the predictor's hidden layer is of the same width."""


@dataclass(frozen=True)
class BYOLSchedules:
    """Per-step values."""

    teacher_momentum: Schedule


class BYOL(StudentAndTeacher):
    """The student (the paper's online network) predicts the projections of the teacher (its target)."""

    networks = ("student", "teacher")

    def __init__(self, student: Network, teacher: Network, schedules: BYOLSchedules) -> None:
        """`student` has a predictor, `teacher` has none."""
        super().__init__(student, teacher)
        self.schedules = schedules

    def training_loss(self, batch: Batch, step: int) -> Loss:
        """The paper's symmetric loss, a sum over both views; with more crops the mean over pairs, times 2.

        To log: how far the projections of different pictures are spread.
        """
        with torch.no_grad():
            projections = self.teacher(batch.crops.views)  # [2, batch, width]
        predictions = self.student(*batch.crops, randomness=batch.randomness)  # [2 + locals, batch, width]
        loss = 2 * losses.multi_crop_mse(predictions, projections)
        return Loss(loss, {"spread": losses.spread(projections)}, {})

    def after_step(self, step: int, kept: Sequence[Mapping[str, Tensor]]) -> None:
        """The teacher follows the student; its statistics of batch normalisation are its own."""
        self.follow(float(self.schedules.teacher_momentum[step]))

    @staticmethod
    def diagnose(logs: Mapping[str, float]) -> str | None:
        """Name the collapse and the likely knob."""
        return diagnosis.sameness(
            logs, "keep --predictor and --batch-norm, raise --teacher-momentum or lower --lr"
        )


@dataclass(frozen=True)
class BYOLConfig(MethodConfig):
    """What is BYOL's own; the defaults are its paper's."""

    name: ClassVar[str] = "byol"
    method: ClassVar[type[Method]] = BYOL

    head: HeadConfig = HEAD
    predictor: int = 4096
    """Width of the predictor's hidden layer; 0: no predictor, which collapses."""
    teacher_momentum: float = 0.996
    """Start of the cosine to 1 of the teacher's moving average."""

    def __post_init__(self) -> None:
        between(self, 0, 1, "teacher_momentum")
        at_least(self, predictor=0)

    def schedules(self, epochs: int, steps_per_epoch: int) -> BYOLSchedules:
        """Momentum changes every step."""
        return BYOLSchedules(cosine(self.teacher_momentum, 1.0, epochs * steps_per_epoch))

    def check(self, batch_size: int, *, accumulate: int, views: int, local_crops: int, classes: int) -> None:
        """Two views."""
        two_views(self.name, views)

    def build(self, backbone: BackboneConfig, schedules: BYOLSchedules, classes: int) -> BYOL:
        """Student with predictor, and teacher."""
        return BYOL(*create_pair(backbone, self.head, self.predictor), schedules)
