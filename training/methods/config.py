"""Interface of a method's settings, without importing torch.

The settings of a method, its recipes and its class are `NAME_config.py`, `NAME.toml` and `NAME.py`; the class
imports torch, and `MethodConfig.build` imports it when needed. `training.methods.table` lists all settings.
"""

from abc import ABC
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from dino_model.runtime.errors import SettingError
from training.crop_config import CropConfig
from training.methods.setup import MethodSchedules, Setup
from training.settings import multiple_of

if TYPE_CHECKING:
    from training.methods.method import Method


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


class MethodConfig(ABC):
    """Settings of a method, a frozen dataclass that validates itself: its options of the command."""

    name: ClassVar[str]
    """Name in --method and in config.json."""
    implementation: ClassVar[str]
    """Module and class of the method, "module:Class"; the recipes are in the TOML file beside the module."""
    remedy: ClassVar[str] = "lower --lr"
    """Options that avoid a collapse, for `training.doctor`."""
    rank_remedy: ClassVar[str] = "lower --lr or --weight-decay-end"
    """Options that avoid features of few dimensions, for `training.doctor`."""
    two_views: ClassVar[bool] = True
    """True if the method compares exactly two global crops."""

    def algorithm(self) -> str:
        """Module and class of the algorithm that these settings choose, "module:Class"."""
        return self.implementation

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
        if self.two_views and crops.global_crops != 2:
            raise SettingError(
                f"--global-crops is {crops.global_crops}: {self.name} compares two views of an image, pass 2"
            )
        rows = min(getattr(self, "views", 1), crops.global_crops) * batch_size  # for the queue, in a step
        multiple_of("queue", getattr(self, "queue", 0), rows, "the batch")
        if accumulate > 1 and (options := self.whole_batch()):
            raise SettingError(
                f"{options[0]} needs the whole batch at once: leave out --accumulate {accumulate}"
            )

    def resolve(self) -> Self:
        """Return the settings with absolute paths; raise an error for a file or model that does not exist."""
        return self

    def fit(self, data: SmallData) -> Self:
        """Adapt the settings of the recipe `small-data` to the images."""
        return self

    def build(self, setup: Setup) -> "Method":
        """Build the method with random weights from torch's global generator, on the CPU."""
        module, name = self.algorithm().split(":")
        kind: type[Method] | None = getattr(import_module(module), name, None)
        if kind is None:
            raise SettingError(f"the implementation of {self.name}, {module}, has no class {name}")
        return kind.from_config(self, setup)

    @classmethod
    def recipes_file(cls) -> Path:
        """TOML file of the method's recipes."""
        spec = find_spec(cls.implementation.split(":")[0])
        if spec is None or spec.origin is None:
            raise SettingError(f"the implementation of {cls.name} is in no module: {cls.implementation}")
        return Path(spec.origin).with_suffix(".toml")
