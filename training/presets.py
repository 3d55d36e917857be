"""Presets of `pretrain --recipe`: one table of recipes, with the source of each setting and expected scores.

"paper" is ResNet-50 as the method's own paper trains it (DINO: ViT-S/16). "comparison" is ViT-S/16 in the
setting of the DINO paper (section 4.1 and the appendix "Methodology Comparison"). The DINO paper gives heads
and crops of the other methods; optimizer, rates and batch size, which it leaves open, are those of DINO.

The values were compared with the authors' code: BYOL's byol/configs/byol.py and byol/utils, MoCo's
main_moco.py, SwAV's scripts, DeiT's main.py, and their READMEs. "Not checked" marks values from memory.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dino_model.configs import BackboneConfig, HeadConfig
from dino_model.errors import SettingError
from training.crop_config import CropConfig
from training.methods.configs import BYOLConfig, MoCoConfig, SupervisedConfig, SwAVConfig
from training.methods.dino_config import DINOConfig
from training.recipe import Methods, OptimizerConfig, Recipe
from training.settings import OptimizerName

PresetName = Literal[
    "official-default", "paper", "small-data", "embedded", "comparison", "small-batch", "resnet50", "deit"
]
NOMINAL_IMAGES = (10_000, 224)
"""Number and short side of images for `--help`, where the images are not known."""


@dataclass(frozen=True)
class Preset:
    """A recipe and the sources of its settings."""

    recipe: Recipe
    reasons: tuple[str, ...]
    expected: str = ""
    """Published scores, hardware and time; none of them was repeated by this project."""


def constant_decay(
    name: OptimizerName, lr: float, min_lr: float, *, weight_decay: float, warmup_epochs: int = 10
) -> OptimizerConfig:
    """Optimizer of the other papers: constant weight decay, no clipping."""
    return OptimizerConfig(
        name, lr, min_lr, warmup_epochs, weight_decay, weight_decay_end=weight_decay, clip_grad=0.0
    )


RESNET = BackboneConfig("resnet50")
TWO_VIEWS = CropConfig(local_crops=0, global_scale=(0.14, 1.0))
"""Without multi-crop, as the official code advises."""
COMPARISON = (
    "paper: ViT-S/16, 300 epochs, its optimizer, batch 1024 and rates, those of DINO",
    "official code, left open by the paper: stochastic depth 0.1, clipping 3.0, last learning rate 1e-6",
)
DINO_PRESETS = {
    "official-default": Preset(
        Recipe(),
        (
            "settings of the official code: ViT-S/16, 2 + 8 crops, batch 512, 100 epochs",
            "not the official code's: arithmetic in bf16 or fp32 where it has fp16, and which random numbers",
        ),
        "69.3 % k-NN, 74.0 % linear on ImageNet with 8 V100 in 1.75 days",
    ),
    "paper": Preset(
        Recipe(
            method=DINOConfig(
                HeadConfig(train_gain=True),
                teacher_temperature_start=0.04,
                teacher_temperature=0.07,
                teacher_temperature_warmup_epochs=30,
            ),
            crops=CropConfig(local_crops=10, global_scale=(0.25, 1.0), local_scale=(0.05, 0.25)),
            epochs=300,
            batch_size=1024,
        ),
        (
            "paper: ViT-S/16, 2 + 10 crops of scales (0.25, 1) and (0.05, 0.25), batch 1024, 300 epochs",
            "paper: learning rate 0.0005 for 256 images, 10 epochs of warm-up, weight decay 0.04 to 0.4",
            "paper: teacher momentum 0.996 to 1, teacher temperature 0.04 to 0.07 over 30 epochs",
            "official code, left open by the paper: stochastic depth 0.1, clipping of each tensor at 3.0",
            "official code, left open by the paper: last learning rate 1e-6, prototypes frozen in epoch 1",
            "official code, left open by the paper: center momentum 0.9, strengths of the color jitter",
            "official code, left open by the paper: trainable gain of the prototypes, as its released ViT-S",
        ),
        "72.8 % k-NN, 76.1 % linear on ImageNet with 16 GPUs",
    ),
    "resnet50": Preset(
        Recipe(
            backbone=RESNET,
            crops=CropConfig(global_scale=(0.14, 1.0), local_scale=(0.05, 0.14)),
            optimizer=OptimizerConfig("sgd", lr=0.03, weight_decay=1e-4, weight_decay_end=1e-4),
        ),
        (
            "official code: ResNet-50, SGD with momentum 0.9, learning rate 0.03 for 256 images",
            "official code: weight decay 1e-4, crops of scales (0.14, 1) and (0.05, 0.14)",
            "the rest as in --recipe official-default",
        ),
        "67.5 % k-NN, 75.3 % linear on ImageNet after 800 epochs",
    ),
    "embedded": Preset(
        Recipe(
            backbone=BackboneConfig("vit_tiny", 8, image_size=112, depth=6, heads=6),
            method=DINOConfig(
                HeadConfig(prototypes=4096, hidden=1024, bottleneck=128),
                teacher_momentum=0.995,
                center_momentum=0.98,
                freeze_last_layer_epochs=0,
                views=1,
                kept_tokens=0.5,
                spreading=0.3,
                alignment=5.0,
            ),
            crops=CropConfig(
                global_size=112,
                local_size=40,
                local_crops=4,
                blur=(0.05, 1.0),
                margin=0.25,
                augment="batch",
                curriculum=("48:0.5", "80:0.3", "112:0.2"),
            ),
            optimizer=OptimizerConfig("muon", lr=0.0096, warmup_epochs=1),
            epochs=40,
            batch_size=16,
        ),
        (
            "ViT of 6 blocks, 6 heads and 2.7 million parameters with patches of 8 pixels: fast on a CPU",
            "resolution curriculum 48, 80, 112 pixels: most steps at a quarter of the time of the last ones",
            "batch 16 with Muon, learning rate 0.0006: most learning for each image of the variants compared",
            "one view for each network, half of the patches for the student: twice the images per second",
            "coding rate and alignment of the bottleneck (SimDINO) next to the DINO loss",
            "mirrored margin of a quarter: more background, smaller objects, sharper heads",
        ),
        "the card of the embedded model; about 22 core-hours for 69,000 images on a CPU with bf16",
    ),
}
BYOL_PRESETS = {
    "paper": Preset(
        Recipe(
            backbone=RESNET,
            method=BYOLConfig(teacher_momentum=0.99),
            crops=CropConfig(local_crops=0, global_scale=(0.08, 1.0)),
            optimizer=constant_decay("lars", 0.3, 0.0, weight_decay=1e-6),
            epochs=300,
            batch_size=4096,
        ),
        (
            "BYOL: ResNet-50, two views of scales (0.08, 1), batch 4096, 300 epochs",
            "BYOL: LARS, learning rate 0.3 for 256 images, 10 epochs of warm-up, weight decay 1e-6",
            "BYOL: teacher momentum 0.99 to 1, projections and predictions of 256 with hidden layers of 4096",
            "BYOL: LARS's coefficient 0.001, blur of every radius from 0.1 to 2 pixels",
        ),
        "72.5 % linear on ImageNet; the DINO paper's own run: 65.4 % k-NN, 72.7 % linear",
    ),
    "comparison": Preset(
        Recipe(method=BYOLConfig(), crops=TWO_VIEWS, epochs=300, batch_size=1024),
        (*COMPARISON, "BYOL: heads with synchronized batch normalization, teacher momentum 0.996 to 1"),
        "66.6 % k-NN, 71.4 % linear on ImageNet",
    ),
}
MOCO_PRESETS = {
    "paper": Preset(
        Recipe(
            backbone=RESNET,
            method=MoCoConfig(),
            crops=CropConfig(local_crops=0, global_scale=(0.2, 1.0), augmentation="moco-v2"),
            optimizer=constant_decay("sgd", 0.03, 0.0, weight_decay=1e-4, warmup_epochs=0),
            epochs=200,
            batch_size=256,
        ),
        (
            "MoCo-v2: ResNet-50, two views of scales (0.2, 1), batch 256, 200 epochs",
            "MoCo-v2: SGD with momentum 0.9, learning rate 0.03 on a cosine to 0, weight decay 1e-4",
            "MoCo-v2: keys of 128 from a hidden layer of 2048, 65,536 in the queue, temperature 0.2",
            "MoCo-v2: teacher momentum 0.999",
            "this project: batch normalization over the whole batch in place of shuffled parts",
            "this project: biases and norms are not decayed",
        ),
        "67.5 % linear on ImageNet with 8 V100 in 53 hours; 71.1 % after 800 epochs",
    ),
    "comparison": Preset(
        Recipe(
            method=MoCoConfig(
                HeadConfig(prototypes=256, layers=3, bottleneck=None, batch_norm=True, activation="relu")
            ),
            crops=TWO_VIEWS,
            epochs=300,
            batch_size=1024,
        ),
        (*COMPARISON, "paper: MoCo-v2 with a 3-layer head, batch normalization and keys of 256"),
        "62.0 % k-NN, 71.6 % linear on ImageNet; with --local-crops 6: 65.4 % and 73.4 %",
    ),
}
SWAV_PAPER = Recipe(
    backbone=RESNET,
    method=SwAVConfig(),
    crops=CropConfig(local_crops=6, global_scale=(0.14, 1.0), local_scale=(0.05, 0.14), augmentation="swav"),
    optimizer=constant_decay("lars", 0.3, 0.0048, weight_decay=1e-6),
    epochs=800,
    batch_size=4096,
)
SWAV_PRESETS = {
    "paper": Preset(
        SWAV_PAPER,
        (
            "SwAV: ResNet-50, 2 + 6 crops of scales (0.14, 1) and (0.05, 0.14), batch 4096, 800 epochs",
            "SwAV: learning rate 4.8 to 0.0048 over 10 epochs of warm-up and a cosine, weight decay 1e-6",
            "SwAV: 3000 prototypes of 128, frozen for an epoch; temperature 0.1, epsilon 0.05, 3 iterations",
            "this project: LARS, which leaves biases and norms alone, and a warm-up from 0 instead of 0.3",
        ),
        "75.3 % linear on ImageNet with 64 GPUs, 3:40 minutes an epoch",
    ),
    "small-batch": Preset(
        replace(
            SWAV_PAPER,
            method=SwAVConfig(queue=3840),
            optimizer=constant_decay("lars", 0.6, 0.0006, weight_decay=1e-6, warmup_epochs=0),
            epochs=200,
            batch_size=256,
        ),
        (
            "SwAV: batch 256, 200 epochs, learning rate 0.6 to 0.0006 without warm-up",
            "SwAV: a queue of 3,840 images from epoch 15 on",
            "the rest as in --recipe paper",
        ),
        "72.7 % linear on ImageNet with 4 GPUs",
    ),
    "comparison": Preset(
        Recipe(
            method=SwAVConfig(),
            crops=CropConfig(local_crops=6, global_scale=(0.25, 1.0), local_scale=(0.05, 0.25)),
            epochs=300,
            batch_size=1024,
        ),
        (*COMPARISON, "paper: 2 + 6 crops", "SwAV: its head, prototypes, temperature and epsilon"),
        "64.7 % k-NN, 71.8 % linear on ImageNet; without local crops: 60.5 % and 68.5 %",
    ),
}
SUPERVISED_PRESETS = {
    "deit": Preset(
        Recipe(
            method=SupervisedConfig(),
            crops=CropConfig(global_crops=1, local_crops=0, global_scale=(0.08, 1.0), augmentation="deit"),
            optimizer=constant_decay("adamw", 0.00025, 1e-5, weight_decay=0.05, warmup_epochs=5),
            epochs=300,
            batch_size=1024,
        ),
        (
            "DeiT: ViT-S/16, one view of scales (0.08, 1), batch 1024, 300 epochs, stochastic depth 0.1",
            "DeiT: learning rate 0.0005 for 512 images, 5 epochs of warm-up, weight decay 0.05",
            "DeiT: label smoothing 0.1, Mixup 0.8, CutMix 1.0",
            "DeiT: RandAugment, here of two operations of magnitude 9; no erasing, no repeated images",
        ),
        "79.8 % top-1 on ImageNet, with stronger augmentation than here",
    ),
    "resnet50": Preset(
        Recipe(
            backbone=RESNET,
            method=SupervisedConfig(label_smoothing=0.0, mixup=0.0, cutmix=0.0),
            crops=CropConfig(
                global_crops=1, local_crops=0, global_scale=(0.08, 1.0), augmentation="supervised"
            ),
            optimizer=constant_decay("sgd", 0.1, 0.0, weight_decay=1e-4, warmup_epochs=5),
            epochs=100,
            batch_size=256,
        ),
        (
            "Goyal et al., not checked: SGD with momentum 0.9, learning rate 0.1 for 256 images",
            "Goyal et al., not checked: 5 epochs of warm-up, weight decay 1e-4, plain labels",
            "this project: a cosine instead of steps, 100 epochs, color jitter of 0.3",
        ),
        "76.4 % top-1 on ImageNet after 90 epochs (not checked)",
    ),
}
PRESETS: dict[str, dict[str, Preset]] = {
    "dino": DINO_PRESETS,
    "byol": BYOL_PRESETS,
    "moco-v2": MOCO_PRESETS,
    "swav": SWAV_PRESETS,
    "supervised": SUPERVISED_PRESETS,
}
"""By method and name, the default of a method first. Every method also has `small-data`."""


def preset_names(method: str) -> list[str]:
    """Names of the presets of a method, its default first."""
    return [*PRESETS[method], "small-data"]


def find_preset(method: str, name: str | None) -> str:
    """Validate the name of a method's preset; without a name, its default.

    Raises:
        SettingError: the method has no such preset.
    """
    names = preset_names(method)
    if name is not None and name not in names:
        raise SettingError(f"{method} has no recipe {name!r}: choose {' or '.join(names)}")
    return name or names[0]


def typical_short_side(sizes: Sequence[tuple[int, int]]) -> int:
    """Median of the shorter sides of images of (height, width)."""
    shorter = sorted(min(size) for size in sizes)
    return shorter[len(shorter) // 2]


@dataclass(frozen=True)
class Small:
    """Settings of `small-data` that do not depend on the method."""

    images: int
    steps: int
    crops: CropConfig
    teacher_momentum: float
    batch_size: int
    epochs: int


Choice = tuple[Methods, CropConfig, tuple[str, ...]]
"""Method, crops and reasons."""


def small_data(
    method: str,
    images: int,
    short_side: int,
    *,
    batch_size: int | None = None,
    epochs: int = 100,
    patch_size: int | None = None,
) -> Preset:
    """Preset for thousands of images instead of a million, on one machine.

    Batches are small: after 36,000 images the KL divergence of DINO, which grows as a run learns, was 0.5
    nats with batches of 64 and 0.8 with batches of 16 (rates and momenta adapted to each).

    Args:
        method: name of the method.
        images: number of training images.
        short_side: of a typical image, in pixels.
        batch_size: images per step; None: 16 for DINO, 32 for BYOL and MoCo-v2, 64 for SwAV and supervised.
        epochs: passes over the images.
        patch_size: side of a patch in pixels; None: 16, or 8 for crops below 96.

    Raises:
        SettingError: epochs, batch size or patch size below 1.
    """
    choose, default = SMALL[method]
    batch_size = default if batch_size is None else batch_size
    for name, value in (("epochs", epochs), ("batch-size", batch_size), ("patch-size", patch_size)):
        if value is not None and value < 1:
            raise SettingError(f"--{name} is {value}, expected at least 1")
    steps = epochs * (images // batch_size)
    momentum = max(0.9, min(0.996 ** (batch_size / 1024), 1 - 20 / max(steps, 1)))
    warmup = max(1, min(10, epochs // 10)) if epochs > 1 else 0
    unit = patch_size or 16
    side = max(-(-32 // unit) * unit, min(224, short_side) // unit * unit)  # in whole patches
    patch_size = patch_size or (16 if side >= 96 else 8)
    local = max(-(-16 // patch_size), side * 3 // 7 // patch_size) * patch_size  # 96 of 224
    lr = 0.0003 * math.sqrt(16 / batch_size) * 256 / 16  # for 256 images; 0.0003 at a batch of 16
    crops = CropConfig(global_size=side, local_size=local, local_crops=6)
    config, crops, reasons = choose(Small(images, steps, crops, round(momentum, 5), batch_size, epochs))
    recipe = Recipe(
        backbone=BackboneConfig("vit_tiny", patch_size, image_size=side, depth=6, heads=6),
        method=config,
        crops=crops,
        optimizer=OptimizerConfig(lr=round(lr, 6), warmup_epochs=warmup),
        epochs=epochs,
        batch_size=batch_size,
    )
    common = (
        f"crops of {side} and {local} pixels: the images are {short_side} pixels high or wide",
        f"learning rate {lr * batch_size / 256:.3g} ({lr:.3g} for 256): it goes with the batch's root",
        f"warm-up of {warmup} epochs: a tenth of the run, at most the official 10",
    )
    return Preset(recipe, (*reasons, *common))


def _momentum_reason(small: Small) -> str:
    return (
        f"teacher momentum from {small.teacher_momentum:.5f}: it averages a twentieth of the "
        f"{small.steps:,} steps or less"
    )


def _small_dino(small: Small) -> Choice:
    limits = ((20_000, 1024), (100_000, 4096), (500_000, 16384))
    prototypes = next((k for limit, k in limits if small.images < limit), 65536)
    many = small.images >= 100_000
    start = DINOConfig().teacher_temperature
    config = DINOConfig(
        HeadConfig(prototypes=prototypes, hidden=1024, bottleneck=128),
        teacher_momentum=small.teacher_momentum,
        teacher_temperature_start=start,
        teacher_temperature=0.07 if many else start,
        teacher_temperature_warmup_epochs=min(30, small.epochs // 3) if many else 0,
        center_momentum=round(max(0.9, 0.98 ** (small.batch_size / 16)), 4),
        freeze_last_layer_epochs=min(1, small.epochs - 1),
    )
    reasons = (
        f"K = {prototypes}: {small.images:,} images cannot fill more prototypes",
        _momentum_reason(small),
        f"teacher temperature {start} to {config.teacher_temperature}: "
        + ("enough images for a softer teacher later" if many else "0.07 needs 100,000 images or more"),
        f"center momentum {config.center_momentum}: it averages over some 800 images, whatever the batch",
    )
    return config, small.crops, reasons


def _small_byol(small: Small) -> Choice:
    head = replace(BYOLConfig().head, prototypes=128, hidden=1024)
    config = BYOLConfig(head, predictor=1024, teacher_momentum=small.teacher_momentum)
    return config, replace(small.crops, local_crops=0), (_momentum_reason(small),)


def _small_moco(small: Small) -> Choice:
    head = replace(MoCoConfig().head, hidden=1024)
    queue = max(1, min(65536, small.images // 8) // small.batch_size) * small.batch_size
    config = MoCoConfig(head, queue=queue, teacher_momentum=max(0.99, small.teacher_momentum))
    reasons = (
        f"queue of {queue}: an eighth of the images, so that a image seldom meets its own keys",
        f"teacher momentum {config.teacher_momentum}: keys of the whole queue have to be alike",
    )
    return config, replace(small.crops, local_crops=0), reasons


def _small_swav(small: Small) -> Choice:
    prototypes = max(16, min(3000, small.images // 50))
    head = replace(SwAVConfig().head, prototypes=prototypes, hidden=1024)
    config = SwAVConfig(head, epsilon=0.03, freeze_last_layer_epochs=min(1, small.epochs - 1))
    reasons = (
        f"{prototypes} prototypes: some fifty images for each",
        "epsilon 0.03: what SwAV's README advises against collapse",
    )
    return config, small.crops, reasons


def _small_supervised(small: Small) -> Choice:
    crops = replace(small.crops, global_crops=1, local_crops=0, augmentation="deit")
    return SupervisedConfig(), crops, ("DeiT's RandAugment, Mixup, CutMix and label smoothing",)


SMALL: dict[str, tuple[Callable[[Small], Choice], int]] = {
    "dino": (_small_dino, 16),
    "byol": (_small_byol, 32),
    "moco-v2": (_small_moco, 32),
    "swav": (_small_swav, 64),
    "supervised": (_small_supervised, 64),
}
"""Choice of method settings and batch size of `small-data`, by method."""
