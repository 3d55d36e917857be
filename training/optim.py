"""Optimizer groups, per-tensor gradient clipping and the teacher's moving average."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

ParameterGroup = dict[str, Any]


def decay_groups(*modules: nn.Module) -> list[ParameterGroup]:
    """The official code's two groups: matrices are weight-decayed, biases and vectors are not.

    Everything with more than one axis that is not a bias is decayed, position embeddings and [CLS] included.
    Each group holds `params`, `param_names` and `decayed`; a tensor that never trains is in neither.
    """
    groups: list[ParameterGroup] = [
        {"params": [], "param_names": [], "decayed": True},
        {"params": [], "param_names": [], "decayed": False},
    ]
    for module in modules:
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                plain = parameter.ndim == 1 or name.endswith(".bias")
                groups[plain]["params"].append(parameter)
                groups[plain]["param_names"].append(name)
    return groups


def set_rates(optimizer: torch.optim.Optimizer, lr: float, weight_decay: float) -> None:
    """Write this step's learning rate to all groups, its weight decay to the decayed ones."""
    for group in optimizer.param_groups:
        group["lr"] = lr
        group["weight_decay"] = weight_decay if group["decayed"] else 0.0


@torch.no_grad()
def clip_each(parameters: Iterable[nn.Parameter], max_norm: float) -> None:
    """Clip every tensor's gradient to its own L2 norm (not the global one), as the official code does.

    The coefficient is max_norm / (norm + 1e-6) where that is below 1. Nothing is read back to the host.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return
    scales = (
        torch.stack(torch._foreach_norm(gradients)).add_(1e-6).reciprocal_().mul_(max_norm).clamp_(max=1.0)
    )
    torch._foreach_mul_(gradients, list(scales.unbind()))


@torch.no_grad()
def move_average(teacher: Sequence[Tensor], student: Sequence[Tensor], momentum: float) -> None:
    """teacher <- momentum * teacher + (1 - momentum) * student, tensor by tensor (section 3.1)."""
    torch._foreach_lerp_(list(teacher), list(student), 1 - momentum)
