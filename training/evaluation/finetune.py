"""Fine-tuning a whole network on labelled pictures (section 4.2.3, Table 6): its recipe and one epoch of it.

The recipes are those that the authors named for their figures (DeiT's, with these changes); what they left
open is DeiT's: AdamW, cosine, five epochs of warm-up, mixup 0.8 and cutmix 1.0, label smoothing 0.1.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from timm.data.mixup import Mixup
from timm.loss import SoftTargetCrossEntropy
from torch import Tensor, nn

from dino_model.device import ComputePrecision, autocast


@dataclass(frozen=True)
class FinetuneRecipe:
    """What decides a fine-tuning, apart from the model and the pictures."""

    epochs: int = 300
    batch: int = 256
    rate: float = 1e-4
    """Peak of the learning rate, for this batch."""
    weight_decay: float = 0.05
    warmup: int = 5
    """Epochs in which the rate rises from 0."""
    mixup: float = 0.8
    cutmix: float = 1.0
    smoothing: float = 0.1
    least: float = 0.08
    """Share of a picture that a random crop covers at least."""

    def __str__(self) -> str:
        return (
            f"{self.epochs} epochs, batch {self.batch}, AdamW, rate {self.rate:g} (warm-up {self.warmup},"
            f" cosine), weight decay {self.weight_decay:g}, mixup {self.mixup:g}, cutmix {self.cutmix:g},"
            f" label smoothing {self.smoothing:g}"
        )


RECIPES = {
    "own": FinetuneRecipe(epochs=50, batch=64),
    "imagenet": FinetuneRecipe(batch=1024, rate=5e-4),
    "cifar10": FinetuneRecipe(epochs=1000, batch=768, rate=7.5e-6),
    "cifar100": FinetuneRecipe(epochs=1000, batch=768, rate=5e-6),
    "flowers": FinetuneRecipe(epochs=1000, batch=768, rate=7.5e-6),
    "cars": FinetuneRecipe(epochs=1000, batch=768, rate=7.5e-6),
    "inat18": FinetuneRecipe(batch=1024, rate=1e-4),
    "inat19": FinetuneRecipe(batch=1024, rate=1e-4),
}
"""By data set. Named by the authors: ImageNet, CIFAR-10 and -100, and iNat (5e-5 for a batch of 512); Flowers
and Cars follow CIFAR-10, as in DeiT. `own` is this project's, for a folder of some thousand pictures."""


class Classifier(nn.Module):
    """A backbone and a linear layer on its feature, which starts small."""

    def __init__(self, backbone: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(width, classes)
        nn.init.trunc_normal_(self.head.weight, std=2e-5)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        """[batch, 3, height, width] -> [batch, classes]."""
        scores: Tensor = self.head(self.backbone(images))
        return scores


def optimizer_of(model: nn.Module, recipe: FinetuneRecipe) -> torch.optim.AdamW:
    """AdamW without decay for biases, norms and what else has one axis."""
    many = [p for p in model.parameters() if p.ndim > 1]
    few = [p for p in model.parameters() if p.ndim <= 1]
    groups: list[dict[str, Any]] = [{"params": many}, {"params": few, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.rate, weight_decay=recipe.weight_decay)


def rate_at(recipe: FinetuneRecipe, epoch: float) -> float:
    """Learning rate after so many epochs, a fraction too: a line from 0, then a cosine to 0."""
    warmup = min(recipe.warmup, recipe.epochs // 2)
    if epoch < warmup:
        return recipe.rate * epoch / warmup
    left = (epoch - warmup) / max(recipe.epochs - warmup, 1e-9)
    return recipe.rate * (1 + math.cos(math.pi * left)) / 2


def train_epoch(
    model: Classifier,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[Tensor, Tensor]],
    recipe: FinetuneRecipe,
    classes: int,
    epoch: int,
    steps: int,
    precision: ComputePrecision = "fp32",
) -> float:
    """Train for one epoch.

    Each step has its own autocast context: autocast caches the casts of the weights until it is left, so that
    a context around several steps would train on the weights of the first step.

    Args:
        model, optimizer: changed in place.
        batches: pictures [batch, 3, height, width] and int64 labels [batch], on the model's device; an odd
            last picture is left out, since mixup pairs them.
        recipe: of all epochs.
        classes: how many there are.
        epoch: from 0.
        steps: batches in an epoch.
        precision: of forward pass and loss.

    Returns:
        Mean loss.

    Raises:
        ValueError: the loss is no longer finite.
    """
    mix = Mixup(recipe.mixup, recipe.cutmix, label_smoothing=recipe.smoothing, num_classes=classes)
    mixes = recipe.mixup > 0 or recipe.cutmix > 0
    plain, soft = nn.CrossEntropyLoss(label_smoothing=recipe.smoothing), SoftTargetCrossEntropy()
    model.train()
    losses = []
    for step, (images, labels) in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(recipe, epoch + (step + 1) / steps)
        if mixes:
            even = len(images) // 2 * 2
            if not even:
                continue
            images, targets = mix(images[:even].clone(), labels[:even])
            with autocast(precision, images.device):
                loss = soft(model(images), targets.to(images.device))
        else:
            with autocast(precision, images.device):
                loss = plain(model(images), labels)
        if not loss.isfinite():
            raise ValueError(
                f"the loss is {float(loss)} in epoch {epoch + 1}: lower --rate, or --precision fp32"
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return sum(losses) / max(1, len(losses))
