"""Recipes: functions that return a configuration, with command, hardware, time and expected score."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro

from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from training.crops import CropConfig
from training.methods.dino import DINOConfig
from training.optim import OptimizerName


@dataclass(frozen=True)
class OptimizerConfig:
    """Optimizer and its schedules; the defaults are the official code's."""

    name: Annotated[OptimizerName, tyro.conf.arg(name="optimizer")] = "adamw"
    """adamw, or muon for the matrices inside a ViT's blocks with adamw for the rest."""
    lr: float = 0.0005
    """Peak learning rate for a batch of 256; it is scaled linearly with the batch."""
    min_lr: float = 1e-6
    """Learning rate that the cosine approaches."""
    warmup_epochs: int = 10
    """Epochs of linear warm-up of the learning rate."""
    weight_decay: float = 0.04
    """At the start of its cosine."""
    weight_decay_end: float = 0.4
    """At the end of its cosine."""
    clip_grad: float = 3.0
    """Largest gradient norm of any one tensor; 0 for no clipping."""


@dataclass(frozen=True)
class Recipe:
    """All that decides what is learned from given pictures."""

    backbone: BackboneConfig = field(default_factory=lambda: BackboneConfig(drop_path=0.1))
    head: HeadConfig = field(default_factory=HeadConfig)
    crops: CropConfig = field(default_factory=CropConfig)
    dino: DINOConfig = field(default_factory=DINOConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    epochs: int = 100
    """Passes over the pictures."""
    batch_size: int = 512
    """Pictures per step."""


@dataclass(frozen=True)
class Advice:
    """A recipe derived from the data, and the reason for each choice."""

    recipe: Recipe
    reasons: tuple[str, ...]


def official_default() -> Advice:
    """The official code's defaults ("vanilla"), on its 8 GPUs of 64 pictures each.

    Command: python -m training pretrain --recipe official-default --data imagenet/train --output RUN
    Published: ViT-S/16, 100 epochs on 8 V100 in 1.75 days, 69.3 % k-NN and 74.0 % linear on ImageNet
    (not repeated by this project).
    """
    return Advice(
        Recipe(), ("everything from the official code: ViT-S/16, 2 + 8 crops, batch 512, 100 epochs",)
    )


def paper() -> Advice:
    """The paper's ViT-S/16 (section 3.2, "Implementation details", and the appendix on multi-crop).

    Command: python -m training pretrain --recipe paper --data imagenet/train --output RUN
    Published: 300 epochs on 16 GPUs, 72.8 % k-NN, 76.1 % linear on ImageNet (not repeated by this project).
    """
    recipe = Recipe(
        head=HeadConfig(train_gain=True),
        crops=CropConfig(local_crops=10, global_scale=(0.25, 1.0), local_scale=(0.05, 0.25)),
        dino=DINOConfig(
            teacher_temperature_start=0.04, teacher_temperature=0.07, teacher_temperature_warmup_epochs=30
        ),
        epochs=300,
        batch_size=1024,
    )
    reasons = (
        "paper: ViT-S/16, 2 + 10 crops of scales (0.25, 1) and (0.05, 0.25), batch 1024, 300 epochs",
        "paper: learning rate 0.0005 for 256 pictures, 10 epochs of warm-up, weight decay 0.04 to 0.4",
        "paper: teacher momentum 0.996 to 1, teacher temperature 0.04 to 0.07 over 30 epochs",
        "official code, left open by the paper: stochastic depth 0.1, clipping of each tensor at 3.0",
        "official code, left open by the paper: last learning rate 1e-6, prototypes frozen in epoch 1",
        "official code, left open by the paper: center momentum 0.9, strengths of the colour jitter",
        "official code, left open by the paper: trainable gain of the prototypes, as in its released ViT-S",
    )
    return Advice(recipe, reasons)


PUBLISHED = {"official-default": official_default, "paper": paper}


def small_data(pictures: int, short_side: int, *, batch_size: int = 16, epochs: int = 100) -> Advice:
    """A recipe for thousands of pictures instead of a million, on one machine.

    Command: python -m training pretrain --recipe small-data --data PICTURES --output RUN
    Measured: the embedded model began as this recipe with patches of 8 pixels; its card
    (`dino_model/embedded/card.md`) has commands, hardware, hours and figures.

    Batches are small because that learned faster in the one comparison made: after 36,000 pictures the KL
    divergence, which grows as a run learns, was 0.5 nats with batches of 64 and 0.8 with batches of 16 (rates
    and momenta adapted to each).

    Args:
        pictures: number of training pictures.
        short_side: of a typical picture, in pixels.
        batch_size: pictures per step.
        epochs: passes over them.

    Raises:
        ValueError: no epochs, or batches of nothing.
    """
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name} is {value}, expected at least 1")
    steps = epochs * (pictures // batch_size)
    prototypes = next(
        (k for limit, k in ((20_000, 1024), (100_000, 4096), (500_000, 16384)) if pictures < limit), 65536
    )
    momentum = max(0.9, min(0.996 ** (batch_size / 1024), 1 - 20 / max(steps, 1)))
    warmup = max(1, min(10, epochs // 10)) if epochs > 1 else 0
    side = max(32, min(224, short_side // 16 * 16))
    patch_size = 16 if side >= 96 else 8
    local = max(16, side * 3 // 7 // patch_size * patch_size)  # 96 of 224, in whole patches
    lr = 0.0003 * math.sqrt(16 / batch_size) * 256 / 16  # for 256 pictures; 0.0003 at a batch of 16
    warm = pictures >= 100_000
    temperature = DINOConfig().teacher_temperature
    dino = DINOConfig(
        teacher_momentum=round(momentum, 5),
        teacher_temperature_start=temperature,
        teacher_temperature=0.07 if warm else temperature,
        teacher_temperature_warmup_epochs=min(30, epochs // 3) if warm else 0,
        center_momentum=round(max(0.9, 0.98 ** (batch_size / 16)), 4),
        freeze_last_layer_epochs=min(1, epochs - 1),
    )
    recipe = Recipe(
        backbone=BackboneConfig("vit_tiny", patch_size, image_size=side, depth=6, heads=6),
        head=HeadConfig(prototypes=prototypes, hidden=1024, bottleneck=128),
        crops=CropConfig(global_size=side, local_size=local, local_crops=6),
        dino=dino,
        optimizer=OptimizerConfig(lr=round(lr, 6), warmup_epochs=warmup),
        epochs=epochs,
        batch_size=batch_size,
    )
    reasons = (
        f"K = {prototypes}: {pictures:,} pictures cannot fill more prototypes",
        f"crops of {side} and {local} pixels: the pictures are {short_side} pixels high or wide",
        f"teacher momentum from {momentum:.5f}: it averages over at most a twentieth of the {steps:,} steps",
        f"teacher temperature {dino.teacher_temperature_start} to {dino.teacher_temperature}: "
        + ("enough pictures for a softer teacher later" if warm else "0.07 needs 100,000 pictures or more"),
        f"center momentum {dino.center_momentum}: it averages over some 800 pictures, whatever the batch",
        f"learning rate {lr * batch_size / 256:.3g} ({lr:.3g} for 256): it goes with the batch's root",
        f"warm-up of {warmup} epochs: a tenth of the run, at most the official 10",
    )
    return Advice(recipe, reasons)


def typical_short_side(sizes: Sequence[tuple[int, int]]) -> int:
    """Median of the shorter sides of pictures of (height, width)."""
    shorter = sorted(min(size) for size in sizes)
    return shorter[len(shorter) // 2]
