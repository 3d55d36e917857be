"""Interface of a method's config, without importing torch.

The config of a method and its recipes are in `NAME_config.py`, its class in `NAME.py`. The class imports
torch, and `MethodConfig.build` imports it when needed. `training.methods.table` lists all configs.
"""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from dino_model.data.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.models.configs import BackboneConfig
from dino_model.runtime.errors import SettingError
from dino_model.runtime.precision import ComputePrecision
from training.augmentation.crop_config import CropConfig
from training.recipes.schedules import Schedule
from training.recipes.validation import OptimizerName

if TYPE_CHECKING:
    from dino_model.data.collection import Images


RESNET50 = {"architecture": "resnet50", "drop_path": 0.0, "position_mode": "size"}
"""Settings of the backbone in the recipes of ResNet-50."""


def rates(
    name: OptimizerName, lr: float, weight_decay: float, *, clip_grad: float = 0.0, **others: float
) -> dict[str, Any]:
    """Settings of an optimizer with constant weight decay and, by default, without clipping, for recipes."""
    decay = {"weight_decay": weight_decay, "weight_decay_end": weight_decay}
    return {"name": name, "lr": lr, "clip_grad": clip_grad} | decay | others


class RecipeChanges(NamedTuple):
    """A recipe of a method: where its settings come from, and how they differ from the defaults."""

    source: str
    """Origin of the settings."""
    expected: str = ""
    """Published scores, hardware and time; none of them was repeated by this project."""
    settings: Mapping[str, Any] = {}
    """Settings of `training.recipes.recipe.Recipe` by name, those of its parts in a mapping of their own."""


class SmallData(NamedTuple):
    """Images and length of a training that the recipe `small-data` is fitted to."""

    images: int
    """Number of training images."""
    batch_size: int
    """Images per step."""
    epochs: int

    @property
    def momentum(self) -> float:
        """Momentum of a teacher that averages over a twentieth of the steps or less."""
        steps = max(1, self.epochs * (self.images // self.batch_size))
        return round(max(0.9, min(0.996 ** (self.batch_size / 1024), 1 - 20 / steps)), 5)


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


class MethodConfig(ABC):
    """Config of a method, a frozen dataclass that validates itself: its options of the command."""

    name: ClassVar[str]
    """Name in --method and in config.json."""
    implementation: ClassVar[str]
    """Module and class of the method, "module:Class"."""
    recipes: ClassVar[Mapping[str, RecipeChanges]] = {}
    """Recipes by name; the first is the default."""
    small_data: ClassVar[Mapping[str, Any] | None] = None
    """Settings of the recipe `small-data`: `batch_size`, and those of `crops` and `method` that differ from
    `named_recipes.small_data` and the defaults; `fit` adapts them to the images. None: no such recipe."""
    remedy: ClassVar[str] = "lower --lr"
    """Options that avoid a collapse, for `training.run.doctor`."""
    rank_remedy: ClassVar[str] = "lower --lr or --weight-decay-end"
    """Options that avoid features of few dimensions, for `training.run.doctor`."""
    uses_labels: ClassVar[bool] = False
    """Whether the method trains on labels: images without a class are left out."""
    global_crops: ClassVar[int | None] = 2
    """Number of global crops that the method reads; None: any number."""
    local_crops: ClassVar[bool] = False
    """True if the method reads local crops."""

    def title(self) -> str:
        """Return the name, with the options that change the algorithm."""
        return self.name

    def schedules(self, epochs: int, steps_per_epoch: int) -> MethodSchedules:
        """Return everything that changes over training."""
        return MethodSchedules()

    def whole_batch(self) -> list[str]:
        """Name the options whose loss needs the undivided batch."""
        return []

    def vit_options(self) -> list[str]:
        """Name the options that need a ViT."""
        return []

    def check(self, crops: CropConfig, batch_size: int, accumulate: int, classes: int) -> None:
        """Raise SettingError for crops, a batch over all ranks, micro-batches or labels it cannot use."""
        if self.global_crops not in (None, crops.global_crops):
            raise SettingError(
                f"--global-crops is {crops.global_crops}, but {self.name} reads {self.global_crops} of an "
                f"image: pass --global-crops {self.global_crops}"
            )
        if crops.local_crops and not self.local_crops:
            raise SettingError(
                f"--local-crops is {crops.local_crops}, but {self.name} reads none: pass --local-crops 0"
            )
        if accumulate > 1 and (options := self.whole_batch()):
            raise SettingError(
                f"{options[0]} needs the whole batch at once: leave out --accumulate {accumulate}"
            )

    def resolve(self) -> "MethodConfig":
        """Return the settings to train with; raise an error for a file or model that does not exist."""
        return self

    def fit(self, data: SmallData) -> Self:
        """Adapt the settings of the recipe `small-data` to the images."""
        return self

    def build(self, context: MethodContext) -> Any:
        """Build the `Method` with random weights from torch's global generator, on the CPU."""
        module, name = self.implementation.split(":")
        try:
            kind = getattr(import_module(module), name, None)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise SettingError(f"no module {module}, the implementation of {self.name}") from None
        if kind is None:
            raise SettingError(f"the implementation of {self.name}, {module}, has no class {name}")
        method = kind.from_config(self, context)
        for network in method.networks:
            if not hasattr(getattr(method, network, None), "backbone"):
                raise SettingError(
                    f"{name} has no network {network!r} with a backbone: set it, or list others in `networks`"
                )
        return method
