"""DINO's recipes: the official code's, the paper's, and one for few pictures."""

from dino_model.configs import BackboneConfig, HeadConfig
from training.crop_config import CropConfig
from training.methods.dino import DINOConfig
from training.recipes.recipe import Advice, OptimizerConfig, Recipe
from training.recipes.small import Small


def official_default() -> Advice:
    """The official code's defaults ("vanilla"), on its 8 GPUs of 64 pictures each.

    Command: python -m training pretrain --recipe official-default --data imagenet/train --output RUN
    Published: ViT-S/16, 100 epochs on 8 V100 in 1.75 days, 69.3 % k-NN and 74.0 % linear on ImageNet
    (not repeated by this project).
    """
    reasons = (
        "settings of the official code: ViT-S/16, 2 + 8 crops, batch 512, 100 epochs",
        "not the official code's: arithmetic in bf16 or fp32 where it has fp16, and which random numbers",
    )
    return Advice(Recipe(), reasons)


def paper() -> Advice:
    """The paper's ViT-S/16 (section 3.2, "Implementation details", and the appendix on multi-crop).

    Command: python -m training pretrain --recipe paper --data imagenet/train --output RUN
    Published: 300 epochs on 16 GPUs, 72.8 % k-NN, 76.1 % linear on ImageNet (not repeated by this project).
    """
    recipe = Recipe(
        method=DINOConfig(
            HeadConfig(train_gain=True),
            teacher_temperature_start=0.04,
            teacher_temperature=0.07,
            teacher_temperature_warmup_epochs=30,
        ),
        crops=CropConfig(local_crops=10, global_scale=(0.25, 1.0), local_scale=(0.05, 0.25)),
        epochs=300,
        batch_size=1024,
    )
    reasons = (
        "paper: ViT-S/16, 2 + 10 crops of scales (0.25, 1) and (0.05, 0.25), batch 1024, 300 epochs",
        "paper: learning rate 0.0005 for 256 pictures, 10 epochs of warm-up, weight decay 0.04 to 0.4",
        "paper: teacher momentum 0.996 to 1, teacher temperature 0.04 to 0.07 over 30 epochs",
        "official code, left open by the paper: stochastic depth 0.1, clipping of each tensor at 3.0",
        "official code, left open by the paper: last learning rate 1e-6, prototypes frozen in epoch 1",
        "official code, left open by the paper: center momentum 0.9, strengths of the colour jitter",
        "official code, left open by the paper: trainable gain of the prototypes, as in its released ViT-S",
    )
    return Advice(recipe, reasons)


def resnet50() -> Advice:
    """The official code's ResNet-50 (its README; 800 epochs are the paper's).

    Command: python -m training pretrain --recipe resnet50 --data imagenet/train --output RUN
    Published: 75.3 % linear, 67.5 % k-NN on ImageNet after 800 epochs (not repeated by this project).
    """
    recipe = Recipe(
        backbone=BackboneConfig("resnet50"),
        crops=CropConfig(global_scale=(0.14, 1.0), local_scale=(0.05, 0.14)),
        optimizer=OptimizerConfig("sgd", lr=0.03, weight_decay=1e-4, weight_decay_end=1e-4),
    )
    reasons = (
        "official code: ResNet-50, SGD with momentum 0.9, learning rate 0.03 for 256 pictures",
        "official code: weight decay 1e-4, crops of scales (0.14, 1) and (0.05, 0.14)",
        "the rest as in --recipe official-default",
    )
    return Advice(recipe, reasons)


def small_data(
    pictures: int,
    short_side: int,
    *,
    batch_size: int = 16,
    epochs: int = 100,
    patch_size: int | None = None,
) -> Advice:
    """A recipe for thousands of pictures instead of a million, on one machine.

    Command: python -m training pretrain --recipe small-data --data PICTURES --output RUN
    Measured: the embedded model began as this recipe with patches of 8 pixels; its card
    (`dino_model/embedded/card.md`) has commands, hardware, hours and figures.

    Batches are small because that learned faster in the one comparison made: after 36,000 pictures the KL
    divergence, which grows as a run learns, was 0.5 nats with batches of 64 and 0.8 with batches of 16 (rates
    and momenta adapted to each).

    Args:
        pictures: number of training pictures.
        short_side: of a typical picture, in pixels.
        batch_size: pictures per step.
        epochs: passes over them.
        patch_size: side of a patch in pixels. Default: by the size of the pictures.

    Raises:
        SettingError: no epochs, or batches of nothing.
    """
    small = Small.of(pictures, short_side, batch_size, epochs, patch_size)
    prototypes = next(
        (k for limit, k in ((20_000, 1024), (100_000, 4096), (500_000, 16384)) if pictures < limit), 65536
    )
    warm = pictures >= 100_000
    temperature = DINOConfig().teacher_temperature
    config = DINOConfig(
        HeadConfig(prototypes=prototypes, hidden=1024, bottleneck=128),
        teacher_momentum=small.teacher_momentum,
        teacher_temperature_start=temperature,
        teacher_temperature=0.07 if warm else temperature,
        teacher_temperature_warmup_epochs=min(30, epochs // 3) if warm else 0,
        center_momentum=round(max(0.9, 0.98 ** (batch_size / 16)), 4),
        freeze_last_layer_epochs=min(1, epochs - 1),
    )
    return small.advice(
        config,
        small.crops,
        f"K = {prototypes}: {pictures:,} pictures cannot fill more prototypes",
        small.momentum_reason,
        f"teacher temperature {config.teacher_temperature_start} to {config.teacher_temperature}: "
        + ("enough pictures for a softer teacher later" if warm else "0.07 needs 100,000 pictures or more"),
        f"center momentum {config.center_momentum}: it averages over some 800 pictures, whatever the batch",
    )


def embedded() -> Advice:
    """The model that this package ships, from random weights.

    Command: python -m training pretrain --recipe embedded --data IMAGES --exclude TEST --output RUN
    Time: about 22 core-hours for 69,000 images on a CPU with bf16 instructions. Scores, data and limits are
    in the model's card, `dino_model/embedded/card.md`.
    """
    recipe = Recipe(
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
    )
    reasons = (
        "ViT of 6 blocks and 2.7 million parameters with patches of 8 pixels: 6 heads that are fast on a CPU",
        "resolution curriculum 48, 80, 112 pixels: most steps at a quarter of the time of the last ones",
        "batch 16 with Muon, learning rate 0.0006: most learning for each image of the variants compared",
        "one view for each network, half of the patches for the student: twice the images per second",
        "coding rate and alignment of the bottleneck (SimDINO) next to the DINO loss",
        "mirrored margin of a quarter: more background, smaller objects, sharper heads",
    )
    return Advice(recipe, reasons)
