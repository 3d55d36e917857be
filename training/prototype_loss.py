"""DINO's loss straight from the bottleneck: no more than a few pictures' logits are ever held."""

from typing import Any

import torch
from torch import Tensor

from dino_model.head import Prototypes
from training.losses import full_precision

CHUNK = 2**21
"""Logits at once on a CPU, of as many pictures as fit: 8 MB in fp32; 64 times as many on other devices."""


def prototype_cross_entropy(
    bottleneck: Tensor, prototypes: Prototypes, targets: Tensor, temperature: float, shared: int | None = None
) -> Tensor:
    """`losses.multi_crop_cross_entropy` of `prototypes(bottleneck)`, without keeping these logits.

    Of some pictures after the other the logits of all crops are computed, give the loss, become their own
    gradient, and are forgotten: three products of n x d x K as with all logits, a part of the memory.

    Args:
        bottleneck: of the student [crops, batch, d], those of the teacher's views first and in its order.
        prototypes: the student's last layer.
        targets: teacher probabilities [views, batch, K].
        temperature: tau_s.
        shared: how many of the teacher's views the student has as well; None: all.

    Returns:
        Scalar, mean over all pairs of a teacher view and another crop and over the batch (Eq. 3).

    Raises:
        ValueError: no pair of different crops, or fewer crops than shared views.
    """
    views, crops = len(targets), len(bottleneck)
    shared = views if shared is None else shared
    if crops < shared or views * crops <= shared:
        raise ValueError(
            f"{crops} student crops for {views} teacher views: no pair of different crops is left"
        )
    device = bottleneck.device.type
    with torch.autocast(device, enabled=False):
        loss: Tensor = _CrossEntropy.apply(
            full_precision(bottleneck),
            prototypes.weight_v,
            prototypes.weight_g.squeeze(1),
            targets,
            temperature,
            shared,
        )
    return loss


class _CrossEntropy(torch.autograd.Function):
    """The loss, whose gradients are computed along with it: it is a scalar, they only wait for a factor."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, v: Tensor, gain: Tensor, targets: Tensor, temperature: float, shared: int
    ) -> Tensor:
        """Features [crops, batch, d], rows v [K, d] and gain [K], targets [views, batch, K] -> scalar."""
        crops, batch, _ = features.shape
        norm = torch.linalg.vector_norm(v, dim=1)  # [K]
        scale = gain / (norm * temperature)
        teachers = features.new_full((crops, 1, 1), len(targets))  # that a crop has: all views …
        teachers[:shared] -= 1  # … but itself
        share = 1 / (batch * (crops * len(targets) - shared))  # of one picture of one pair in the mean
        loss, trained = features.new_zeros(()), any(ctx.needs_input_grad[1:3])
        of_features, of_v, of_gain = torch.empty_like(features), torch.empty_like(v), torch.zeros_like(gain)
        chunk = CHUNK * (1 if features.device.type == "cpu" else 64)
        pictures = max(1, chunk // (crops * len(v)))
        for start in range(0, batch, pictures):
            part = slice(start, start + pictures)
            rows, theirs = features[:, part], targets[:, part].to(features.dtype)
            logits = (rows.flatten(0, 1) @ v.T).mul_(scale).unflatten(0, rows.shape[:2])  # [crops, part, K]
            total = theirs.sum(0)
            own = (logits[:shared] * theirs[:shared]).sum()
            agreement = (logits.sum(0) * total).sum() - own
            peak, place = logits.max(-1, keepdim=True)
            gradient = logits.softmax(-1)  # for every teacher …
            log_partition = peak - gradient.gather(-1, place).log()
            loss += (teachers * log_partition).sum() - agreement
            gradient.mul_(teachers).sub_(total)  # … less its target
            gradient[:shared] += theirs[:shared]
            if trained:
                of_gain += logits.mul_(gradient).sum((0, 1))
            flat = gradient.mul_(scale * share).flatten(0, 1)
            of_features[:, part] = (flat @ v).unflatten(0, rows.shape[:2])
            if trained:
                of_v.addmm_(flat.T, rows.flatten(0, 1), beta=1 if start else 0)  # the first part overwrites
        if trained:
            of_gain *= share / gain
            of_v.addcmul_(v, (of_gain * gain / norm.square())[:, None], value=-1)  # |v| does not matter
        ctx.save_for_backward(of_features, of_v, of_gain)
        return loss * share

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of what asks for one; they are scaled where they are, so there is one backward pass."""
        asked = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        return (*(gradient.mul_(factor) if wanted else None for gradient, wanted in asked), None, None, None)
