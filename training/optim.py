"""The optimizers, their parameter groups, per-tensor gradient clipping and the teacher's moving average."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from dino_model.device import has_bf16
from training.settings import OptimizerName

ParameterGroup = dict[str, Any]


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
    arXiv:2502.16982); embeddings, norms, biases and the head stay with AdamW. "sgd" and "lars" have momentum
    0.9 and are what the other methods' papers train a ResNet-50 with.

    Raises:
        ValueError: "muon" for a backbone without blocks.
    """
    fused = device.type != "mps"
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=0.0, fused=fused)
    if name == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=0.9)
    if name == "lars":
        return LARS(groups, momentum=0.9)
    inside, outside = split_groups(groups)
    if not inside["params"]:
        raise ValueError("--optimizer muon is for ViTs: this backbone has no blocks. Choose adamw")
    return Together(
        StackedMuon([inside], lr=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([outside, *groups[1:]], lr=0.0, fused=fused),
    )


def split_groups(groups: list[ParameterGroup]) -> tuple[ParameterGroup, ParameterGroup]:
    """The decayed group as two: matrices inside the backbone's blocks, and everything else."""
    named = list(zip(groups[0]["param_names"], groups[0]["params"], strict=True))

    def part(inside: bool) -> ParameterGroup:
        chosen = [(name, p) for name, p in named if (".blocks." in f".{name}" and p.ndim == 2) == inside]
        return groups[0] | {"param_names": [name for name, _ in chosen], "params": [p for _, p in chosen]}

    return part(True), part(False)


class StackedMuon(torch.optim.Muon):
    """torch's Muon, with matrices of one shape made orthogonal together; settings and state are its own.

    In bf16, as torch's, where the hardware has it, else in fp32: emulated, it takes 25 times as long.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step; `closure` is not used."""
        for group in self.param_groups:
            for parameters in _by_shape(group["params"]):
                moments = [self._moment(parameter) for parameter in parameters]
                gradients = [cast(Tensor, parameter.grad) for parameter in parameters]
                torch._foreach_lerp_(moments, gradients, 1 - group["momentum"])
                ahead = torch._foreach_lerp(gradients, moments, group["momentum"])  # Nesterov
                dtype = torch.bfloat16 if has_bf16(ahead[0].device) else torch.float32
                stack = torch.stack(ahead).to(dtype)
                updates = orthogonal(stack, group["ns_coefficients"], group["ns_steps"])
                rate = 0.2 * max(parameters[0].shape) ** 0.5 * group["lr"]  # as long as AdamW's steps
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(parameters, list(updates.to(parameters[0].dtype)), alpha=-rate)

    def _moment(self, parameter: Tensor) -> Tensor:
        """The running mean of a parameter's gradients."""
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        moment: Tensor = state["momentum_buffer"]
        return moment


def _by_shape(parameters: Iterable[Tensor]) -> list[list[Tensor]]:
    """Parameters that have a gradient, together with those of their shape."""
    groups: dict[torch.Size, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            groups.setdefault(parameter.shape, []).append(parameter)
    return list(groups.values())


def orthogonal(matrices: Tensor, coefficients: tuple[float, float, float], steps: int) -> Tensor:
    """Nearly the nearest orthogonal matrices, by Newton-Schulz steps: [n, rows, columns].

    Source: K. Jordan et al. (2024), "Muon"; `torch.optim.Muon` does the same one matrix at a time.
    """
    a, b, c = coefficients
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class LARS(torch.optim.Optimizer):
    """SGD with momentum whose step for every tensor goes with that tensor's own length (arXiv:1708.03888).

    As in the official code: a tensor p of any shape but one axis moves by eta * |p| / |d| * d, where d is its
    gradient with weight decay (by d itself where either length is 0); vectors, which are biases and gains of
    norms, are neither decayed nor scaled.
    """

    def __init__(
        self, params: Iterable[ParameterGroup], lr: float = 0.0, momentum: float = 0.9, eta: float = 0.001
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0, "momentum": momentum, "eta": eta})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)

    def _move(self, parameter: Tensor, gradient: Tensor, group: ParameterGroup) -> None:
        if parameter.ndim != 1:
            gradient = gradient.add(parameter, alpha=group["weight_decay"])
            lengths = parameter.norm(), gradient.norm()
            scale = group["eta"] * lengths[0] / lengths[1]
            gradient = gradient * torch.where((lengths[0] > 0) & (lengths[1] > 0), scale, 1.0)
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].mul_(group["momentum"]).add_(gradient)
        parameter.add_(state["momentum"], alpha=-group["lr"])


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
def clip_grad_per_tensor(parameters: Iterable[nn.Parameter], max_norm: float) -> None:
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
def gradient_norms(groups: Iterable[dict[str, Any]]) -> dict[str, Tensor]:
    """L2 norm of the gradient of everything in the backbone, and of everything after it: scalars."""
    parts: dict[str, list[Tensor]] = {"backbone": [], "head": []}
    for group in groups:
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            if parameter.grad is not None:
                parts["backbone" if "backbone." in name else "head"].append(parameter.grad)
    return {
        f"gradient_norm_{part}": torch.stack(torch._foreach_norm(many)).norm()
        for part, many in parts.items()
        if many
    }


@torch.no_grad()
def move_average(teacher: Sequence[Tensor], student: Sequence[Tensor], momentum: float) -> None:
    """teacher <- momentum * teacher + (1 - momentum) * student, tensor by tensor (section 3.1)."""
    torch._foreach_lerp_(list(teacher), list(student), 1 - momentum)
