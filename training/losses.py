"""Loss functions, pure; the one with a memory, `Center`, is a small module with an explicit `update`."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Center(nn.Module):
    """Running mean of the teacher's logits, subtracted so that no prototype wins (section 3.1, Eq. 4)."""

    value: Tensor

    def __init__(self, prototypes: int, momentum: float = 0.9) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("value", torch.zeros(1, prototypes))

    @torch.no_grad()
    def update(self, teacher_logits: Tensor) -> None:
        """Move towards the mean of the teacher's logits [..., K] over all views and images."""
        batch_mean = teacher_logits.float().flatten(0, -2).mean(dim=0, keepdim=True)
        self.value.lerp_(batch_mean, 1 - self.momentum)


@torch.no_grad()
def sharpen(teacher_logits: Tensor, center: Tensor, temperature: float) -> Tensor:
    """Centered, sharpened teacher probabilities: softmax((g_t - c) / tau_t), fp32 [..., K] (section 3.1)."""
    return F.softmax((teacher_logits.float() - center) / temperature, dim=-1)


def multi_crop_cross_entropy(student_logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Mean cross-entropy over all pairs of a teacher view and another student crop (Eq. 3).

    The double loop over pairs collapses: with s the student's logits over the temperature, every pair costs
    logsumexp(s) - p.s, so a crop needs one logsumexp and one product with the sum of its targets.

    Args:
        student_logits: [crops, batch, K], the global crops first and in the teacher's order.
        targets: teacher probabilities [views, batch, K] of the global crops.
        temperature: tau_s.

    Returns:
        Scalar: mean over the views * (crops - 1) pairs (the paper's Eq. 3 is their sum) and over the batch.

    Raises:
        ValueError: fewer than two crops, or fewer crops than views.
    """
    views, crops = len(targets), len(student_logits)
    if crops < max(2, views):
        raise ValueError(
            f"{crops} student crops for {views} teacher views: no pair of different crops is left"
        )
    teachers = torch.full((crops, 1), views, device=student_logits.device)  # that a crop has: all views …
    teachers[:views] -= 1  # … but itself
    logits = student_logits.float() / temperature
    log_partition = torch.logsumexp(logits, dim=-1)  # [crops, batch]
    agreement = (logits.sum(0) * targets.sum(0)).sum(-1) - (logits[:views] * targets).sum((0, -1))  # [batch]
    total = (teachers * log_partition).sum(0) - agreement  # [batch]
    return total.mean() / (views * (crops - 1))


def entropy(probabilities: Tensor) -> Tensor:
    """Mean entropy in nats of distributions [..., K]; ln K for uniform ones."""
    return -torch.xlogy(probabilities, probabilities).sum(-1).mean()
