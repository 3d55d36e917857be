"""What a method is built from, in addition to its own config, without importing torch."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dino_model.data.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.models.configs import BackboneConfig
from dino_model.runtime.precision import ComputePrecision
from training.recipes.schedules import Schedule

if TYPE_CHECKING:
    from dino_model.data.collection import Images


@dataclass(frozen=True)
class MethodSchedules:
    """Schedules of a method. Arrays, [steps], are logged if they are not empty."""

    teacher_momentum: Schedule = field(default_factory=lambda: np.empty(0))
    """l of Algorithm 1."""
    teacher_temperature: Schedule = field(default_factory=lambda: np.empty(0))
    """tau_t."""
    frozen_steps: int = 0
    """Steps in which the prototypes do not train."""
    queue_step: int = 0
    """Step at which the queue begins to fill."""


@dataclass(frozen=True)
class MethodContext:
    """What a method is built from, in addition to its own config."""

    backbone: BackboneConfig
    """The network to train."""
    schedules: MethodSchedules = field(default_factory=MethodSchedules)
    """Schedules that the method's config gives."""
    classes: int = 0
    """Number of classes; 0: the images have no labels."""
    images: "Images | None" = None
    """The training images, in the order of `Batch.indices`; None: a method that is not trained."""
    mean: tuple[float, ...] = IMAGENET_MEAN
    """Mean of each channel, by which the crops of a batch are normalized."""
    std: tuple[float, ...] = IMAGENET_STD
    """Standard deviation of each channel."""
    size: int = 224
    """Side of the global crops in pixels."""
    device: str = "cpu"
    """Device of the training."""
    precision: ComputePrecision = "fp32"
    """Precision of the training."""
