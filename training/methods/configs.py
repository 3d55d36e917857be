"""Configuration of the pretraining methods, without importing torch.

The class of a method is in the module of its name, which imports torch; `MethodConfig.build` imports it when
needed. The rest of DINO's configuration is in `training.methods.dino_config`.
"""

from abc import ABC
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from dino_model.models.configs import BackboneConfig, HeadConfig
from dino_model.runtime.errors import SettingError
from training.crop_config import CropConfig
from training.schedules import Schedule, cosine
from training.settings import at_least, flag, multiple_of, no_longer_than, positive, shares

if TYPE_CHECKING:
    from training.methods.method import Method

BYOL_HEAD = HeadConfig(256, layers=2, hidden=4096, bottleneck=None, batch_norm=True, activation="relu")
MOCO_HEAD = HeadConfig(128, layers=2, bottleneck=None, activation="relu")
SWAV_HEAD = HeadConfig(3000, layers=2, bottleneck=128, batch_norm=True, activation="relu")


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


class MethodConfig(ABC):
    """Settings of a method, a frozen dataclass that holds its head and validates itself."""

    name: ClassVar[str]
    """Name in --method and in config.json."""
    implementation: ClassVar[str]
    """Module and class of the method, "module:Class"."""
    remedy: ClassVar[str] = "lower --lr"
    """Options that avoid a collapse, for `training.doctor`."""
    two_views: ClassVar[bool] = True
    """True if the method compares exactly two global crops."""

    def schedules(self, epochs: int, steps_per_epoch: int) -> MethodSchedules:
        """Return everything that changes over training."""
        return MethodSchedules()

    def whole_batch(self) -> list[str]:
        """Name the options whose loss needs the undivided batch."""
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

    def build(self, backbone: BackboneConfig, schedules: MethodSchedules, classes: int) -> "Method":
        """Build the method with random weights from torch's global generator, on the CPU."""
        module, name = self.implementation.split(":")
        method: Method = getattr(import_module(module), name).from_config(self, backbone, schedules, classes)
        return method


@dataclass(frozen=True, kw_only=True)
class AblationConfig(MethodConfig):
    """The head, and the options of DINO that its paper ablates or that this project adds."""

    two_views: ClassVar[bool] = False

    head: HeadConfig = field(default_factory=HeadConfig, kw_only=False)
    predictor: int = 0
    """Width of the hidden layer of a predictor in the student's head, before the bottleneck; 0: none."""
    loss: Literal["cross-entropy", "mse", "infonce"] = "cross-entropy"
    """Comparison of outputs: cross-entropy, or mse or infonce of l2-normalized outputs without sharpening."""
    teacher: Literal["momentum", "previous-epoch", "previous-iteration", "student-copy"] = "momentum"
    """Teacher weights (section 5.2): moving average of the student, or the student's weights at the end of
    the last epoch, before the last step, or now."""
    teacher_output: Literal["centering", "softmax-batch", "sinkhorn-knopp", "none"] = "centering"
    """Operation that avoids collapse: centering, softmax over the batch, Sinkhorn-Knopp, none."""
    sharpen: bool = True
    """Sharpening. --no-sharpen gives the teacher the student's temperature (section 5.3)."""
    sinkhorn_temperature: float = 0.05
    """Temperature of softmax-batch and sinkhorn-knopp, in place of tau_t."""
    sinkhorn_iterations: int = 3
    """Iterations of sinkhorn-knopp."""
    infonce_temperature: float = 0.2
    """Temperature of infonce."""
    queue: int = 0
    """Earlier outputs that are negatives of infonce; 0: the other images of the batch."""
    views: Literal[1, 2] = 2
    """Global crops per network: all, or the first for the teacher and the second for the student."""
    kept_tokens: float = 1.0
    """Share of the patches of a global crop that the student gets, drawn anew each step (ViT)."""
    masking: Literal["random", "attention"] = "random"
    """Patches hidden by --kept-tokens: random ones, or those the teacher's [CLS] token attends to most
    (AttMask)."""
    mask_hint: float = 0.1
    """Share of most attended patches that stay visible, relative to the hidden ones (--masking attention)."""
    spreading: float = 0.0
    """Weight of the coding rate of the student's bottleneck, which is subtracted from the loss; e.g. 0.3."""
    alignment: float = 0.0
    """Weight of 1 - cosine of the bottlenecks of student and teacher; e.g. 5."""

    def __post_init__(self) -> None:
        positive(self, "sinkhorn_temperature", "infonce_temperature", "kept_tokens")
        shares(self, "mask_hint", "kept_tokens")
        at_least(self, sinkhorn_iterations=1, predictor=0, queue=0, spreading=0, alignment=0)
        if self.masking == "attention" and self.kept_tokens == 1:
            raise SettingError("--masking attention hides no patch: pass --kept-tokens below 1, such as 0.5")
        for name in ("spreading", "alignment"):
            if getattr(self, name) and self.head.bottleneck is None:
                raise SettingError(f"{flag(name)} needs the head's bottleneck: pass --bottleneck 256")
        if self.loss == "mse" and self.teacher_output not in ("centering", "none"):
            raise SettingError(
                f"--loss mse compares no probabilities, which --teacher-output {self.teacher_output} gives: "
                "pass centering or none"
            )
        if self.loss == "infonce" and self.teacher_output != "none":
            raise SettingError("--loss infonce compares outputs as they are: pass --teacher-output none")
        if self.queue and self.loss != "infonce":
            raise SettingError(f"--queue is for --loss infonce: leave it out with {self.loss}")

    def whole_batch(self) -> list[str]:
        """Name the options that compare the images of a batch."""
        options = {
            "--loss infonce without --queue": self.loss == "infonce" and not self.queue,
            "--spreading": self.spreading > 0,
            f"--teacher-output {self.teacher_output}": self.teacher_output not in ("centering", "none"),
        }
        return [option for option, needed in options.items() if needed]

    def check(self, crops: CropConfig, batch_size: int, accumulate: int, classes: int) -> None:
        """Check also that a pair of different crops exists."""
        if self.views == 1 and crops.global_crops < 2:
            raise SettingError("--views 1 needs a global crop for each network: pass --global-crops 2")
        if crops.global_crops + crops.local_crops < 2:
            raise SettingError("the loss compares two crops: raise --global-crops or --local-crops")
        super().check(crops, batch_size, accumulate, classes)


@dataclass(frozen=True)
class BYOLConfig(MethodConfig):
    """Settings of BYOL; the defaults are the paper's."""

    name: ClassVar[str] = "byol"
    implementation: ClassVar[str] = "training.methods.byol:BYOL"
    remedy: ClassVar[str] = "keep --predictor and --batch-norm, raise --teacher-momentum or lower --lr"

    head: HeadConfig = BYOL_HEAD
    predictor: int = 4096
    """Width of the predictor's hidden layer; 0: no predictor, which collapses."""
    teacher_momentum: float = 0.996
    """Start of the cosine to 1 of the teacher's moving average."""

    def __post_init__(self) -> None:
        shares(self, "teacher_momentum")
        at_least(self, predictor=0)

    def schedules(self, epochs: int, steps_per_epoch: int) -> MethodSchedules:
        """Momentum changes every step."""
        return MethodSchedules(cosine(self.teacher_momentum, 1.0, epochs * steps_per_epoch))


@dataclass(frozen=True)
class MoCoConfig(MethodConfig):
    """Settings of MoCo-v2; the defaults are the paper's."""

    name: ClassVar[str] = "moco-v2"
    implementation: ClassVar[str] = "training.methods.moco:MoCo"
    remedy: ClassVar[str] = "lower --lr or raise --teacher-momentum"

    head: HeadConfig = MOCO_HEAD
    temperature: float = 0.2
    """Temperature of the similarities."""
    teacher_momentum: float = 0.999
    """Constant momentum of the teacher's moving average."""
    queue: int = 65536
    """Keys of earlier images that are negatives; a multiple of the batch."""

    def __post_init__(self) -> None:
        positive(self, "temperature")
        shares(self, "teacher_momentum")
        at_least(self, queue=1)

    def schedules(self, epochs: int, steps_per_epoch: int) -> MethodSchedules:
        """Momentum is constant."""
        return MethodSchedules(np.full(epochs * steps_per_epoch, self.teacher_momentum))


@dataclass(frozen=True)
class SwAVConfig(MethodConfig):
    """Settings of SwAV; the defaults are the paper's. Its prototypes are compared with the bottleneck."""

    name: ClassVar[str] = "swav"
    implementation: ClassVar[str] = "training.methods.swav:SwAV"
    remedy: ClassVar[str] = "lower --epsilon or --lr, or use fewer --prototypes"

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
        positive(self, "temperature", "epsilon")
        at_least(self, sinkhorn_iterations=1, queue=0, queue_start_epoch=0)
        if self.head.bottleneck is None:
            raise SettingError("swav compares prototypes with the bottleneck: pass --bottleneck")

    @property
    def width(self) -> int:
        """Width of the features that are compared with prototypes."""
        return self.head.bottleneck or 0

    def schedules(self, epochs: int, steps_per_epoch: int) -> MethodSchedules:
        """Phases in steps."""
        no_longer_than(epochs, self, "freeze_last_layer_epochs")
        if self.queue and self.queue_start_epoch >= epochs:
            raise SettingError(
                f"--queue-start-epoch is {self.queue_start_epoch}, but training ends after {epochs} epochs: "
                "lower it or pass --queue 0"
            )
        return MethodSchedules(
            frozen_steps=self.freeze_last_layer_epochs * steps_per_epoch,
            queue_step=self.queue_start_epoch * steps_per_epoch,
        )

    def whole_batch(self) -> list[str]:
        """Codes are balanced over the batch."""
        return ["--method swav"]


@dataclass(frozen=True)
class SupervisedConfig(MethodConfig):
    """Settings of supervised training; the defaults are DeiT's."""

    name: ClassVar[str] = "supervised"
    implementation: ClassVar[str] = "training.methods.supervised:Supervised"
    two_views: ClassVar[bool] = False

    label_smoothing: float = 0.1
    """Share of a label that is distributed over all classes."""
    mixup: float = 0.8
    """Both parameters of the Beta distribution of the share of Mixup; 0: no Mixup."""
    cutmix: float = 1.0
    """Both parameters of the Beta distribution of the area of CutMix; 0: no CutMix. With both, either."""

    def __post_init__(self) -> None:
        shares(self, "label_smoothing")
        at_least(self, mixup=0, cutmix=0)

    def check(self, crops: CropConfig, batch_size: int, accumulate: int, classes: int) -> None:
        """Check for two classes or more, and pairs of images to mix."""
        if classes < 2:
            found = "they are all of one" if classes else "these have none"
            raise SettingError(f"supervised needs images of several classes, a folder for each: {found}")
        from dino_model.runtime.ranks import world  # imports torch

        part = batch_size // (accumulate * world())
        if part % 2 and part < batch_size and (self.mixup or self.cutmix):
            raise SettingError(
                f"images are mixed in pairs, and a part of {part} images is odd: "
                "change --batch-size, or pass --mixup 0 --cutmix 0"
            )
