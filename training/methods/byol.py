"""BYOL: predict, from one view, what a slow target makes of the other (J.-B. Grill et al., arXiv:2006.07733).

No negatives, no centering: the predictor, which the target lacks, and batch normalisation keep different
pictures apart.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dino_model.backbones import BackboneConfig
from training import losses
from training.methods import diagnosis
from training.methods.base import Batch, Loss
from training.methods.configs import BYOLConfig, BYOLSchedules
from training.methods.network import Network
from training.methods.pair import StudentAndTeacher, create_pair


class BYOL(StudentAndTeacher):
    """The student (the paper's online network) predicts the projections of the teacher (its target)."""

    networks = ("student", "teacher")

    def __init__(self, student: Network, teacher: Network, schedules: BYOLSchedules) -> None:
        """`student` has a predictor, `teacher` has none."""
        super().__init__(student, teacher)
        self.schedules = schedules

    @classmethod
    def from_config(
        cls, config: BYOLConfig, backbone: BackboneConfig, schedules: BYOLSchedules, classes: int
    ) -> "BYOL":
        """Student with predictor, and teacher."""
        return cls(*create_pair(backbone, config.head, config.predictor), schedules)

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
