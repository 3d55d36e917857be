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
lambda for l. `DINOVariants` adds the ablations of the paper.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from dino_model.models.head import Prototypes
from training import losses
from training.distributed import all_mean
from training.methods.dino_config import DINOConfig
from training.methods.method import Batch, Loss
from training.methods.network import Network, StudentTeacher
from training.methods.setup import MethodSchedules
from training.prototype_loss import prototype_cross_entropy

MIN_OUTPUTS_FOR_USAGE = 16
"""Smallest number of teacher outputs in a micro-batch for which the number of used prototypes is logged."""


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
        student_bottleneck = self.student.project(views, locals_, randomness=batch.randomness)
        loss, logs = self.cross_entropy(student_bottleneck, targets, len(views))
        logs["center_norm"] = self.center.norm()
        return Loss(loss, logs, {"teacher_mean": mean_output(teacher_logits)})

    def targets(self, logits: Tensor, temperature: float) -> Tensor:
        """Teacher probabilities of logits [views, batch, K]: centered and sharpened."""
        return losses.sharpen(logits - self.center, temperature)  # softmax((logits - center) / tau_t)

    def cross_entropy(
        self, student_bottleneck: Tensor, targets: Tensor, num_shared: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropy of targets [views, batch, K] and the student's softmax, averaged over pairs (Eq. 3).

        The loss is entropy(targets) + KL(targets, student); both parts are logged (section 5.3).
        """
        tau, last_layer = self.config.student_temperature, self.student.head.last_layer
        if isinstance(last_layer, Prototypes):
            # = multi_crop_cross_entropy(last_layer(student_bottleneck), targets, tau, num_shared); its own
            # gradient needs less memory than autograd's.
            loss = prototype_cross_entropy(student_bottleneck, last_layer, targets, tau, num_shared)
        else:
            # Without a bottleneck, `project` returns the logits.
            loss = losses.multi_crop_cross_entropy(student_bottleneck, targets, tau, num_shared)
        entropy = losses.entropy(targets)
        ln_k = torch.full((), math.log(targets.shape[-1]), device=loss.device)
        logs = {"teacher_entropy": entropy, "kl": loss.detach() - entropy, "ln_k": ln_k}
        outputs = targets.flatten(0, -2)  # [views * batch, K]
        if len(outputs) >= MIN_OUTPUTS_FOR_USAGE:
            logs["prototypes"] = losses.entropy(outputs.mean(dim=0)).exp()  # perplexity
        return loss, logs

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
