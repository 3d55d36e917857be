"""Optimizers, parameter groups, per-tensor gradient clipping and the teacher's moving average."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from timm.optim.muon import zeropower_via_newtonschulz
from torch import Tensor, nn

from dino_model.runtime.device import has_bf16
from dino_model.runtime.errors import SettingError
from training.recipes.validation import OptimizerName

ParameterGroup = dict[str, Any]


def decay_groups(*modules: nn.Module) -> list[ParameterGroup]:
    """Split trainable parameters into the official code's two groups: with and without weight decay.

    Everything with more than one axis that is not a bias is decayed, position embeddings and [CLS] included.
    Each group holds `params`, `param_names` and `decayed`.
    """
    groups: list[ParameterGroup] = [
        {"params": [], "param_names": [], "decayed": decayed} for decayed in (True, False)
    ]
    for module in modules:
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                group = groups[parameter.ndim == 1 or name.endswith(".bias")]
                group["params"].append(parameter)
                group["param_names"].append(name)
    return groups


def create_optimizer(
    name: OptimizerName, groups: list[ParameterGroup], device: torch.device
) -> torch.optim.Optimizer:
    """Create the optimizer of `decay_groups`; `set_rates` writes its rates before every step.

    "adamw" is the paper's. "sgd" and "lars" have momentum 0.9, as in the papers of the other methods.

    Raises:
        SettingError: "muon" for a backbone without blocks.
    """
    fused = device.type != "mps"
    match name:
        case "adamw":
            return torch.optim.AdamW(groups, lr=0.0, fused=fused)
        case "sgd":
            return torch.optim.SGD(groups, lr=0.0, momentum=0.9)
        case "lars":
            return LARS(groups)
        case "muon":
            return Muon(groups, fused=fused)


class Muon(torch.optim.AdamW):
    """Muon for the matrices inside a ViT's blocks, AdamW for all other parameters.

    An update is the nearest orthogonal matrix of the momentum, scaled to the length of an update of AdamW
    (K. Jordan et al. 2024; J. Liu et al., arXiv:2502.16982). It equals `torch.optim.Muon`, except that
    matrices of one shape are orthogonalized together, in fp32 on hardware without bf16. For a ViT-S these are
    124 operations of a device instead of 1,106, counted.
    """

    def __init__(
        self, groups: Sequence[ParameterGroup], momentum: float = 0.95, fused: bool | None = None
    ) -> None:
        """Split the decayed group of `decay_groups` into matrices of blocks and the rest."""
        decayed, *others = groups
        named = list(zip(decayed["param_names"], decayed["params"], strict=True))
        inside = [(name, p) for name, p in named if ".blocks." in f".{name}" and p.ndim == 2]
        outside = [(name, p) for name, p in named if (name, p) not in inside]
        if not inside:
            raise SettingError("--optimizer muon is for ViTs: this backbone has no blocks. Choose adamw")
        split = [
            decayed | {"param_names": [n for n, _ in part], "params": [p for _, p in part]}
            for part in (inside, outside)
        ]
        super().__init__([split[0] | {"momentum": momentum}, split[1], *others], lr=0.0, fused=fused)
        self._step_supports_amp_scaling = False  # Muon's part of the step does not scale gradients

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the matrices, then all other parameters; `closure` is not used."""
        matrices = self.param_groups[0]
        moving = [parameter for parameter in matrices["params"] if parameter.grad is not None]
        for shape in dict.fromkeys(parameter.shape for parameter in moving):
            self._step_matrices([parameter for parameter in moving if parameter.shape == shape], matrices)
        for parameter in matrices["params"]:
            parameter.grad = None  # AdamW skips parameters without gradient
        super().step()

    def _step_matrices(self, parameters: list[Tensor], group: ParameterGroup) -> None:
        for parameter in parameters:
            if not self.state[parameter]:  # AdamW expects a step in every state that it loads
                buffer = torch.zeros_like(parameter)
                self.state[parameter] = {"step": torch.zeros(()), "momentum_buffer": buffer}
        moments = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        torch._foreach_lerp_(moments, gradients, 1 - group["momentum"])
        directions = torch.stack(torch._foreach_lerp(gradients, moments, group["momentum"]))  # Nesterov
        dtype = torch.bfloat16 if has_bf16(directions.device) else torch.float32
        updates = zeropower_via_newtonschulz(directions, 5, [(3.4445, -4.7750, 2.0315)], dtype=dtype)
        rate = 0.2 * max(parameters[0].shape) ** 0.5 * group["lr"]
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, list(updates.to(directions.dtype)), alpha=-rate)


class LARS(torch.optim.Optimizer):
    """SGD with momentum and a step size per tensor (arXiv:1708.03888), as in the official code.

    Let d be the gradient plus weight decay. A tensor p moves along eta * |p| / |d| * d, or along d if either
    norm is 0. Vectors (biases, gains of norms) are neither decayed nor scaled. timm's LARS computes the ratio
    without the decayed gradient and differs from the official code.
    """

    def __init__(self, params: Iterable[ParameterGroup], momentum: float = 0.9, eta: float = 0.001) -> None:
        super().__init__(params, {"lr": 0.0, "weight_decay": 0.0, "momentum": momentum, "eta": eta})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, gradient: Tensor, group: ParameterGroup) -> None:
        if parameter.ndim != 1:
            gradient = gradient.add(parameter, alpha=group["weight_decay"])
            norms = parameter.norm(), gradient.norm()
            ratio = group["eta"] * norms[0] / norms[1]
            gradient = gradient * torch.where((norms[0] > 0) & (norms[1] > 0), ratio, 1.0)
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].mul_(group["momentum"]).add_(gradient)
        parameter.add_(state["momentum"], alpha=-group["lr"])


def set_rates(optimizer: torch.optim.Optimizer, lr: float, weight_decay: float) -> None:
    """Set the learning rate of all groups and the weight decay of the decayed ones."""
    for group in optimizer.param_groups:
        group["lr"] = lr
        group["weight_decay"] = weight_decay if group["decayed"] else 0.0


@torch.no_grad()
def clip_gradients(groups: Iterable[ParameterGroup], max_norm: float) -> dict[str, Tensor]:
    """Clip the gradient of every tensor to its own L2 norm, not the global one, as the official code does.

    The factor is max_norm / (norm + 1e-6) where that is below 1; max_norm is 0 for none. The host does not
    wait for the device.

    Returns:
        Norms before clipping of the gradients of the backbone and of everything after it: scalars.
    """
    named = [pair for group in groups for pair in zip(group["param_names"], group["params"], strict=True)]
    named = [(name, parameter) for name, parameter in named if parameter.grad is not None]
    if not named:
        return {}
    named.sort(key=lambda pair: "backbone." not in pair[0])  # the backbone first
    gradients = [parameter.grad for _, parameter in named]
    norms, first = torch.stack(torch._foreach_norm(gradients)), sum("backbone." in name for name, _ in named)
    parts = {"backbone": norms[:first], "head": norms[first:]}
    found = {f"gradient_norm_{part}": of_part.norm() for part, of_part in parts.items() if len(of_part)}
    if max_norm:
        factors = norms.add_(1e-6).reciprocal_().mul_(max_norm).clamp_(max=1.0)
        torch._foreach_mul_(gradients, list(factors.unbind()))
    return found


@torch.no_grad()
def move_average(teacher: Sequence[Tensor], student: Sequence[Tensor], momentum: float) -> None:
    """teacher <- momentum * teacher + (1 - momentum) * student, tensor by tensor (section 3.1)."""
    torch._foreach_lerp_(list(teacher), list(student), 1 - momentum)
