"""Settings of supervised training and its recipes, without importing torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dino_model.runtime.errors import SettingError
from training.augmentation.crop_config import CropConfig
from training.methods.config import RESNET50, MethodConfig, RecipeChanges, rates
from training.recipes.validation import at_least, shares


@dataclass(frozen=True)
class SupervisedConfig(MethodConfig):
    """Settings of supervised training; the defaults are DeiT's."""

    name: ClassVar[str] = "supervised"
    implementation: ClassVar[str] = "training.methods.supervised:Supervised"
    uses_labels: ClassVar[bool] = True
    global_crops: ClassVar[int | None] = None
    local_crops: ClassVar[bool] = True
    recipes: ClassVar[Mapping[str, RecipeChanges]] = {
        "deit": RecipeChanges(
            "DeiT: ViT-S/16, batch 1024, 300 epochs, Mixup, CutMix, RandAugment; no erasing, no "
            "repeated images",
            "79.8 % top-1 on ImageNet, with stronger augmentation than here",
            {
                "epochs": 300,
                "batch_size": 1024,
                "crops": {
                    "global_crops": 1,
                    "local_crops": 0,
                    "global_scale": [0.08, 1.0],
                    "augmentation": "deit",
                },
                "optimizer": rates("adamw", 0.00025, 0.05, min_lr=1e-5, warmup_epochs=5),
            },
        ),
        "resnet50": RecipeChanges(
            "Goyal et al., not compared with code: SGD with learning rate 0.1 for 256 images, weight "
            "decay 1e-4; this project: a cosine, 100 epochs, color jitter of 0.3",
            "76.4 % top-1 on ImageNet after 90 epochs",
            {
                "epochs": 100,
                "batch_size": 256,
                "backbone": RESNET50,
                "method": {"label_smoothing": 0.0, "mixup": 0.0, "cutmix": 0.0},
                "crops": {
                    "global_crops": 1,
                    "local_crops": 0,
                    "global_scale": [0.08, 1.0],
                    "augmentation": "supervised",
                },
                "optimizer": rates("sgd", 0.1, 1e-4, min_lr=0.0, warmup_epochs=5),
            },
        ),
    }
    small_data: ClassVar[Mapping[str, Any] | None] = {
        "batch_size": 64,
        "crops": {"global_crops": 1, "local_crops": 0, "augmentation": "deit"},
    }

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
        super().check(crops, batch_size, accumulate, classes)
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
