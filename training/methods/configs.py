"""Configuration of the pretraining methods, without importing torch.

The class of a method is in the module of its name, which imports torch; `MethodConfig.build` imports it when
needed. The configuration of DINO is in `training.methods.dino_config`.
"""

from abc import ABC
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dino_model.configs import BackboneConfig, HeadConfig
from dino_model.errors import SettingError
from training.schedules import Schedule, cosine
from training.settings import above, at_least, between, no_longer_than, two_views, whole_batches

if TYPE_CHECKING:
    from training.methods.method import Method


class MethodConfig(ABC):
    """Settings of a method, a frozen dataclass that holds its head and validates itself."""

    name: ClassVar[str]
    """As in --method and in config.json."""
    implementation: ClassVar[str]
    """Module and class of the method, "module:Class"."""

    @classmethod
    def method_class(cls) -> type["Method"]:
        """Import the method's class."""
        module, name = cls.implementation.split(":")
        found: type[Method] = getattr(import_module(module), name)
        return found

    def schedules(self, epochs: int, steps_per_epoch: int) -> Any:
        """Return a frozen dataclass of everything that changes over training, such as momentum.

        Its NumPy arrays are [steps] and are logged under their names; other fields are not logged.
        """
        return None

    def check(  # noqa: B027 (most methods take all)
        self, batch_size: int, *, accumulate: int, views: int, local_crops: int, classes: int
    ) -> None:
        """Raise SettingError for a batch, a split, crops or labels that the method cannot use.

        Args:
            batch_size: Images in a step, over all ranks.
            accumulate: Micro-batches in a step.
            views: Global crops of an image.
            local_crops: Local crops of an image.
            classes: Classes of the images; 0 where they have no labels.
        """

    def build(self, backbone: BackboneConfig, schedules: Any, classes: int) -> "Method":
        """Build the method with fresh weights from torch's global generator, on the CPU."""
        return self.method_class().from_config(self, backbone, schedules, classes)


BYOL_HEAD = HeadConfig(
    prototypes=256, layers=2, hidden=4096, bottleneck=None, batch_norm=True, activation="relu"
)
"""Projection head of the paper; the predictor's hidden layer has the same width."""


@dataclass(frozen=True)
class MomentumSchedule:
    """Momentum of the teacher in every step."""

    teacher_momentum: Schedule
    """[steps]."""


@dataclass(frozen=True)
class BYOLConfig(MethodConfig):
    """Settings of BYOL; the defaults are the paper's."""

    name: ClassVar[str] = "byol"
    implementation: ClassVar[str] = "training.methods.byol:BYOL"

    head: HeadConfig = BYOL_HEAD
    predictor: int = 4096
    """Width of the predictor's hidden layer; 0: no predictor, which collapses."""
    teacher_momentum: float = 0.996
    """Start of the cosine to 1 of the teacher's moving average."""

    def __post_init__(self) -> None:
        between(self, 0, 1, "teacher_momentum")
        at_least(self, predictor=0)

    def schedules(self, epochs: int, steps_per_epoch: int) -> MomentumSchedule:
        """Momentum changes every step."""
        return MomentumSchedule(cosine(self.teacher_momentum, 1.0, epochs * steps_per_epoch))

    def check(self, batch_size: int, *, accumulate: int, views: int, local_crops: int, classes: int) -> None:
        """Check that there are two views."""
        two_views(self.name, views)


MOCO_HEAD = HeadConfig(prototypes=128, layers=2, bottleneck=None, activation="relu")
"""Projection head of the paper, of queries and keys."""


@dataclass(frozen=True)
class MoCoConfig(MethodConfig):
    """Settings of MoCo-v2; the defaults are the paper's."""

    name: ClassVar[str] = "moco-v2"
    implementation: ClassVar[str] = "training.methods.moco:MoCo"

    head: HeadConfig = MOCO_HEAD
    temperature: float = 0.2
    """Temperature of the similarities."""
    teacher_momentum: float = 0.999
    """Constant momentum of the teacher's moving average."""
    queue: int = 65536
    """Keys of earlier images that are negatives; a multiple of the batch."""

    def __post_init__(self) -> None:
        above(self, 0, "temperature")
        between(self, 0, 1, "teacher_momentum")
        at_least(self, queue=1)

    def schedules(self, epochs: int, steps_per_epoch: int) -> MomentumSchedule:
        """Momentum is constant."""
        return MomentumSchedule(np.full(epochs * steps_per_epoch, self.teacher_momentum))

    def check(self, batch_size: int, *, accumulate: int, views: int, local_crops: int, classes: int) -> None:
        """Check for a view of the queries, one of the keys, and whole batches in the queue."""
        two_views(self.name, views)
        whole_batches(self.queue, batch_size)


SWAV_HEAD = HeadConfig(prototypes=3000, layers=2, bottleneck=128, batch_norm=True, activation="relu")
"""Projection head of the paper; its prototypes are compared with the bottleneck."""


@dataclass(frozen=True)
class SwAVSchedules:
    """Start and end of phases, in steps."""

    frozen_steps: int
    """Steps in which the prototypes do not train."""
    queue_step: int
    """Step at which the queue begins to fill."""


@dataclass(frozen=True)
class SwAVConfig(MethodConfig):
    """Settings of SwAV; the defaults are the paper's."""

    name: ClassVar[str] = "swav"
    implementation: ClassVar[str] = "training.methods.swav:SwAV"

    head: HeadConfig = SWAV_HEAD
    temperature: float = 0.1
    """Temperature of the predictions."""
    epsilon: float = 0.05
    """Temperature of the codes: the regularization of Sinkhorn-Knopp."""
    sinkhorn_iterations: int = 3
    """Sinkhorn-Knopp iterations that balance the codes over the batch."""
    freeze_last_layer_epochs: int = 1
    """Epochs in which the prototypes do not train."""
    queue: int = 0
    """Earlier images that are clustered together with a small batch, a multiple of it; 0 for none."""
    queue_start_epoch: int = 15
    """Epochs before the queue begins to fill."""

    def __post_init__(self) -> None:
        above(self, 0, "temperature", "epsilon")
        at_least(self, sinkhorn_iterations=1, freeze_last_layer_epochs=0, queue=0, queue_start_epoch=0)
        if self.head.bottleneck is None:
            raise SettingError(
                "swav compares prototypes with the l2-normalised bottleneck: pass --bottleneck"
            )

    @property
    def width(self) -> int:
        """Width of the features that are compared with prototypes."""
        return self.head.bottleneck or 0

    def schedules(self, epochs: int, steps_per_epoch: int) -> SwAVSchedules:
        """Phases in steps."""
        no_longer_than(epochs, self, "freeze_last_layer_epochs")
        if self.queue and self.queue_start_epoch >= epochs:
            raise SettingError(
                f"--queue-start-epoch is {self.queue_start_epoch}, but training ends after {epochs} epochs: "
                "the queue would never begin; lower it or pass --queue 0"
            )
        return SwAVSchedules(
            self.freeze_last_layer_epochs * steps_per_epoch, self.queue_start_epoch * steps_per_epoch
        )

    def check(self, batch_size: int, *, accumulate: int, views: int, local_crops: int, classes: int) -> None:
        """Check for two views, an undivided batch, and whole batches in the queue."""
        two_views(self.name, views)
        if accumulate > 1:
            raise SettingError(
                f"swav balances its codes over the whole batch at once: leave out --accumulate {accumulate}"
            )
        if self.queue:
            whole_batches(self.queue, batch_size)


@dataclass(frozen=True)
class SupervisedConfig(MethodConfig):
    """Settings of supervised training; the defaults are DeiT's."""

    name: ClassVar[str] = "supervised"
    implementation: ClassVar[str] = "training.methods.supervised:Supervised"

    label_smoothing: float = 0.1
    """Share of a label that is distributed over all classes."""
    mixup: float = 0.8
    """Both parameters of the Beta distribution of the share of Mixup; 0: no Mixup."""
    cutmix: float = 1.0
    """Both parameters of the Beta distribution of the area of CutMix; 0: no CutMix. With both, either."""

    def __post_init__(self) -> None:
        between(self, 0, 1, "label_smoothing")
        at_least(self, mixup=0, cutmix=0)

    def check(self, batch_size: int, *, accumulate: int, views: int, local_crops: int, classes: int) -> None:
        """Check for two classes or more, and pairs of images to mix."""
        if classes < 2:
            found = "they are all of one" if classes else "these have none"
            raise SettingError(f"supervised needs pictures of several classes, a folder for each: {found}")
        from dino_model.ranks import world  # imports torch

        parts = accumulate * world()
        if parts > 1 and batch_size // parts % 2 and (self.mixup or self.cutmix):
            raise SettingError(
                f"pictures are mixed in pairs, and a part of {batch_size // parts} pictures is odd: "
                "change --batch-size, or pass --mixup 0 --cutmix 0"
            )
