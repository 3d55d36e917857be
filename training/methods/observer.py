"""Metrics of a method's outputs, for the log; no loss depends on them."""

import math

import torch
from torch import Tensor

from training import losses

MIN_OUTPUTS_FOR_USAGE = 16
"""Smallest number of outputs in a micro-batch for which the number of used prototypes is logged."""


@torch.no_grad()
def observe_targets(loss: Tensor, targets: Tensor, entropy_name: str) -> dict[str, Tensor]:
    """Split a cross-entropy into the entropy of its targets and the divergence from them (section 5.3).

    Args:
        loss: entropy(targets) + KL(targets, student), averaged over pairs.
        targets: Probabilities, [..., K].
        entropy_name: Name of the entropy in the log.

    Returns:
        Scalars in nats: the entropy, `kl`, and `ln_k`, the largest entropy.
    """
    entropy = losses.entropy(targets)
    ln_k = torch.full((), math.log(targets.shape[-1]), device=loss.device)
    return {entropy_name: entropy, "kl": loss - entropy, "ln_k": ln_k}


@torch.no_grad()
def observe_usage(targets: Tensor) -> dict[str, Tensor]:
    """Count the `prototypes` that targets [..., K] use: exp(entropy of their mean). Empty for few targets."""
    outputs = targets.flatten(0, -2)
    if len(outputs) < MIN_OUTPUTS_FOR_USAGE:
        return {}
    return {"prototypes": losses.entropy(outputs.mean(dim=0)).exp()}
