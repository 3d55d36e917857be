"""Presets of `pretrain --recipe`: those of `presets.toml`, and `small-data`, which fits the images."""

import math
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

from dino_model.models.configs import BackboneConfig, HeadConfig
from dino_model.runtime.errors import SettingError, counted
from training.crop_config import CropConfig
from training.methods.configs import BYOLConfig, MoCoConfig, SupervisedConfig, SwAVConfig
from training.methods.dino_config import DINOConfig
from training.recipe import METHODS, Methods, OptimizerConfig, Recipe
from training.settings import at_least, restore_settings

SMALL_DATA = "small-data"
PresetName = Literal[
    "official-default", "paper", "small-data", "embedded", "comparison", "small-batch", "resnet50", "deit"
]
NOMINAL_IMAGES = (10_000, 224)
"""Number and short side of images for `--help`, where the images are not known."""


@dataclass(frozen=True)
class Preset:
    """A recipe and the source of its settings."""

    recipe: Recipe
    source: str
    expected: str = ""
    """Published scores, hardware and time; none of them was repeated by this project."""


def read_presets() -> dict[str, dict[str, Preset]]:
    """Read the presets by method and name, the default of a method first."""
    content = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))
    return {
        method: {
            name: Preset(
                restore_settings(Recipe(method=METHODS[method]()), preset.get("recipe", {})),
                preset["source"],
                preset["expected"],
            )
            for name, preset in presets.items()
        }
        for method, presets in content.items()
    }


PRESETS = read_presets()


def find_preset(method: str, name: str | None) -> str:
    """Return the name of a method's preset, by default its first; raises SettingError for an unknown one."""
    names = [*PRESETS[method], SMALL_DATA]
    if name is not None and name not in names:
        raise SettingError(f"{method} has no recipe {name!r}: choose {' or '.join(names)}")
    return name or names[0]


SMALL_BATCHES = {"dino": 16, "byol": 32, "moco-v2": 32, "swav": 64, "supervised": 64}


def small_data(
    method: str,
    images: int,
    short_side: int,
    batch_size: int | None = None,
    epochs: int | None = None,
    patch_size: int | None = None,
) -> Preset:
    """Preset for thousands of images instead of a million, on one machine.

    Batches are small: after 36,000 images the KL divergence of DINO was 0.5 nats with batches of 64 and 0.8
    nats with batches of 16 (rates and momenta adapted to each). A larger divergence means more training.

    Args:
        method: Name of the method.
        images: Number of training images.
        short_side: Short side of a typical image in pixels.
        batch_size: Images per step; None: `SMALL_BATCHES`.
        epochs: Passes over the images; None: 100.
        patch_size: Side of a patch in pixels; None: 16, or 8 for crops below 96.

    Raises:
        SettingError: Epochs, batch size or patch size below 1.
    """
    batch_size = SMALL_BATCHES[method] if batch_size is None else batch_size
    epochs = 100 if epochs is None else epochs
    given = SimpleNamespace(
        epochs=epochs, batch_size=batch_size, patch_size=1 if patch_size is None else patch_size
    )
    at_least(given, epochs=1, batch_size=1, patch_size=1)
    unit = patch_size or 16
    side = max(-(-32 // unit) * unit, min(224, short_side) // unit * unit)  # in whole patches
    patch_size = patch_size or (16 if side >= 96 else 8)
    local = max(-(-16 // patch_size), side * 3 // 7 // patch_size) * patch_size  # 96 of 224
    lr = 0.0003 * math.sqrt(16 / batch_size) * 256 / 16  # for 256 images; 0.0003 at a batch of 16
    crops = CropConfig(global_size=side, local_size=local, local_crops=6)
    if method in ("byol", "moco-v2"):
        crops = replace(crops, local_crops=0)
    elif method == "supervised":
        crops = replace(crops, global_crops=1, local_crops=0, augmentation="deit")
    warmup = max(1, min(10, epochs // 10)) if epochs > 1 else 0
    recipe = Recipe(
        backbone=BackboneConfig("vit_tiny", patch_size, image_size=side, depth=6, heads=6),
        method=_small_method(method, images, epochs, batch_size),
        crops=crops,
        optimizer=OptimizerConfig(lr=round(lr, 6), warmup_epochs=warmup),
        epochs=epochs,
        batch_size=batch_size,
    )
    return Preset(
        recipe,
        f"this project, for {counted(images, 'image')} with a short side of {short_side} pixels: crops of "
        f"{side} and {local} pixels, learning rate {lr * batch_size / 256:.3g} ({lr:.3g} for 256 images)",
    )


def _small_method(method: str, images: int, epochs: int, batch_size: int) -> Methods:
    """Settings of the method; a teacher averages over a twentieth of the steps or less."""
    steps = max(1, epochs * (images // batch_size))
    momentum = round(max(0.9, min(0.996 ** (batch_size / 1024), 1 - 20 / steps)), 5)
    frozen_epochs = min(1, epochs - 1)
    match method:
        case "dino":
            limits = ((20_000, 1024), (100_000, 4096), (500_000, 16384))
            prototypes = next((k for limit, k in limits if images < limit), 65536)  # that images can fill
            many = images >= 100_000
            return DINOConfig(
                HeadConfig(prototypes=prototypes, hidden=1024, bottleneck=128),
                teacher_momentum=momentum,
                teacher_temperature=0.07 if many else 0.04,
                teacher_temperature_warmup_epochs=min(30, epochs // 3) if many else 0,
                center_momentum=round(max(0.9, 0.98 ** (batch_size / 16)), 4),
                freeze_last_layer_epochs=frozen_epochs,
            )
        case "byol":
            return BYOLConfig(replace(BYOLConfig().head, prototypes=128, hidden=1024), 1024, momentum)
        case "moco-v2":  # an eighth of the images in the queue: an image seldom meets its own keys
            queue = max(1, min(65536, images // 8) // batch_size) * batch_size
            head = replace(MoCoConfig().head, hidden=1024)
            return MoCoConfig(head, queue=queue, teacher_momentum=max(0.99, momentum))
        case "swav":  # epsilon 0.03 against collapse, as SwAV's README advises
            head = replace(SwAVConfig().head, prototypes=max(16, min(3000, images // 50)), hidden=1024)
            return SwAVConfig(head, epsilon=0.03, freeze_last_layer_epochs=frozen_epochs)
        case _:
            return SupervisedConfig()
