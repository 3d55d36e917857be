"""Projection head h of g = h o f (section 3.2, appendix "Projection Head"), and the loss of its logits."""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dino_model.models.configs import HeadConfig
from training import losses

CHUNK = 2**21
"""Largest number of logits at a time on a CPU, 8 MB in fp32; 64 times as many on other devices."""


class Prototypes(nn.Module):
    """Weight-normalized linear layer without bias: row k is gain_k * v_k / |v_k|.

    The two parameters carry the names of torch's classic weight norm, as the official checkpoints do.
    """

    def __init__(self, width: int, prototypes: int, train_gain: bool) -> None:
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

    A predictor after the MLP has two more layers with `predictor` hidden units. Without a bottleneck, the
    last linear layer outputs the logits.
    """

    def __init__(self, in_width: int, config: HeadConfig | None = None, predictor: int = 0) -> None:
        super().__init__()
        config = config or HeadConfig()
        _check(config)
        width = config.bottleneck or config.prototypes
        self.mlp = _mlp(in_width, width, config)
        self.predictor = (
            _mlp(width, width, replace(config, layers=2, hidden=predictor)) if predictor else nn.Sequential()
        )
        self.last_layer = (
            None
            if config.bottleneck is None
            else Prototypes(config.bottleneck, config.prototypes, config.train_gain)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Logits of features: [..., in_width] -> fp32 [..., K]."""
        return self.logits(self.project(features))

    def project(self, features: Tensor) -> Tensor:
        """Compute the input of the layer that outputs the logits: [..., in_width] -> [..., d].

        It is the bottleneck, fp32 and of length 1, or without a bottleneck the last hidden layer.
        """
        layers, vectors = [*self.mlp, *self.predictor], features.flatten(0, -2)
        for layer in layers if self.last_layer is not None else layers[:-1]:
            vectors = layer(vectors)
        vectors = vectors.unflatten(0, features.shape[:-1])
        return vectors if self.last_layer is None else F.normalize(vectors.float(), dim=-1)

    def logits(self, projected: Tensor) -> Tensor:
        """Logits of the output of `project`: [..., d] -> fp32 [..., K]."""
        logits: Tensor = self.output_layer()(projected.flatten(0, -2))
        return logits.float().unflatten(0, projected.shape[:-1])

    def cross_entropy(
        self, projected: Tensor, targets: Tensor, temperature: float, shared: int | None = None
    ) -> Tensor:
        """Compute `losses.multi_crop_cross_entropy` of the logits; with prototypes, without keeping them.

        Args:
            projected: Output of `project` for the student [crops, batch, d], the teacher's views first.
            targets, temperature, shared: As in `losses`.
        """
        if self.last_layer is None:
            return losses.multi_crop_cross_entropy(self.logits(projected), targets, temperature, shared)
        _, shared = losses.count_pairs(projected, targets, shared)
        weights = (self.last_layer.weight_v, self.last_layer.weight_g.squeeze(1))
        with torch.autocast(projected.device.type, enabled=False):
            features = losses.full_precision(projected)
            loss: Tensor = _PrototypeLoss.apply(features, *weights, targets, temperature, shared)
        return loss

    def output_layer(self) -> nn.Module:
        """Return the layer that outputs the logits."""
        if self.last_layer is not None:
            return self.last_layer
        return [*self.mlp, *self.predictor][-1]


class _PrototypeLoss(torch.autograd.Function):
    """Cross-entropy of the logits of prototypes, without keeping the logits of all images.

    The logits s and their softmax p are computed for a few images at a time. The loss and its gradient p - t
    are linear in the targets t, whose products with prototypes and features need no array of the size of s.
    The backward pass only scales the gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, v: Tensor, gain: Tensor, targets: Tensor, temperature: float, shared: int
    ) -> Tensor:
        """Features [crops, batch, d], rows v [K, d] and gain [K], targets [views, batch, K] -> scalar."""
        crops, batch, _ = features.shape
        norm = torch.linalg.vector_norm(v, dim=1)  # [K]
        scale = gain / (norm * temperature)
        rows = v * scale[:, None]  # a logit is the product of a feature and a row
        teachers = features.new_full((crops, 1, 1), len(targets))  # teacher views of a crop: all …
        teachers[:shared] -= 1  # … but itself
        weight = 1 / (batch * (crops * len(targets) - shared))  # of one image of one pair in the mean
        students = features.sum(0).expand(len(targets), -1, -1).clone()  # crops of a teacher view, summed
        students[:shared] -= features[:shared]
        flat_targets = targets.to(features.dtype).flatten(0, 1)
        agreement = (flat_targets @ rows).view_as(students)  # [views, batch, d]
        loss, grad_features = (students * agreement).sum().neg(), agreement.sum(0).neg().repeat(crops, 1, 1)
        grad_features[:shared] += agreement[:shared]
        grad_rows = flat_targets.T @ students.flatten(0, 1).neg_()
        images = max(1, CHUNK * (1 if features.device.type == "cpu" else 64) // (crops * len(v)))
        for part in (slice(start, start + images) for start in range(0, batch, images)):
            crop = features[:, part]
            logits = crop.flatten(0, 1) @ rows.T  # [crops * part, K]
            peak, place = logits.max(-1, keepdim=True)
            probabilities = logits.softmax(-1)
            log_partition = (peak - probabilities.gather(-1, place).log()).view(crops, -1, 1)
            loss += (teachers * log_partition).sum()
            grad_features[:, part].addcmul_(teachers, (probabilities @ rows).view_as(crop))
            grad_rows.addmm_(probabilities.T, (crop * teachers).flatten(0, 1))
        grad_features *= weight
        radial = rows.mul_(grad_rows).sum(1) * weight
        grad_gain, grad_v = radial / gain, grad_rows.mul_((scale * weight)[:, None])
        grad_v.addcmul_(v, (radial / norm.square())[:, None], value=-1)  # |v| has no effect
        ctx.save_for_backward(grad_features, grad_v, grad_gain)
        return loss * weight

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients in place: there is one backward pass."""
        pairs = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        return (*(gradient.mul_(factor) if needed else None for gradient, needed in pairs), None, None, None)


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
