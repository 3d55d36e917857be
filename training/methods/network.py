"""g = h o f: a backbone with a head, and stochastic depth that is dealt instead of drawn."""

from collections.abc import Sequence

import torch
from timm.layers import DropPath
from torch import Tensor, nn

from dino_model.backbones import BackboneConfig, create_backbone, feature_width, features_of_patches
from dino_model.head import HeadConfig, ProjectionHead
from training.randomness import Randomness


class Network(nn.Module):
    """A backbone f with a projection head h; crops of one size share a forward pass."""

    def __init__(self, backbone: nn.Module, head: ProjectionHead) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head
        self.depths = replace_drop_path(backbone)

    def forward(self, *crops: Tensor, randomness: Randomness | None = None) -> Tensor:
        """Groups of crops [crops, batch, channels, height, width] -> logits [all crops, batch, K].

        Stochastic depth needs `randomness` while training.
        """
        return self.logits(self.project(*crops, randomness=randomness))

    def project(
        self, *crops: Tensor, randomness: Randomness | None = None, kept: Tensor | None = None
    ) -> Tensor:
        """Groups of crops -> the head's bottleneck [all crops, batch, d].

        `kept` [crops, batch, tokens] are the patches that the first group is cut down to; None: all.
        """
        batch = crops[0].shape[1]
        groups = [group for group in crops if len(group)]
        features = []
        for group, dealt in zip(groups, self._deal(randomness, groups), strict=True):
            on_device = dealt.flatten(1).to(group.device, non_blocking=True)  # all layers' at once
            for depth, numbers in zip(self.depths, on_device, strict=True):
                depth.deal(numbers)
            parts = kept.flatten(0, 1) if kept is not None and group is groups[0] else None
            features.append(features_of_patches(self.backbone, group.flatten(0, 1), parts))
        projected: Tensor = self.head.project(torch.cat(features))
        return projected.unflatten(0, (-1, batch))

    def logits(self, projected: Tensor) -> Tensor:
        """Bottleneck [..., d] -> fp32 [..., K]."""
        logits: Tensor = self.head.last_layer(projected).float()
        return logits

    def _deal(self, randomness: Randomness | None, groups: Sequence[Tensor]) -> Sequence[Tensor]:
        """Uniform numbers [layers, crops, batch] for each group of crops; none without randomness."""
        if not self.depths or not self.training or randomness is None:
            return [torch.empty(len(self.depths), 0) for _ in groups]
        crops = [len(group) for group in groups]
        return randomness.uniform("depth", len(self.depths), sum(crops)).split(crops, dim=1)


class StochasticDepth(nn.Module):
    """Leaves out the branch of a residual block for some pictures, by numbers dealt beforehand.

    A branch is kept where the picture's uniform number is not below `drop_prob`, and scaled to keep its mean
    (Huang et al. 2016). timm's layer draws from the global generator, so that a resumed training goes on
    differently.
    """

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob
        self.factors: Tensor | None = None  # [pictures], 0 or 1 / (1 - drop_prob)

    def deal(self, numbers: Tensor) -> None:
        """Uniform numbers [pictures], in [0, 1), for the next pass."""
        self.factors = (numbers >= self.drop_prob).float() / (1 - self.drop_prob)

    def forward(self, branch: Tensor) -> Tensor:
        """[pictures, ...] -> the same shape."""
        if not self.training:
            return branch
        if self.factors is None or len(self.factors) != len(branch):
            raise RuntimeError(
                f"stochastic depth was dealt no numbers for {len(branch)} crops: pass randomness"
            )
        return branch * self.factors.to(branch.dtype).view(-1, *[1] * (branch.ndim - 1))


def replace_drop_path(backbone: nn.Module) -> list[StochasticDepth]:
    """Put `StochasticDepth` in the place of timm's layers; returns them in the order of the network."""
    for module in list(backbone.modules()):
        for name, child in module.named_children():
            if isinstance(child, DropPath):
                setattr(module, name, StochasticDepth(child.drop_prob))
    return [module for module in backbone.modules() if isinstance(module, StochasticDepth)]


def create_network(backbone: BackboneConfig, head: HeadConfig, predictor: int = 0) -> Network:
    """With fresh weights; `predictor` is the width of its hidden layer, 0 for none."""
    body = create_backbone(backbone)
    return Network(body, ProjectionHead(feature_width(body), head, predictor))
