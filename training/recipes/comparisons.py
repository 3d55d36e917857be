"""Recipes of the methods that the paper compares DINO with: their own papers', the paper's, and small ones.

"paper" is ResNet-50 as the method's own paper trains it. "comparison" is ViT-S/16 in the setting of the DINO
paper (section 4.1 and the appendix "Methodology Comparison"). That tells the others' heads and crops; their
optimizer, rates and batch, which it leaves open, are those that it tells of DINO.

The numbers were compared with what the authors released: BYOL's byol/configs/byol.py and byol/utils, MoCo's
main_moco.py, SwAV's scripts, DeiT's main.py, and their READMEs. "Not checked" are those of which only a paper
tells that was not at hand: they are from memory.
"""

from dataclasses import replace

from dino_model.configs import BackboneConfig, HeadConfig
from training.crop_config import CropConfig
from training.methods.configs import BYOLConfig, MoCoConfig, SupervisedConfig, SwAVConfig
from training.recipes.recipe import Advice, OptimizerConfig, Recipe
from training.recipes.small import Small
from training.settings import OptimizerName

RESNET = BackboneConfig("resnet50")
TWO_VIEWS = CropConfig(local_crops=0, global_scale=(0.14, 1.0))
"""Without multi-crop, as the official code advises it."""
COMPARISON = (
    "paper: ViT-S/16, 300 epochs, its optimizer, batch 1024 and rates, those of DINO",
    "official code, left open by the paper: stochastic depth 0.1, clipping 3.0, last learning rate 1e-6",
)


def steady(
    name: OptimizerName, lr: float, min_lr: float, *, weight_decay: float, warmup_epochs: int = 10
) -> OptimizerConfig:
    """An optimizer of the other papers: weight decay that stays, and no clipping."""
    return OptimizerConfig(
        name, lr, min_lr, warmup_epochs, weight_decay, weight_decay_end=weight_decay, clip_grad=0.0
    )


def byol_paper() -> Advice:
    """BYOL's ResNet-50 in its 300-epoch setting (arXiv:2006.07733).

    Command: python -m training pretrain --method byol --recipe paper --data imagenet/train --output RUN
    Published: 72.5 % linear on ImageNet, as the DINO paper cites it; that paper's own run 72.7 % linear,
    65.4 % k-NN (not repeated by this project).
    """
    recipe = Recipe(
        backbone=RESNET,
        method=BYOLConfig(teacher_momentum=0.99),
        crops=CropConfig(local_crops=0, global_scale=(0.08, 1.0)),
        optimizer=steady("lars", 0.3, 0.0, weight_decay=1e-6),
        epochs=300,
        batch_size=4096,
    )
    reasons = (
        "BYOL: ResNet-50, two views of scales (0.08, 1), batch 4096, 300 epochs",
        "BYOL: LARS, learning rate 0.3 for 256 pictures, 10 epochs of warm-up, weight decay 1e-6",
        "BYOL: teacher momentum 0.99 to 1, projections and predictions of 256 with hidden layers of 4096",
        "BYOL: LARS's coefficient 0.001, blur of every radius from 0.1 to 2 pixels",
    )
    return Advice(recipe, reasons)


def byol_comparison() -> Advice:
    """BYOL's ViT-S/16 in the DINO paper.

    Command: python -m training pretrain --method byol --recipe comparison --data imagenet/train --output RUN
    Published: 71.4 % linear, 66.6 % k-NN on ImageNet after 300 epochs (not repeated by this project).
    """
    recipe = Recipe(method=BYOLConfig(), crops=TWO_VIEWS, epochs=300, batch_size=1024)
    return Advice(
        recipe,
        (*COMPARISON, "BYOL: heads with synchronised batch normalisation, teacher momentum 0.996 to 1"),
    )


def moco_paper() -> Advice:
    """MoCo-v2's ResNet-50 in its 200-epoch setting (arXiv:2003.04297).

    Command: python -m training pretrain --method moco-v2 --recipe paper --data imagenet/train --output RUN
    Published: 67.5 % linear on ImageNet in 53 hours on 8 V100, 71.1 % after 800 epochs (not repeated by this
    project).
    """
    recipe = Recipe(
        backbone=RESNET,
        method=MoCoConfig(),
        crops=CropConfig(local_crops=0, global_scale=(0.2, 1.0), augmentation="moco-v2"),
        optimizer=steady("sgd", 0.03, 0.0, weight_decay=1e-4, warmup_epochs=0),
        epochs=200,
        batch_size=256,
    )
    reasons = (
        "MoCo-v2: ResNet-50, two views of scales (0.2, 1), batch 256, 200 epochs",
        "MoCo-v2: SGD with momentum 0.9, learning rate 0.03 on a cosine to 0, weight decay 1e-4",
        "MoCo-v2: keys of 128 from a hidden layer of 2048, 65,536 in the queue, temperature 0.2",
        "MoCo-v2: teacher momentum 0.999",
        "this project: batch normalisation over the whole batch in place of shuffled parts",
        "this project: biases and norms are not decayed",
    )
    return Advice(recipe, reasons)


def moco_comparison() -> Advice:
    """MoCo-v2's ViT-S/16 in the DINO paper.

    Command: python -m training pretrain --method moco-v2 --recipe comparison --data TRAIN --output RUN
    Published: 71.6 % linear, 62.0 % k-NN on ImageNet after 300 epochs (not repeated by this project); with
    --local-crops 6: 73.4 % and 65.4 %.
    """
    head = HeadConfig(prototypes=256, layers=3, bottleneck=None, batch_norm=True, activation="relu")
    recipe = Recipe(method=MoCoConfig(head), crops=TWO_VIEWS, epochs=300, batch_size=1024)
    return Advice(
        recipe,
        (*COMPARISON, "paper: MoCo-v2 with a 3-layer head, batch normalisation and keys of 256"),
    )


def swav_paper() -> Advice:
    """SwAV's ResNet-50 (arXiv:2006.09882; its code's script for 800 epochs).

    Command: python -m training pretrain --method swav --recipe paper --data imagenet/train --output RUN
    Published: 75.3 % linear on ImageNet after 800 epochs of 3:40 minutes on 64 GPUs (not repeated by this
    project).
    """
    recipe = Recipe(
        backbone=RESNET,
        method=SwAVConfig(),
        crops=CropConfig(
            local_crops=6, global_scale=(0.14, 1.0), local_scale=(0.05, 0.14), augmentation="swav"
        ),
        optimizer=steady("lars", 0.3, 0.0048, weight_decay=1e-6),
        epochs=800,
        batch_size=4096,
    )
    reasons = (
        "SwAV: ResNet-50, 2 + 6 crops of scales (0.14, 1) and (0.05, 0.14), batch 4096, 800 epochs",
        "SwAV: learning rate 4.8 to 0.0048 over 10 epochs of warm-up and a cosine, weight decay 1e-6",
        "SwAV: 3000 prototypes of 128, frozen for an epoch; temperature 0.1, epsilon 0.05, 3 iterations",
        "this project: LARS, which leaves biases and norms alone, and a warm-up from 0 instead of 0.3",
    )
    return Advice(recipe, reasons)


def swav_small_batch() -> Advice:
    """SwAV's ResNet-50 with batches of 256 and a queue (its code's script for 200 epochs of such batches).

    Command: python -m training pretrain --method swav --recipe small-batch --data imagenet/train --output RUN
    Published: 72.7 % linear on ImageNet after 200 epochs on 4 GPUs (not repeated by this project).
    """
    recipe = replace(
        swav_paper().recipe,
        method=SwAVConfig(queue=3840),
        optimizer=steady("lars", 0.6, 0.0006, weight_decay=1e-6, warmup_epochs=0),
        epochs=200,
        batch_size=256,
    )
    reasons = (
        "SwAV: batch 256, 200 epochs, learning rate 0.6 to 0.0006 without warm-up",
        "SwAV: a queue of 3,840 pictures from epoch 15 on",
        "the rest as in --recipe paper",
    )
    return Advice(recipe, reasons)


def swav_comparison() -> Advice:
    """SwAV's ViT-S/16 in the DINO paper.

    Command: python -m training pretrain --method swav --recipe comparison --data imagenet/train --output RUN
    Published: 71.8 % linear, 64.7 % k-NN on ImageNet after 300 epochs (not repeated by this project); with
    --local-crops 0 and --global-scale 0.14 1: 68.5 % and 60.5 %.
    """
    crops = CropConfig(local_crops=6, global_scale=(0.25, 1.0), local_scale=(0.05, 0.25))
    recipe = Recipe(method=SwAVConfig(), crops=crops, epochs=300, batch_size=1024)
    return Advice(
        recipe, (*COMPARISON, "paper: 2 + 6 crops", "SwAV: its head, prototypes, temperature and epsilon")
    )


def deit() -> Advice:
    """DeiT's ViT-S/16 on labels (arXiv:2012.12877; its code's defaults), which the paper compares with.

    Command: python -m training pretrain --method supervised --recipe deit --data imagenet/train --output RUN
    Published: 79.8 % top-1 on ImageNet after 300 epochs (not repeated by this project, whose augmentation is
    weaker: no erasing, no repeated pictures, RandAugment of one strength).
    """
    recipe = Recipe(
        method=SupervisedConfig(),
        crops=CropConfig(global_crops=1, local_crops=0, global_scale=(0.08, 1.0), augmentation="deit"),
        optimizer=steady("adamw", 0.00025, 1e-5, weight_decay=0.05, warmup_epochs=5),
        epochs=300,
        batch_size=1024,
    )
    reasons = (
        "DeiT: ViT-S/16, one view of scales (0.08, 1), batch 1024, 300 epochs, stochastic depth 0.1",
        "DeiT: learning rate 0.0005 for 512 pictures, 5 epochs of warm-up, weight decay 0.05",
        "DeiT: label smoothing 0.1, Mixup 0.8, CutMix 1.0",
        "DeiT: RandAugment, here of two operations of magnitude 9; no erasing, no repeated pictures",
    )
    return Advice(recipe, reasons)


def supervised_resnet() -> Advice:
    """ResNet-50 on labels, in 100 epochs of a plain recipe (P. Goyal et al., arXiv:1706.02677, not checked).

    Command: python -m training pretrain --method supervised --recipe resnet50 --data TRAIN --output RUN
    Published: 76.4 % top-1 on ImageNet after 90 epochs, with steps in place of the cosine (not checked, not
    repeated by this project).
    """
    recipe = Recipe(
        backbone=RESNET,
        method=SupervisedConfig(label_smoothing=0.0, mixup=0.0, cutmix=0.0),
        crops=CropConfig(global_crops=1, local_crops=0, global_scale=(0.08, 1.0), augmentation="supervised"),
        optimizer=steady("sgd", 0.1, 0.0, weight_decay=1e-4, warmup_epochs=5),
        epochs=100,
        batch_size=256,
    )
    reasons = (
        "Goyal et al., not checked: SGD with momentum 0.9, learning rate 0.1 for 256 pictures",
        "Goyal et al., not checked: 5 epochs of warm-up, weight decay 1e-4, plain labels",
        "this project: a cosine instead of steps, 100 epochs, colour jitter of 0.3",
    )
    return Advice(recipe, reasons)


def small_byol(
    pictures: int,
    short_side: int,
    *,
    batch_size: int = 32,
    epochs: int = 100,
    patch_size: int | None = None,
) -> Advice:
    """BYOL for thousands of pictures: a small head, two views.

    Command: python -m training pretrain --method byol --recipe small-data --data PICTURES --output RUN
    """
    small = Small.of(pictures, short_side, batch_size, epochs, patch_size)
    head = replace(BYOLConfig().head, prototypes=128, hidden=1024)
    config = BYOLConfig(head, predictor=1024, teacher_momentum=small.teacher_momentum)
    return small.advice(config, replace(small.crops, local_crops=0), small.momentum_reason)


def small_moco(
    pictures: int,
    short_side: int,
    *,
    batch_size: int = 32,
    epochs: int = 100,
    patch_size: int | None = None,
) -> Advice:
    """MoCo-v2 for thousands of pictures: a queue of an eighth of them, two views.

    Command: python -m training pretrain --method moco-v2 --recipe small-data --data PICTURES --output RUN
    """
    small = Small.of(pictures, short_side, batch_size, epochs, patch_size)
    head = replace(MoCoConfig().head, hidden=1024)
    queue = max(1, min(65536, pictures // 8) // batch_size) * batch_size
    config = MoCoConfig(head, queue=queue, teacher_momentum=max(0.99, small.teacher_momentum))
    reasons = (
        f"queue of {queue}: an eighth of the pictures, so that a picture seldom meets its own keys",
        f"teacher momentum {config.teacher_momentum}: keys of the whole queue have to be alike",
    )
    return small.advice(config, replace(small.crops, local_crops=0), *reasons)


def small_swav(
    pictures: int,
    short_side: int,
    *,
    batch_size: int = 64,
    epochs: int = 100,
    patch_size: int | None = None,
) -> Advice:
    """SwAV for thousands of pictures: few prototypes.

    Command: python -m training pretrain --method swav --recipe small-data --data PICTURES --output RUN
    """
    small = Small.of(pictures, short_side, batch_size, epochs, patch_size)
    prototypes = max(16, min(3000, pictures // 50))
    head = replace(SwAVConfig().head, prototypes=prototypes, hidden=1024)
    config = SwAVConfig(head, epsilon=0.03, freeze_last_layer_epochs=min(1, epochs - 1))
    reasons = (
        f"{prototypes} prototypes: some fifty pictures for each",
        "epsilon 0.03: what SwAV's README advises against collapse",
    )
    return small.advice(config, small.crops, *reasons)


def small_supervised(
    pictures: int,
    short_side: int,
    *,
    batch_size: int = 64,
    epochs: int = 100,
    patch_size: int | None = None,
) -> Advice:
    """Labels of thousands of pictures: one view.

    Command: python -m training pretrain --method supervised --recipe small-data --data PICTURES --output RUN
    """
    small = Small.of(pictures, short_side, batch_size, epochs, patch_size)
    crops = replace(small.crops, global_crops=1, local_crops=0, augmentation="deit")
    return small.advice(SupervisedConfig(), crops, "DeiT's RandAugment, Mixup, CutMix and label smoothing")
