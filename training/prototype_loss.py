"""DINO's loss computed from the bottleneck, so that the logits of only a few images exist at a time."""

from typing import Any

import torch
from torch import Tensor

from dino_model.models.head import Prototypes
from training.losses import count_pairs, full_precision

CHUNK = 2**21
"""Largest number of logits at a time on a CPU, 8 MB in fp32; 64 times as many on other devices."""


def prototype_cross_entropy(
    bottleneck: Tensor, prototypes: Prototypes, targets: Tensor, temperature: float, shared: int | None = None
) -> Tensor:
    """Compute `losses.multi_crop_cross_entropy` of `prototypes(bottleneck)` without keeping these logits.

    For a few images at a time, the logits of all crops are computed, give the loss, and are overwritten by
    their gradient.

    Args:
        bottleneck: Of the student [crops, batch, d], the teacher's views first and in its order.
        prototypes: The student's last layer.
        targets, temperature, shared: As in `losses`.
    """
    _, shared = count_pairs(bottleneck, targets, shared)
    weights = (prototypes.weight_v, prototypes.weight_g.squeeze(1))
    with torch.autocast(bottleneck.device.type, enabled=False):
        loss: Tensor = _CrossEntropy.apply(full_precision(bottleneck), *weights, targets, temperature, shared)
    return loss


class _CrossEntropy(torch.autograd.Function):
    """The loss and, in the forward pass, its gradients, which the backward pass only scales."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, v: Tensor, gain: Tensor, targets: Tensor, temperature: float, shared: int
    ) -> Tensor:
        """Features [crops, batch, d], rows v [K, d] and gain [K], targets [views, batch, K] -> scalar."""
        crops, batch, _ = features.shape
        norm = torch.linalg.vector_norm(v, dim=1)  # [K]
        scale = gain / (norm * temperature)
        teachers = features.new_full((crops, 1, 1), len(targets))  # teacher views of a crop: all …
        teachers[:shared] -= 1  # … but itself
        weight = 1 / (batch * (crops * len(targets) - shared))  # of one image of one pair in the mean
        loss, grad_gain = features.new_zeros(()), torch.zeros_like(gain)
        grad_features, grad_v = torch.empty_like(features), torch.empty_like(v)
        chunk = CHUNK * (1 if features.device.type == "cpu" else 64)
        images = max(1, chunk // (crops * len(v)))
        for start in range(0, batch, images):
            part = slice(start, start + images)
            rows, target = features[:, part], targets[:, part].to(features.dtype)
            logits = (rows.flatten(0, 1) @ v.T).mul_(scale).unflatten(0, rows.shape[:2])  # [crops, part, K]
            total = target.sum(0)
            own = (logits[:shared] * target[:shared]).sum()
            agreement = (logits.sum(0) * total).sum() - own
            peak, place = logits.max(-1, keepdim=True)
            gradient = logits.softmax(-1)  # for every teacher …
            log_partition = peak - gradient.gather(-1, place).log()
            loss += (teachers * log_partition).sum() - agreement
            gradient.mul_(teachers).sub_(total)  # … minus its target
            gradient[:shared] += target[:shared]
            grad_gain += logits.mul_(gradient).sum((0, 1))
            flat = gradient.mul_(scale * weight).flatten(0, 1)
            grad_features[:, part] = (flat @ v).unflatten(0, rows.shape[:2])
            grad_v.addmm_(flat.T, rows.flatten(0, 1), beta=1 if start else 0)  # the first part overwrites
        grad_gain *= weight / gain
        grad_v.addcmul_(v, (grad_gain * gain / norm.square())[:, None], value=-1)  # |v| has no effect
        ctx.save_for_backward(grad_features, grad_v, grad_gain)
        return loss * weight

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients in place: there is one backward pass."""
        pairs = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        return (*(gradient.mul_(factor) if needed else None for gradient, needed in pairs), None, None, None)
