"""Recipe of a training, and the plan of every step that follows from it and the number of images."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Any

import numpy as np
import tyro

from dino_model.data.channels import ChannelRange
from dino_model.data.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.models.configs import BackboneConfig, HeadConfig
from dino_model.runtime.errors import SettingError
from training.augmentation.crop_config import CropConfig
from training.methods.config import MethodConfig, MethodSchedules
from training.methods.dino_config import DINOConfig
from training.methods.table import METHODS
from training.recipes.schedules import Schedule, cosine, hold_and_decay
from training.recipes.validation import (
    OptimizerName,
    at_least,
    check_choices,
    no_longer_than,
    restore_settings,
    shares,
)
from training.run.folder import RunError


@dataclass(frozen=True)
class OptimizerConfig:
    """Optimizer and its schedules; the defaults are the official code's."""

    name: Annotated[OptimizerName, tyro.conf.arg(name="optimizer")] = "adamw"
    """adamw; muon for the matrices inside a ViT's blocks, with adamw for the rest; sgd; lars."""
    lr: float = 0.0005
    """Peak learning rate for a batch of 256; it is scaled linearly with the batch."""
    min_lr: float = 1e-6
    """Learning rate that the cosine approaches."""
    warmup_epochs: float = 10
    """Epochs of linear warm-up of the learning rate."""
    hold: float = 0.0
    """Share of the steps before the learning rate falls, from then on linearly; 0: along a cosine."""
    weight_decay: float = 0.04
    """Weight decay at the start of its cosine."""
    weight_decay_end: float = 0.4
    """Weight decay at the end of its cosine."""
    clip_grad: float = 3.0
    """Largest gradient norm of a tensor; 0 for no clipping."""

    def __post_init__(self) -> None:
        at_least(self, lr=0, min_lr=0, weight_decay=0, weight_decay_end=0, clip_grad=0)
        shares(self, "hold")


RESNET_MIN_SIZE = 17
"""Smallest crops of a ResNet in pixels. For crops of 16 its last stage halves a map of one pixel, whose bf16
gradient on a CPU is uninitialized memory (oneDNN, torch 2.15)."""


@dataclass(frozen=True)
class Recipe:
    """Settings that determine the result of a training on given images."""

    backbone: BackboneConfig = field(
        default_factory=lambda: BackboneConfig(drop_path=0.1, position_mode="official")
    )
    method: MethodConfig = field(default_factory=DINOConfig)
    crops: CropConfig = field(default_factory=CropConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    mean: tuple[float, ...] = IMAGENET_MEAN
    """Mean of each channel in [0, 1] for normalization; saved with the run's backbone."""
    std: tuple[float, ...] = IMAGENET_STD
    """Standard deviation of each channel for normalization."""
    low: tyro.conf.Suppress[tuple[float, ...]] = ()
    """Value of each channel that becomes 0; computed from the images with --channels."""
    high: tyro.conf.Suppress[tuple[float, ...]] = ()
    """Value of each channel that becomes 255; empty, as `low`: images are read as RGB."""
    epochs: int = 100
    """Passes over the images."""
    batch_size: int = 512
    """Images per step."""
    head_only_epochs: float = 0
    """Epochs at the start in which only the head trains, for a backbone that is trained already."""

    def __post_init__(self) -> None:
        check_choices(self)
        at_least(self, epochs=1, batch_size=1, head_only_epochs=0)
        no_longer_than(self.epochs, self.optimizer, "warmup_epochs")
        no_longer_than(self.epochs, self, "head_only_epochs")
        self.method.schedules(self.epochs, 1)  # raises SettingError for a phase that is too long
        channels = self.backbone.in_channels
        if (channels != 3 and not self.low) or len(self.low) not in (0, channels):
            raise SettingError(f"{channels} channels need a range for each, found {len(self.low)}")
        for name in ("mean", "std"):
            if (found := len(getattr(self, name))) != channels:
                raise SettingError(
                    f"--{name} has {found} values, expected one for each of {channels} channels"
                )
        if self.low and (self.crops.augment == "workers" or self.crops.randaugment):
            raise SettingError("--channels needs --augment batch or device, without RandAugment")
        if not all(0 < value < float("inf") for value in self.std):
            raise SettingError(f"--std is {self.std}, expected numbers above 0")
        if self.resnet and self.backbone.position_start != "normal":
            raise SettingError("--position-start is for ViTs: a ResNet has no position embeddings")
        if self.resnet and (options := self.method.vit_options()):
            raise SettingError(f"{options[0]} is for ViTs: a ResNet has no patch tokens")
        for _, crops in self.crops.stages(self.unit):
            crops.check_sizes(self.unit, RESNET_MIN_SIZE if self.resnet else 1)

    @property
    def channel_range(self) -> ChannelRange | None:
        """Range of images that are not read as RGB."""
        return ChannelRange(self.low, self.high) if self.low else None

    @property
    def resnet(self) -> bool:
        """Test if the backbone is a ResNet."""
        return self.backbone.architecture == "resnet50"

    @property
    def batch_norm(self) -> bool:
        """Test if a network has batch normalization."""
        heads = [value for value in vars(self.method).values() if isinstance(value, HeadConfig)]
        return self.resnet or any(head.batch_norm for head in heads)

    @property
    def unit(self) -> int:
        """Unit of the sides of crops in pixels: the patch size of a ViT, 1 for a ResNet."""
        return 1 if self.resnet else self.backbone.patch_size


def method_of(config: Mapping[str, Any]) -> str:
    """Method in a run's configuration; raises RunError for an unknown one."""
    name: Any = config.get("method")
    if name not in METHODS:
        raise RunError(f"the run was trained with {name!r}, an unknown method of another version")
    return name


def recipe_of(config: Mapping[str, Any]) -> Recipe:
    """Recipe in a run's configuration; settings that it lacks get their defaults."""
    return restore_settings(Recipe(method=METHODS[method_of(config)]()), config["recipe"])


@dataclass(frozen=True)
class Plan:
    """Values of every step; arrays are [steps]."""

    lr: Schedule
    """Learning rate."""
    weight_decay: Schedule
    clip_grad: float
    """Largest gradient norm of a tensor; 0 for no clipping."""
    method: MethodSchedules
    """Schedules of the method."""
    steps_per_epoch: int
    stages: tuple[tuple[int, CropConfig], ...] = ()
    """Stages of the resolution curriculum, in order: first step after the stage, and its crops."""

    @classmethod
    def of(cls, recipe: Recipe, num_images: int) -> "Plan":
        """Plan a recipe for a number of images; an epoch's last, incomplete batch is dropped.

        Raises:
            SettingError: Fewer images than a batch, or a stage of the curriculum without a step.
        """
        steps_per_epoch = num_images // recipe.batch_size
        if not steps_per_epoch:
            raise SettingError(
                f"--batch-size is {recipe.batch_size}, expected at most {num_images}, the number of images; "
                "--recipe small-data fits small collections"
            )
        optimizer, steps = recipe.optimizer, recipe.epochs * steps_per_epoch
        peak = optimizer.lr * recipe.batch_size / 256  # "linear scaling rule", section 3.2
        lr = (peak, optimizer.min_lr, steps, round(optimizer.warmup_epochs * steps_per_epoch))
        return cls(
            lr=hold_and_decay(*lr, optimizer.hold) if optimizer.hold else cosine(*lr),
            weight_decay=cosine(optimizer.weight_decay, optimizer.weight_decay_end, steps),
            clip_grad=optimizer.clip_grad,
            method=recipe.method.schedules(recipe.epochs, steps_per_epoch),
            steps_per_epoch=steps_per_epoch,
            stages=_stages(recipe, steps),
        )

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.lr)

    def at(self, step: int) -> dict[str, float]:
        """Every value of a step by name, for the log."""
        arrays = {"lr": self.lr, "weight_decay": self.weight_decay} | vars(self.method)
        values = {name: float(v[step]) for name, v in arrays.items() if isinstance(v, np.ndarray) and v.size}
        if len(self.stages) > 1:
            values["global_size"] = next(crops.global_size for end, crops in self.stages if step < end)
        return values


def _stages(recipe: Recipe, steps: int) -> tuple[tuple[int, CropConfig], ...]:
    """Stages of the curriculum; borders are rounded to whole steps."""
    shares, crops = zip(*recipe.crops.stages(recipe.unit), strict=True)
    ends = [round(steps * total) for total in accumulate(shares)]
    for start, end, text in zip([0, *ends], ends, recipe.crops.curriculum, strict=False):
        if start == end:
            raise SettingError(f"stage {text} of --curriculum has no step out of {steps}: raise --epochs")
    return tuple(zip(ends, crops, strict=True))
