"""A DINO step of a ViT-Ti/16 (2 × 224 + 8 × 96, K = 65,536, batch 16) against the official grouping of crops.

python -m benchmarks.train_step [--json FILE]

The remarks compare it with other peers. `benchmarks.gpu` measures a CUDA device.
"""

from dataclasses import dataclass

import torch
import tyro

from benchmarks import data
from benchmarks.measure import Benchmark, Computation, median_seconds
from benchmarks.steps import CPU, OurStep, PlainStep
from dino_model.models.backbones import BackboneConfig
from dino_model.runtime.device import ComputePrecision, choose_precision
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

    repeats: int = 3
    """Timed turns of each side."""

    def package(self) -> Computation:
        """The step of a training."""
        step, crops = OurStep(RECIPE, choose_precision("auto", CPU)), data.random_crops(RECIPE)
        return lambda: step(crops)

    def reference(self, precision: ComputePrecision | None = None, *, fused: bool = False) -> Computation:
        """The official code's step, by default in the package's precision; its attention is written out."""
        precision = precision or choose_precision("auto", CPU)
        step = PlainStep(RECIPE, precision, grouped=True, fused=fused)
        crops = data.random_crops(RECIPE)
        return lambda: step(crops)

    def compare(self) -> tuple[str, ...]:
        """Compare the losses after one update, and the seconds with those of other peers."""
        precision, config, crops = choose_precision("auto", CPU), RECIPE.crops, data.random_crops(RECIPE)
        steps = PlainStep(RECIPE), OurStep(RECIPE, "fp32"), OurStep(RECIPE, precision)
        expected, computed, rough = ([step(crops)["loss"] for _ in range(2)][1] for step in steps)
        if abs(computed - expected) > AGREEMENT * expected:
            raise SystemExit(f"the loss after one step is {computed} in fp32, expected {expected}")
        ratios = []
        for name, peer in {
            f"timm's fused attention in {precision}": self.reference(fused=True),
            "fp32, the default of the official code": self.reference("fp32"),
        }.items():
            again, other = median_seconds(self.package(), peer, self.repeats)
            ratios.append(
                f"official grouping, {name}: package {again:.3f} s, peer {other:.3f} s: "
                f"{other / again:.2f} times faster"
            )
        return (
            f"ViT-Ti/16, 2 × {config.global_size} + {config.local_crops} × {config.local_size}, "
            f"batch {RECIPE.batch_size}; package and reference in {precision}, "
            f"{torch.get_num_threads()} threads",
            f"loss after one update: reference {expected:.5f}, package {computed:.5f} in fp32, "
            f"{rough:.5f} in {precision}",
            *ratios,
        )


if __name__ == "__main__":
    tyro.cli(TrainStep).run()
