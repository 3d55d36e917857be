"""BYOL: predict the teacher's projection of the other view (J.-B. Grill et al., arXiv:2006.07733).

There are neither negatives nor centering: a predictor, which the teacher lacks, and batch normalization avoid
collapse.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from training import losses
from training.methods.method import Batch, Loss
from training.methods.network import StudentTeacher


class BYOL(StudentTeacher):
    """The student (online network) predicts the projections of the teacher (target network)."""

    networks = ("student", "teacher")

    def forward(self, batch: Batch, step: int) -> Loss:
        """Compute the symmetric loss of Eq. 2, a sum over two views; for more crops twice the mean."""
        with torch.no_grad():
            projections = self.teacher(batch.crops.views)  # [2, batch, width]
        predictions = self.student(*batch.crops, randomness=batch.randomness)  # [2 + locals, batch, width]
        loss = 2 * losses.multi_crop_mse(predictions, projections)
        return Loss(loss, {"spread": losses.spread(projections)}, {})

    def after_step(self, step: int, carry: Sequence[Mapping[str, Tensor]]) -> None:
        """Update the teacher; its statistics of batch normalization are its own."""
        self.ema_update(float(self.schedules.teacher_momentum[step]))
