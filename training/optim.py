"""The optimizers, their parameter groups, per-tensor gradient clipping and the teacher's moving average."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

ParameterGroup = dict[str, Any]
OptimizerName = Literal["adamw", "muon"]


class Optimizer(Protocol):
    """What the loop and the checkpoints need of an optimizer; torch's own have it."""

    param_groups: list[ParameterGroup]

    def step(self) -> Any:
        """Move the parameters along their gradients."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed training needs."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` gave."""


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


def create_optimizer(name: OptimizerName, groups: list[ParameterGroup], device: torch.device) -> Optimizer:
    """The optimizer of `decay_groups`; rates are written by `set_rates` before every step.

    "adamw" is the paper's. "muon" turns the update of every matrix inside the backbone's blocks into the
    nearest orthogonal one (K. Jordan et al., 2024), scaled so that AdamW's rates fit (J. Liu et al.,
    arXiv:2502.16982); embeddings, norms, biases and the head stay with AdamW.

    Raises:
        ValueError: "muon" for a backbone without blocks.
    """
    fused = device.type != "mps"
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=0.0, fused=fused)
    inside, outside = split_groups(groups)
    if not inside["params"]:
        raise ValueError("--optimizer muon is for ViTs: this backbone has no blocks. Choose adamw")
    return Together(
        torch.optim.Muon([inside], lr=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([outside, *groups[1:]], lr=0.0, fused=fused),
    )


def split_groups(groups: list[ParameterGroup]) -> tuple[ParameterGroup, ParameterGroup]:
    """The decayed group as two: matrices inside the backbone's blocks, and everything else."""
    named = list(zip(groups[0]["param_names"], groups[0]["params"], strict=True))

    def part(inside: bool) -> ParameterGroup:
        chosen = [(name, p) for name, p in named if (".blocks." in f".{name}" and p.ndim == 2) == inside]
        return groups[0] | {"param_names": [name for name, _ in chosen], "params": [p for _, p in chosen]}

    return part(True), part(False)


class Together:
    """Optimizers of different parameters that step as one."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]

    def step(self) -> None:
        """One step of each."""
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The state of each, in order."""
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` gave.

        Raises:
            ValueError: it is another optimizer's.
        """
        states = state_dict.get("optimizers", ())
        if len(states) != len(self.optimizers):
            raise ValueError(f"the state of {len(self.optimizers)} optimizers, found {len(states)}")
        for optimizer, state in zip(self.optimizers, states, strict=True):
            optimizer.load_state_dict(state)
        self.param_groups[:] = [group for optimizer in self.optimizers for group in optimizer.param_groups]


def set_rates(optimizer: Optimizer, lr: float, weight_decay: float) -> None:
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
