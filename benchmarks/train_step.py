"""A DINO step of a ViT-Ti/16 (2 × 224 + 8 × 96, K = 65,536, batch 16) against the official grouping of crops.

python -m benchmarks.train_step [--json FILE]

`benchmarks.gpu` measures a CUDA device.
"""

from dataclasses import dataclass
from functools import partial

import torch
import tyro

from benchmarks import data
from benchmarks.measure import Benchmark, Computation
from benchmarks.steps import CPU, OurStep, PlainStep
from dino_model.models.backbones import BackboneConfig
from dino_model.runtime.device import choose_precision
from training.augmentation.crop_config import CropConfig
from training.methods.dino_config import DINOConfig
from training.methods.head import HeadConfig
from training.recipes.recipe import OptimizerConfig, Recipe

RECIPE = Recipe(
    backbone=BackboneConfig("vit_tiny", patch_size=16),
    crops=CropConfig(global_size=224, local_size=96, local_crops=8),
    method=DINOConfig(HeadConfig(prototypes=65_536), freeze_last_layer_epochs=0),
    optimizer=OptimizerConfig(warmup_epochs=0),
    epochs=1,
    batch_size=16,
)
"""Full learning rate and trained prototypes from the first step on: the most expensive kind of step."""
AGREEMENT = 1e-5  # relative, of the second loss in fp32


@dataclass(frozen=True, kw_only=True)
class TrainStep(Benchmark):
    """Forward, backward and update of student, teacher and center: `train_step` against the plain step."""

    def peers(self) -> dict[str, tuple[Computation, Computation]]:
        """The step of a training, and that of the official code."""
        crops, precision = data.random_crops(RECIPE), choose_precision("auto", CPU)
        package = partial(OurStep(RECIPE, precision), crops)
        peers = {
            f"official grouping, attention written out, {precision}": PlainStep(
                RECIPE, precision, grouped=True
            ),
            f"official grouping, timm's fused attention, {precision}": PlainStep(
                RECIPE, precision, grouped=True, fused=True
            ),
            "official grouping, attention written out, fp32": PlainStep(RECIPE, grouped=True),
        }
        return {name: (package, partial(step, crops)) for name, step in peers.items()}

    def compare(self) -> tuple[str, ...]:
        """Compare the losses after one update."""
        precision, config, crops = choose_precision("auto", CPU), RECIPE.crops, data.random_crops(RECIPE)
        steps = PlainStep(RECIPE), OurStep(RECIPE, "fp32"), OurStep(RECIPE, precision)
        expected, computed, rough = ([step(crops)["loss"] for _ in range(2)][1] for step in steps)
        if abs(computed - expected) > AGREEMENT * expected:
            raise SystemExit(f"the loss after one step is {computed} in fp32, expected {expected}")
        return (
            f"ViT-Ti/16, 2 × {config.global_size} + {config.local_crops} × {config.local_size}, "
            f"batch {RECIPE.batch_size}, {torch.get_num_threads()} threads",
            f"loss after one update: reference {expected:.5f}, package {computed:.5f} in fp32, "
            f"{rough:.5f} in {precision}",
        )


if __name__ == "__main__":
    tyro.cli(TrainStep).run()
