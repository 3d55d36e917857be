"""The laws of the paper that short runs can show, one contrast each.

Every contrast is fixed here, before a run: the difference of two values in each seed (or image). Effects
of 1 to 2 points, which five seeds cannot resolve, are left out.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dino_model.models.configs import BackboneConfig, HeadConfig
from training.augmentation.crop_config import CropConfig
from training.methods.dino_ablations_config import AblationsConfig
from training.recipes.recipe import OptimizerConfig, Recipe

if TYPE_CHECKING:
    from training.studies.runs import Result

Results = Mapping[str, "Result"]
"""Results of one seed by variant."""


def base_recipe(epochs: int) -> Recipe:
    """Return DINO for a ViT of 2 blocks of width 96, two crops of 36 patches, 100 steps of 32 per epoch.

    Batch normalization in the heads, a teacher that averages over 50 steps and a constant rate shorten the
    start, in which outputs are near uniform. Sine-cosine position embeddings lengthen it.
    """
    return Recipe(
        backbone=BackboneConfig("vit_tiny", 4, image_size=24, width=96, depth=2, heads=3),
        method=AblationsConfig(
            HeadConfig(prototypes=256, hidden=256, bottleneck=64, batch_norm=True),
            teacher_momentum=0.98,
            teacher_momentum_end=0.98,
            teacher_temperature=0.045,
            freeze_last_layer_epochs=0,
        ),
        crops=CropConfig(
            global_size=24,
            global_scale=(0.25, 1.0),
            local_size=16,
            local_crops=0,
            augmentation="supervised",
            augment="batch",
        ),
        optimizer=OptimizerConfig(lr=0.004, warmup_epochs=0.4, hold=1.0),
        epochs=epochs,
        batch_size=32,
    )


@dataclass(frozen=True)
class Law:
    """A conclusion of the paper and the contrast that tests it."""

    name: str
    title: str
    source: str
    """Figure or table of the paper."""
    finding: str
    """Sentence of a positive contrast, with {effect}."""
    contrast: tuple[str, str]
    """Two points of `values`: the first minus the second is positive if the law holds."""
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Changes of the base recipe by name of the variant; the first variant is the base of the comparison.
    `epochs` is a factor. `emergence` trains nothing: its trained model is `embedded-dino`."""
    values: Callable[[Results], dict[str, float]] = lambda runs: {
        name: run.knn() for name, run in runs.items()
    }
    """Points of figure and table in one seed."""
    unit: str = "points"
    quantity: str = "k-NN top-1, %"
    largest: float = 100.0
    """Largest value that the quantity can have; the smallest is 0."""
    paper: Mapping[str, float] = field(default_factory=dict)
    """The paper's values by variant, on ImageNet: of another task, so they are in the table only."""
    epochs: int = 8
    seeds: int = 5
    """Runs of each variant."""

    def recipes(self, epochs: int) -> dict[str, Recipe]:
        """Return the recipe of each variant for a number of epochs."""
        recipes = {}
        for name, changes in self.variants.items():
            recipe = base_recipe(round(epochs * changes.get("epochs", 1)))
            for part, _, setting in (key.partition(".") for key in changes if key != "epochs"):
                value = {setting: changes[f"{part}.{setting}"]}
                recipe = replace(recipe, **{part: replace(getattr(recipe, part), **value)})
            recipes[name] = replace(recipe, method=recipe.method.resolve())
        return recipes


_LAWS = (
    Law(
        "collapse",
        "Centering and sharpening hold back opposite collapses",
        "Figure 7",
        "Without sharpening the teacher's entropy ends {effect} above that without centering",
        ("no sharpening", "no centering"),
        {
            "both": {},
            "no centering": {"method.teacher_output": "none"},
            "no sharpening": {"method.sharpen": False},
            "neither": {"method.teacher_output": "none", "method.sharpen": False},
        },
        lambda runs: {name: run.entropy() for name, run in runs.items()},
        unit="ln K",
        quantity="entropy of the teacher / ln K",
        largest=1.0,
        paper={"no centering": 0.0, "no sharpening": 1.0},
        seeds=3,
    ),
    Law(
        "teacher",
        "The teacher must be slow",
        "Table 7 and Figure 6, right",
        "The momentum teacher gains {effect} over the copied one",
        ("momentum", "student copy"),
        {
            "momentum": {},
            "previous epoch": {"method.teacher": "previous-epoch"},
            "student copy": {"method.teacher": "student-copy"},
        },
        paper={"momentum": 72.8, "previous epoch": 66.6, "student copy": 0.1},
    ),
    Law(
        "multicrop",
        "Multi-crop is better for the same computation",
        "Table 8",
        "Local crops gain {effect} over longer training with two crops",
        ("multi-crop", "two crops"),
        {
            "multi-crop": {"crops.local_crops": 6},
            "two crops": {"epochs": 2},  # as many token passes: 2 (1 + 3) 36 = 6 * 3 * 16
        },
        paper={"multi-crop": 73.8, "two crops": 72.5},
    ),
    Law(
        "loss",
        "Cross-entropy is better than mean squared error",
        "Table 7",
        "Cross-entropy gains {effect} over the mean squared error",
        ("cross-entropy", "mean squared error"),
        {"cross-entropy": {}, "mean squared error": {"method.loss": "mse"}},
        paper={"cross-entropy": 72.8, "mean squared error": 52.6},
        seeds=10,
    ),
    Law(
        "emergence",
        "Attention localizes objects without labels",
        "Figures 1 and 4",
        "Training raises the attention to objects by {effect}",
        ("trained", "random weights"),
        unit="times their area",
        quantity="lift of attention over the area of the object",
        largest=math.inf,
    ),
)
LAWS = {law.name: law for law in _LAWS}
"""Every law by its name on the command line."""
