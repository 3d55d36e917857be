"""The studies: what of the base setting each one changes, and what the paper found."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from training.recipe import Recipe
from training.studies import base, reading
from training.studies.study import Study, Variant

Make = Callable[[int], Recipe]
METHODS: dict[str, tuple[str, Make]] = {
    "dino": ("DINO", base.recipe),
    "byol": ("BYOL", base.of_byol),
    "moco": ("MoCo-v2", base.of_moco),
    "swav": ("SwAV", base.of_swav),
}


def dino(recipe: Recipe, **changes: Any) -> Recipe:
    """A recipe with other settings of its method."""
    return replace(recipe, method=replace(recipe.method, **changes))


def head(recipe: Recipe, **changes: Any) -> Recipe:
    """A recipe with another projection head."""
    return dino(recipe, head=replace(recipe.method.head, **changes))  # type: ignore[union-attr]


def crops(recipe: Recipe, **changes: Any) -> Recipe:
    """A recipe with other crops."""
    return replace(recipe, crops=replace(recipe.crops, **changes))


def backbone(recipe: Recipe, **changes: Any) -> Recipe:
    """A recipe with another backbone."""
    return replace(recipe, backbone=replace(recipe.backbone, **changes))


def collapse(epochs: int) -> list[Variant]:
    """Centering and sharpening, each with and without."""
    own = base.recipe(epochs)
    return [
        Variant("both", "both", own, told="KL stays above 0"),
        Variant(
            "no-centering", "no centering", dino(own, teacher_output="none"), told="KL and entropy go to 0"
        ),
        Variant("no-sharpening", "no sharpening", dino(own, sharpen=False), told="KL to 0, entropy to ln K"),
        Variant(
            "neither", "neither", dino(own, teacher_output="none", sharpen=False), told="not in the paper"
        ),
    ]


def teacher(epochs: int) -> list[Variant]:
    """What of the student's past is the teacher."""
    own = base.recipe(epochs)
    return [
        Variant("momentum", "momentum", own, 72.8),
        Variant("previous-epoch", "previous epoch", dino(own, teacher="previous-epoch"), 66.6),
        Variant("previous-iteration", "previous iteration", dino(own, teacher="previous-iteration"), 0.1),
        Variant("student-copy", "student copy", dino(own, teacher="student-copy"), 0.1),
    ]


def components(epochs: int) -> list[Variant]:
    """The nine rows of the paper's table."""
    own = base.recipe(epochs)
    return [
        Variant("dino", "1 DINO", own, 72.8),
        Variant("no-momentum", "2 without momentum", dino(own, teacher="student-copy"), 0.1),
        Variant("sinkhorn-knopp", "3 with SK", dino(own, teacher_output="sinkhorn-knopp"), 72.2),
        Variant("no-multi-crop", "4 without multi-crop", crops(own, local_crops=0), 67.9),
        Variant("mse", "5 with MSE", dino(own, loss="mse"), 52.6),
        Variant("predictor", "6 with predictor", dino(own, predictor=256), 71.8),
        Variant("byol", "7 BYOL", crops(base.of_byol(epochs), local_crops=0), 66.6),
        Variant("moco", "8 MoCo-v2", crops(base.of_moco(epochs), local_crops=0), 62.0),
        Variant("swav", "9 SwAV", base.of_swav(epochs), 64.7),
    ]


PAPER_VIT = {  # k-NN, without and with multi-crop
    "dino": (67.9, 72.7),
    "byol": (66.6, 59.8),
    "moco": (62.0, 65.4),
    "swav": (60.5, 64.7),
}
PAPER_RESNET: dict[str, tuple[float | None, float | None]] = {
    "dino": (None, 65.6),
    "byol": (65.4, None),
    "moco": (62.9, None),
    "swav": (None, 65.4),
}


def methods(epochs: int) -> list[Variant]:
    """Four methods, two backbones, with and without multi-crop."""
    found = []
    tables: list[tuple[str, str, Mapping[str, tuple[float | None, float | None]]]] = [
        ("vit", "ViT", PAPER_VIT),
        ("resnet", "ResNet-50", PAPER_RESNET),
    ]
    for network, words, paper in tables:
        for name, (label, make) in METHODS.items():
            for many in (False, True):
                own = base.on_resnet(make(max(1, epochs // 2))) if network == "resnet" else make(epochs)
                recipe = crops(own, local_crops=4 if many else 0)
                found.append(
                    Variant(
                        f"{name}-{network}-{'multi' if many else 'two'}",
                        f"{label}, {'multi-crop' if many else '2 crops'}",
                        recipe,
                        paper[name][many],
                        group=words,
                    )
                )
    return found


def of_crops(epochs: int) -> list[Variant]:
    """How many local crops, and where local ends and global begins."""
    own = base.recipe(epochs)
    numbers = {0: 67.8, 2: 71.5, 6: 73.8, 10: 74.6}  # linear, after 100 epochs
    scales = {0.08: 65.6, 0.16: 68.0, 0.24: 69.7, 0.32: 69.8, 0.48: 69.5}
    return [
        Variant(f"local-{n}", f"{n}", crops(own, local_crops=n), paper, "local crops (paper: linear)")
        for n, paper in numbers.items()
    ] + [
        Variant(
            f"scale-{s:.2f}".replace(".", "-"),
            f"{s}",
            crops(own, global_scale=(s, 1.0), local_scale=(0.05, s)),
            paper,
            "scale s between local and global",
        )
        for s, paper in scales.items()
    ]


def of_head(epochs: int) -> list[Variant]:
    """Depth with and without bottleneck, number of prototypes, batch normalisation, activation."""
    own = base.recipe(epochs)
    with_, without = "MLP layers, with bottleneck", "MLP layers, without bottleneck"
    depths = [
        *((with_, 64, layers, paper) for layers, paper in {1: 62.2, 2: 68.0, 3: 69.3}.items()),
        *((without, None, layers, paper) for layers, paper in {1: 61.6, 2: 62.9, 3: 0.1, 4: 0.1}.items()),
    ]
    prototypes = {16: 67.8, 64: 69.3, 256: 69.2, 1024: 69.7, 4096: 69.1}
    others: list[tuple[str, str, str, dict[str, Any], float]] = [
        ("bn", "with", "batch normalisation", {"batch_norm": True}, 68.6),
        ("no-bn", "without", "batch normalisation", {"batch_norm": False}, 69.7),
        ("gelu", "GELU", "activation", {"activation": "gelu"}, 69.7),
        ("relu", "ReLU", "activation", {"activation": "relu"}, 68.9),
    ]
    return [
        *(
            Variant(
                f"{'bottleneck' if width else 'plain'}-{layers}",
                f"{layers}",
                head(own, layers=layers, bottleneck=width),
                paper,
                group,
            )
            for group, width, layers, paper in depths
        ),
        *(
            Variant(
                f"k-{k}", f"{k}", head(own, prototypes=k), paper, "prototypes K (paper: 64 times as many)"
            )
            for k, paper in prototypes.items()
        ),
        *(
            Variant(name, label, head(own, **changes), paper, group)
            for name, label, group, changes, paper in others
        ),
    ]


def batch(epochs: int) -> list[Variant]:
    """Pictures in a step, the rate in proportion, without multi-crop."""
    own = crops(base.recipe(epochs), local_crops=0)
    paper = {8: 57.9, 16: 59.1, 32: 59.6, 64: 59.9}
    return [Variant(f"batch-{n}", f"{n}", replace(own, batch_size=n), found) for n, found in paper.items()]


def patch(epochs: int) -> list[Variant]:
    """Side of a patch."""
    own = base.recipe(epochs)
    paper = {16: 74.5, 8: 78.3, 4: None}
    return [
        Variant(f"patch-{side}", f"{side}", backbone(own, patch_size=side), found)
        for side, found in paper.items()
    ]


def heads(epochs: int) -> list[Variant]:
    """Attention heads of one width."""
    own = base.recipe(epochs)
    paper = {3: 72.8, 4: 73.1, 6: 73.7, 8: 73.8}
    return [Variant(f"heads-{n}", f"{n}", backbone(own, heads=n), found) for n, found in paper.items()]


STUDIES = {
    study.name: study
    for study in (
        Study(
            "collapse",
            "Centering and sharpening",
            'figure "Collapse study", section 5.3',
            "Without either operation the KL goes to 0; the entropy goes to 0 without centering and to ln K "
            "without sharpening.",
            collapse,
            reading.collapse,
            "collapse",
            paper_figure="what its figure shows",
            notes=(
                "Without sharpening, the teacher's temperature is the student's.",
                "The fourth row, without both, is ours.",
            ),
        ),
        Study(
            "teacher",
            "The teacher",
            "figure and table of section 5.2",
            "The momentum teacher is best and ahead of its student; a copy of the student and the previous "
            "iteration collapse.",
            teacher,
            reading.teacher,
            "teacher",
        ),
        Study(
            "components",
            "Components",
            'table "Important component for self-supervised ViT pretraining"',
            "Momentum, multi-crop and cross-entropy matter; Sinkhorn-Knopp and a predictor hardly do.",
            components,
            reading.pairs,
        ),
        Study(
            "methods",
            "Methods on a ViT and a ResNet-50",
            'tables of the appendix "Methodology Comparison" and "Multi-crop"',
            "On a ViT, DINO leads; multi-crop helps DINO, MoCo-v2 and SwAV and harms BYOL.",
            methods,
            reading.pairs,
            notes=(
                "Where a method's own paper has another optimizer, it is the base setting's here.",
                "The ResNets have half of the epochs, SGD with a rate of 0.06 for 256 pictures and a weight "
                "decay of 1e-4, and local crops of 24 pixels.",
            ),
        ),
        Study(
            "crops",
            "Multi-crop",
            'table "Time and memory requirements" and the table of scales in the appendix "Multi-crop"',
            "More local crops are better, with less and less gain; the border between local and global is "
            "best around 0.3.",
            of_crops,
            reading.pairs,
            seeds=3,
        ),
        Study(
            "head",
            "Projection head",
            'tables of the appendix "Projection Head"',
            "With the bottleneck deeper heads are better, without it deep ones collapse; K matters little; "
            "batch normalisation and the activation hardly.",
            of_head,
            reading.pairs,
            seeds=3,
        ),
        Study(
            "batch",
            "Batch size",
            'table "Effect of batch sizes"',
            "Small batches are a little worse.",
            batch,
            reading.pairs,
            seeds=3,
            notes=("A sixteenth of the paper's batches.",),
        ),
        Study(
            "patch",
            "Patch size",
            'figure "Effect of Patch Size" and the table of results (800 epochs)',
            "Smaller patches are better.",
            patch,
            reading.pairs,
            seeds=3,
            notes=("The paper's smallest patch, 5 pixels, has no figure in its text.",),
        ),
        Study(
            "heads",
            "Attention heads",
            'table "Impact of the number of heads in ViT-S"',
            "More heads are a little better.",
            heads,
            reading.pairs,
            seeds=3,
            notes=("Half of the paper's heads: the network has a quarter of its width.",),
        ),
    )
}
"""By name, in the order of the paper's interest in them."""
