"""Projection head h of g = h o f (section 3.2 and the appendix "Projection Head" of the paper)."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dino_model.models.configs import HeadConfig


class Prototypes(nn.Module):
    """Weight-normalized linear layer without bias: row k is gain_k * v_k / |v_k|.

    The two parameters carry the names of torch's classic weight norm, as the official checkpoints do.
    """

    def __init__(self, width: int, prototypes: int, train_gain: bool = False) -> None:
        super().__init__()
        self.weight_g = nn.Parameter(torch.ones(prototypes, 1), requires_grad=train_gain)
        # torch's default for a linear layer; only the direction matters.
        self.weight_v = nn.Parameter(torch.empty(prototypes, width).uniform_(-(width**-0.5), width**-0.5))

    def weight(self) -> Tensor:
        """Prototypes, one a row: [K, width]."""
        return torch._weight_norm(self.weight_v, self.weight_g, 0)

    def forward(self, features: Tensor) -> Tensor:
        """Similarity to every prototype: [..., width] -> fp32 [..., K]."""
        # Even under autocast: logits near 1 are divided by a temperature of 0.04, where bf16 loses 0.1 nat.
        # The product is scaled, not the weights, the largest tensor of a step.
        with torch.autocast(features.device.type, enabled=False):
            norm = torch.linalg.vector_norm(self.weight_v, dim=1)
            logits: Tensor = (features.float().flatten(0, -2) @ self.weight_v.T) * (
                self.weight_g[:, 0] / norm
            )
        return logits.unflatten(0, features.shape[:-1])


class ProjectionHead(nn.Module):
    """MLP, l2-normalized bottleneck, prototypes: [..., in_width] -> logits [..., K].

    A predictor after the MLP has two more layers with `predictor` hidden units.
    """

    def __init__(self, in_width: int, config: HeadConfig | None = None, predictor: int = 0) -> None:
        super().__init__()
        config = config or HeadConfig()
        _check(config)
        self.normalize = config.bottleneck is not None
        width = config.bottleneck or config.prototypes
        self.mlp = _mlp(in_width, width, config)
        self.predictor = (
            _mlp(width, width, replace(config, layers=2, hidden=predictor)) if predictor else nn.Identity()
        )
        self.last_layer = (
            nn.Identity()
            if config.bottleneck is None
            else Prototypes(config.bottleneck, config.prototypes, config.train_gain)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Logits of features: [..., in_width] -> [..., K]."""
        logits: Tensor = self.last_layer(self.project(features))
        return logits.float()

    def project(self, features: Tensor) -> Tensor:
        """The bottleneck, fp32 and of length 1, or, without one, the logits: [..., in_width] -> [..., d]."""
        projected: Tensor = self.predictor(self.mlp(features.flatten(0, -2)))
        projected = projected.unflatten(0, features.shape[:-1])
        return F.normalize(projected.float(), dim=-1) if self.normalize else projected

    def output_layer(self) -> nn.Module:
        """Return the layer that outputs the logits."""
        if self.normalize:
            return self.last_layer
        last = self.mlp if isinstance(self.predictor, nn.Identity) else self.predictor
        return last[-1]


def _mlp(in_width: int, out_width: int, config: HeadConfig) -> nn.Sequential:
    widths = [in_width, *[config.hidden] * (config.layers - 1), out_width]
    modules: list[nn.Module] = []
    for i in range(config.layers):
        linear = nn.Linear(widths[i], widths[i + 1])
        nn.init.trunc_normal_(linear.weight, std=0.02)
        nn.init.zeros_(linear.bias)
        modules.append(linear)
        if i < config.layers - 1:
            if config.batch_norm:
                modules.append(nn.BatchNorm1d(widths[i + 1]))
            modules.append(nn.GELU() if config.activation == "gelu" else nn.ReLU())
    return nn.Sequential(*modules)


def _check(config: HeadConfig) -> None:
    if config.layers > 4:
        raise ValueError(f"layers is {config.layers}, expected at most 4")
    for name, least in {"layers": 1, "prototypes": 2, "hidden": 1, "bottleneck": 1}.items():
        value = getattr(config, name)
        if value is not None and value < least:
            raise ValueError(f"{name} is {value}, expected at least {least}")
