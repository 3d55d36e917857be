"""Settings of supervised training, without importing torch."""

from dataclasses import dataclass
from typing import ClassVar

from dino_model.runtime.errors import SettingError
from training.crop_config import CropConfig
from training.methods.config import MethodConfig
from training.settings import at_least, shares


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
