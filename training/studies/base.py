"""The tiny setting that every study starts from: two minutes of one core show that a healthy run learns.

Plain DINO on few small pictures spends its first thousands of steps near the uniform output and looks
collapsed. What shortens that, of what was tried: batch normalisation in the heads (a variant of the paper's
appendix), waves as the start of the positions, and a teacher that averages over fifty steps only. No term is
added to DINO's loss.
"""

from collections import defaultdict
from dataclasses import replace

from dino_model.collections import Images
from dino_model.configs import BackboneConfig, HeadConfig
from dino_model.errors import SettingError
from training.crop_config import CropConfig
from training.evaluation.options import BACKGROUND
from training.methods.configs import BYOLConfig, MoCoConfig, SwAVConfig
from training.methods.dino_config import DINOConfig
from training.recipe import OptimizerConfig, Recipe

CLASSES = 10
PER_CLASS = 100
BATCH = 32
NEIGHBOURS = 10
"""That vote in the studies' k-NN."""


def choose(images: Images) -> Images:
    """The pictures of a study: at most `PER_CLASS`, taken evenly, of each of the `CLASSES` largest classes.

    Raises:
        SettingError: no labels, or too few pictures.
    """
    if images.labels is None:
        raise SettingError("a study needs labelled pictures: pass --data with a folder for each class")
    members: dict[int, list[int]] = defaultdict(list)
    for index, label in enumerate(images.labels):
        if images.classes[label] != BACKGROUND:
            members[label].append(index)
    largest = sorted(members, key=lambda label: -len(members[label]))[:CLASSES]
    chosen = [index for label in largest for index in _evenly(members[label], PER_CLASS)]
    if len(largest) < 2 or len(chosen) < 2 * BATCH:
        raise SettingError(
            f"{len(chosen)} pictures in {len(largest)} classes are too few for a study: "
            f"it needs at least {2 * BATCH} in two classes or more"
        )
    return images.subset(sorted(chosen))


def recipe(epochs: int) -> Recipe:
    """Plain DINO with a ViT of 4 blocks and 96 features on 2 crops of 32 and 4 of 16 pixels."""
    return Recipe(
        backbone=BackboneConfig(
            "vit_tiny", 8, image_size=32, width=96, depth=4, heads=3, position_start="sincos"
        ),
        method=DINOConfig(
            HeadConfig(prototypes=256, hidden=256, bottleneck=64, batch_norm=True),
            teacher_momentum=0.98,
            teacher_temperature_start=0.03,
            teacher_temperature=0.03,
            freeze_last_layer_epochs=0,
        ),
        crops=CropConfig(global_size=32, local_size=16, local_crops=4, blur=(0.02, 0.5), augment="batch"),
        optimizer=OptimizerConfig(lr=0.016, warmup_epochs=epochs // 10),
        epochs=epochs,
        batch_size=BATCH,
    )


def of_byol(epochs: int) -> Recipe:
    """BYOL on the same backbone, crops and rates."""
    head = replace(BYOLConfig().head, prototypes=64, hidden=256)
    return replace(recipe(epochs), method=BYOLConfig(head, predictor=256, teacher_momentum=0.98))


def of_moco(epochs: int) -> Recipe:
    """MoCo-v2 on the same backbone, crops and rates, with the paper's head of three layers."""
    head = HeadConfig(
        prototypes=64, layers=3, hidden=256, bottleneck=None, batch_norm=True, activation="relu"
    )
    return replace(recipe(epochs), method=MoCoConfig(head, queue=8 * BATCH, teacher_momentum=0.98))


def of_swav(epochs: int) -> Recipe:
    """SwAV on the same backbone, crops and rates."""
    head = replace(SwAVConfig().head, prototypes=64, hidden=256, bottleneck=64)
    return replace(recipe(epochs), method=SwAVConfig(head, epsilon=0.03, freeze_last_layer_epochs=0))


def on_resnet(recipe: Recipe) -> Recipe:
    """The same on a ResNet-50, with SGD as our recipe `resnet50` has it, at twice its rate: a run is short.

    AdamW at the base setting's rate ended ten points lower. Local crops of 16 pixels are too small for it.
    """
    optimizer = OptimizerConfig(
        "sgd",
        lr=0.06,
        warmup_epochs=recipe.optimizer.warmup_epochs,
        weight_decay=1e-4,
        weight_decay_end=1e-4,
        clip_grad=0,
    )
    return replace(
        recipe,
        backbone=BackboneConfig("resnet50"),
        crops=replace(recipe.crops, local_size=24),
        optimizer=optimizer,
    )


def _evenly(members: list[int], most: int) -> list[int]:
    return [members[i * len(members) // most] for i in range(most)] if len(members) > most else members
