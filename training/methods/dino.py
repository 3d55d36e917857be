"""DINO: self-distillation with no labels (Caron et al. 2021, section 3.1 and Algorithm 1).

An image has global crops, called views, and smaller local crops. A step on a batch of images::

    teacher_logits = teacher(views)                                        without gradient
    targets        = softmax((teacher_logits - center) / tau_t)
    loss           = mean of -(targets * log_softmax(student(crops) / tau_s)).sum() over all pairs of a
                     teacher view and another crop of the same image
    student        <- optimizer step (training/train.py)
    teacher        <- l * teacher + (1 - l) * student
    center         <- m * center + (1 - m) * mean(teacher_logits)

Algorithm 1 writes gt, gs, C, tpt and tps for teacher, student, center, tau_t and tau_s. Section 3.1 writes
lambda for l. `DINOAblations` adds the ablations of the paper.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from training import losses
from training.distributed import all_mean
from training.methods.config import MethodSchedules
from training.methods.dino_config import DINOConfig
from training.methods.method import Batch, Loss
from training.methods.network import Network, StudentTeacher


class DINO(StudentTeacher):
    """The student learns to predict, from any crop, the teacher's output for another view of the image.

    Shapes: [views or crops of an image, batch, d or K] with bottleneck width d and K prototypes, which are
    the dimensions of a network's output.
    """

    config: DINOConfig
    center: Tensor
    """Running mean of the teacher's logits, [1, K]."""

    def __init__(
        self, student: Network, teacher: Network, config: DINOConfig, schedules: MethodSchedules
    ) -> None:
        super().__init__(student, teacher, config, schedules)
        self.register_buffer("center", torch.zeros(1, config.head.prototypes))

    def forward(self, batch: Batch, step: int) -> Loss:
        """Compute the loss of a micro-batch."""
        views, locals_ = batch.crops
        with torch.no_grad():
            teacher_logits = self.teacher(views)  # [views, batch, K]
        targets = self.targets(teacher_logits, float(self.schedules.teacher_temperature[step]))
        student = self.student.project(views, locals_, randomness=batch.randomness)  # [crops, batch, d]
        loss = self.student.head.cross_entropy(student, targets, self.config.student_temperature)
        return Loss(loss, self.observe(loss, targets), {"teacher_mean": mean_output(teacher_logits)})

    def targets(self, logits: Tensor, temperature: float) -> Tensor:
        """Teacher probabilities of logits [views, batch, K]: centered and sharpened."""
        return losses.sharpen(logits - self.center, temperature)  # softmax((logits - center) / tau_t)

    def observe(self, loss: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Metrics of the teacher's output and of the center."""
        logs = losses.observe_targets(loss, targets, "teacher_entropy") | losses.observe_usage(targets)
        return logs | {"center_norm": self.center.norm()}

    def graph_numbers(self, step: int) -> tuple[float, ...] | None:
        """Return the teacher's temperature and what trains: they change at most once an epoch."""
        if type(self) is not DINO:  # its loss may have other numbers, such as masks
            return None
        frozen = (step < self.schedules.frozen_steps, step < self.head_only_steps)
        return (float(self.schedules.teacher_temperature[step]), *frozen)

    def frozen_parameters(self, step: int) -> Iterable[nn.Parameter]:
        """List what does not train at this step: the last layer, in the first epochs (official code)."""
        if step >= self.schedules.frozen_steps:
            return ()
        return self.student.head.output_layer().parameters()

    def after_step(self, step: int, carry: Sequence[Mapping[str, Tensor]]) -> None:
        """Update the center with the mean of the whole batch, and the teacher with the student."""
        means = all_mean(torch.stack([part["teacher_mean"] for part in carry]))
        update_center(self.center, means, self.config.center_momentum)
        self.update_teacher(step)

    def update_teacher(self, step: int) -> None:
        """Move the teacher towards the student."""
        self.ema_update(float(self.schedules.teacher_momentum[step]))


def mean_output(logits: Tensor) -> Tensor:
    """Mean of logits [views, batch, K] over views and images, for the center: [K]."""
    return losses.full_precision(logits).flatten(0, -2).mean(dim=0)


@torch.no_grad()
def update_center(center: Tensor, teacher_logits: Tensor, momentum: float) -> None:
    """center <- momentum * center + (1 - momentum) * mean of the teacher's logits (Eq. 4), in place.

    Args:
        center: [1, K].
        teacher_logits: Of all views and images, or their means over parts of equal size: [..., K].
        momentum: m in [0, 1].
    """
    mean = losses.full_precision(teacher_logits).flatten(0, -2).mean(dim=0, keepdim=True)
    mean = torch.where(mean.isfinite(), mean, center)  # an overflow in fp16 leaves the center unchanged
    center.lerp_(mean.to(center.dtype), 1 - momentum)
