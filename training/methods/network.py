"""Networks g = h ∘ f of backbone f and projection head h, student-teacher pairs, queue, stochastic depth."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import torch
import torch.nn.functional as F
from timm.layers import DropPath
from torch import Tensor, nn

from dino_model.models.backbones import (
    BackboneConfig,
    Features,
    MaskedPatches,
    compute_features,
    create_backbone,
)
from training.augmentation.randomness import Randomness, copy_to_device
from training.methods.config import MethodConfig, MethodContext, MethodSchedules
from training.methods.head import HeadConfig, ProjectionHead
from training.methods.method import Method
from training.one_pass import OnePass, features_of_groups
from training.optim import move_average


class Network(nn.Module):
    """A backbone with a projection head; crops of one size, or all crops, share a forward pass."""

    def __init__(self, backbone: nn.Module, head: ProjectionHead) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head
        self.drop_paths = replace_drop_path(backbone)
        self.one_pass: OnePass | None = None
        """Computes crops of all sizes in one pass of a ViT; None: those of each size in turn."""

    def forward(self, *crops: Tensor, randomness: Randomness | None = None) -> Tensor:
        """Groups of crops [crops, batch, channels, height, width] -> logits [all crops, batch, K]."""
        return self.head.logits(self.project(*crops, randomness=randomness))

    def project(self, *crops: Tensor, randomness: Randomness | None = None) -> Tensor:
        """Groups of crops -> the input of the head's layer of logits, [all crops, batch, d]."""
        return self.head.project(cls_tokens(self.features(*crops, randomness=randomness, patches=False)))

    def features(
        self,
        *crops: Tensor,
        randomness: Randomness | None = None,
        visible: Tensor | None = None,
        masked: MaskedPatches | None = None,
        patches: bool = True,
    ) -> list[Features]:
        """Compute the backbone's features of every group: [CLS] [crops, batch, C], patches [..., patches, C].

        Args:
            crops: Groups [crops, batch, channels, height, width], each of one size; empty ones are left out.
            randomness: Of stochastic depth; needed while training.
            visible: Patch indices [crops, batch, tokens] that the first group is reduced to; None: all.
            masked: Patches [crops, batch, patches] of the first group that are replaced; None: none.
            patches: False if no features of patches are needed: one pass then leaves them out.
        """
        batch = crops[0].shape[1]
        groups = [group for group in crops if len(group)]
        flat = [group.flatten(0, 1) for group in groups]
        factors = self._drop_path_factors(randomness, sum(map(len, groups)), crops[0].device)
        options: dict[str, Any] = {}
        if visible is not None:
            options["visible"] = visible.flatten(0, 1)
        if masked is not None:
            options["masked"] = masked._replace(masked=masked.masked.flatten(0, 1))
        if self.one_pass is not None:
            set_factors = partial(self._set_factors, factors)
            rest = (self.one_pass, self.backbone, flat, set_factors)
            features = features_of_groups(*rest, patches=patches, **options)
        else:
            features, first = [], 0
            for group in flat:
                self._set_factors(factors, slice(first, first + len(group)))
                features.append(compute_features(self.backbone, group, **({} if first else options)))
                first += len(group)
        return [Features(*(tensor.unflatten(0, (-1, batch)) for tensor in of_group)) for of_group in features]

    def _drop_path_factors(
        self, randomness: Randomness | None, crops: int, device: torch.device
    ) -> Tensor | None:
        """Factors of every layer for all crops, [layers, crops * batch] on the device; None: not drawn."""
        if not self.drop_paths or not self.training or randomness is None:
            return None
        numbers = randomness.uniform("depth", len(self.drop_paths), crops).flatten(1)
        scaled = [layer.scale(of_layer) for layer, of_layer in zip(self.drop_paths, numbers, strict=True)]
        factors = torch.stack(scaled)
        if torch.is_autocast_enabled(device.type):
            dtype = torch.get_autocast_dtype(device.type)
            factors = factors.to(dtype)
        return copy_to_device(factors, device)

    def _set_factors(self, factors: Tensor | None, chosen: slice | Tensor) -> None:
        """Give every layer of stochastic depth its factors of the chosen images."""
        if factors is not None:
            factors = factors[:, chosen] if isinstance(chosen, slice) else factors.index_select(1, chosen)
        for number, drop_path in enumerate(self.drop_paths):
            drop_path.factors = None if factors is None else factors[number]


def cls_tokens(features: Sequence[Features]) -> Tensor:
    """Join the [CLS] features of groups of crops: [all crops, batch, C]."""
    return torch.cat([group.cls for group in features])


class StudentTeacher(Method):
    """A student, which the optimizer trains, and a teacher, its moving average without gradients.

    The teacher starts as a copy of the student.
    """

    networks = ("teacher", "student")

    def __init__(
        self, student: Network, teacher: Network, config: MethodConfig, schedules: MethodSchedules
    ) -> None:
        """`teacher` may lack modules that only the student has: stochastic depth, a predictor."""
        super().__init__()
        self.student, self.teacher, self.config, self.schedules = student, teacher, config, schedules
        weights = student.state_dict()
        teacher.load_state_dict({name: weights[name] for name in teacher.state_dict()})
        teacher.requires_grad_(False)

    @classmethod
    def from_config(cls, config: Any, context: MethodContext) -> Self:
        """Build student and teacher; the teacher has neither stochastic depth nor a predictor."""
        student = create_network(context.backbone, config.head, getattr(config, "predictor", 0))
        teacher = create_network(replace(context.backbone, drop_path=0.0), config.head)
        return cls(student, teacher, config, context.schedules)

    def ema_update(self, momentum: float) -> None:
        """teacher <- momentum * teacher + (1 - momentum) * student, for all parameters of the teacher.

        Buffers, which are statistics of batch normalization, are not averaged.
        """
        teacher, student = dict(self.teacher.named_parameters()), dict(self.student.named_parameters())
        move_average(list(teacher.values()), [student[name] for name in teacher], momentum)


class Queue(nn.Module):
    """Ring buffer of the newest keys; they overwrite the oldest (Algorithm 1 of arXiv:1911.05722)."""

    vectors: Tensor
    """[length, width]; random directions until overwritten."""
    total: Tensor
    """Number of vectors put in so far; the next one goes to row `total` modulo `length`."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.register_buffer("vectors", F.normalize(torch.randn(length, width), dim=-1))
        self.register_buffer("total", torch.zeros((), dtype=torch.int64))
        self.count = 0  # `total` on the host, which must not wait for the device

    @torch.no_grad()
    def put(self, vectors: Tensor) -> None:
        """Overwrite the oldest rows with `vectors` [n, width], n at most the length."""
        places = (self.total + torch.arange(len(vectors), device=vectors.device)) % len(self.vectors)
        self.vectors[places] = vectors.to(self.vectors.dtype)
        self.total += len(vectors)
        self.count += len(vectors)

    def full(self) -> bool:
        """Test if all random rows were overwritten."""
        return self.count >= len(self.vectors)

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self.count = int(self.total)


class StochasticDepth(nn.Module):
    """Drop the branch of a residual block for some images, by factors set beforehand.

    A branch is kept if the image's uniform number is at least `drop_prob`, and is then scaled to keep its
    mean (Huang et al. 2016). timm's layer draws from the global generator: a resumed training would differ.
    """

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob
        self.factors: Tensor | None = None
        """Of the images of the next pass, from `scale`: [images], 0 or 1 / (1 - drop_prob)."""

    def scale(self, numbers: Tensor) -> Tensor:
        """Factors of the images by uniform numbers [images] in [0, 1)."""
        return (numbers >= self.drop_prob).float() / (1 - self.drop_prob)

    def forward(self, branch: Tensor) -> Tensor:
        """[images, ...] -> the same shape."""
        if not self.training:
            return branch
        if self.factors is None or len(self.factors) != len(branch):
            raise RuntimeError(
                f"stochastic depth has no random numbers for {len(branch)} crops: pass randomness"
            )
        return branch * self.factors.to(branch.dtype).view(-1, *[1] * (branch.ndim - 1))


def replace_drop_path(backbone: nn.Module) -> list[StochasticDepth]:
    """Replace timm's stochastic depth by `StochasticDepth`; returns the new layers in network order."""
    for module in list(backbone.modules()):
        for name, child in module.named_children():
            if isinstance(child, DropPath):
                setattr(module, name, StochasticDepth(child.drop_prob))
    return [module for module in backbone.modules() if isinstance(module, StochasticDepth)]


def create_network(backbone: BackboneConfig, head: HeadConfig, predictor: int = 0) -> Network:
    """Network with random weights; `predictor` is the width of its hidden layer, 0 for none."""
    body: Any = create_backbone(backbone)
    return Network(body, ProjectionHead(body.num_features, head, predictor))
