"""A DINO step of a ViT-Ti/16 (2 × 224 + 8 × 96, K = 65,536, batch 16) against the plain step.

python -m benchmarks.train_step [--json FILE]
python -m benchmarks.train_step --device cuda [--batch 256] [--compile] [--json FILE]

A CUDA device trains ViT-S/16 with 2 × 224 + 10 × 96, from crops on the device and from JPEGs. The reference
is the official grouping of crops in the same precision. It needs less than 8 minutes.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Literal

import torch
import tyro
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import data
from benchmarks.measure import Benchmark, Computation, median_seconds
from benchmarks.plan import peak
from benchmarks.steps import CPU, Figures, OurStep, PlainStep
from dino_model.data.collections import open_images
from dino_model.models.backbones import BackboneConfig
from dino_model.runtime.device import ComputePrecision, choose_precision
from dino_model.runtime.files import write_json
from training.augmentation.crop_config import CropConfig
from training.augmentation.crops import Crops
from training.commands.pretrain import default_workers
from training.methods.dino_config import DINOConfig
from training.methods.head import HeadConfig
from training.recipes.recipe import OptimizerConfig, Recipe
from training.run.folder import Run
from training.session import Session
from training.train import Callbacks

CUDA = torch.device("cuda")
RECIPE = Recipe(
    backbone=BackboneConfig("vit_tiny", patch_size=16),
    crops=CropConfig(global_size=224, local_size=96, local_crops=8),
    method=DINOConfig(HeadConfig(prototypes=65_536), freeze_last_layer_epochs=0),
    optimizer=OptimizerConfig(warmup_epochs=0),
    epochs=1,
    batch_size=16,
)
"""Full learning rate and trained prototypes from the first step on: the most expensive kind of step."""
GPU_BACKBONE, GPU_CROPS = BackboneConfig("vit_small", 16, drop_path=0.1), CropConfig(local_crops=10)
AGREEMENT = 1e-5  # relative, of the second loss in fp32
SECONDS = 120.0
"""Duration of the training from JPEGs."""
PUBLISHED = (
    "published, DINO's official code on a V100: 86 to 106 images/s (2 × 224 + 8 or 10 × 96)",
    "published, H200, two views: 871 images/s, the model alone 2,680 images/s",
    "goal: 3 times the official grouping on the same device, 30 % of its peak",
)


@dataclass(frozen=True, kw_only=True)
class TrainStep(Benchmark):
    """Forward, backward and update of student, teacher and center: `train_step` against the plain step."""

    repeats: int = 5
    """Timed turns of each side."""
    device: Literal["cpu", "cuda"] = "cpu"
    """cuda: ViT-S/16 with 2 × 224 + 10 × 96, from crops and from JPEGs."""
    batch: int = 256
    """Images of a step, with --device cuda."""
    compile: bool = False
    """Compile the blocks, with --device cuda."""

    def run(self) -> None:
        """Compare the losses, measure, print."""
        if self.device == "cpu":
            super().run()
        elif torch.cuda.is_available():
            self.run_on_gpu()
        else:
            print("train_step: skipped, there is no CUDA device")

    def package(self) -> Computation:
        """The step of a training."""
        step, crops = OurStep(RECIPE, choose_precision("auto", CPU)), data.random_crops(RECIPE)
        return lambda: step(crops)

    def reference(self, grouped: bool = False, precision: ComputePrecision | None = None) -> Computation:
        """The plain step, or the official code's; by default in the precision of the package."""
        precision = precision or choose_precision("auto", CPU)
        step, crops = PlainStep(RECIPE, precision, grouped=grouped), data.random_crops(RECIPE)
        return lambda: step(crops)

    def compare(self) -> tuple[str, ...]:
        """Compare the losses after one update, and the seconds with the official grouping of crops."""
        precision, config, crops = choose_precision("auto", CPU), RECIPE.crops, data.random_crops(RECIPE)
        steps = PlainStep(RECIPE), OurStep(RECIPE, "fp32"), OurStep(RECIPE, precision)
        expected, computed, rough = ([step(crops)["loss"] for _ in range(2)][1] for step in steps)
        if abs(computed - expected) > AGREEMENT * expected:
            raise SystemExit(f"the loss after one step is {computed} in fp32, expected {expected}")
        peers: dict[str, ComputePrecision] = {
            "equal precision": precision,
            "default of the official code": "fp32",
        }
        ratios = []
        for name, own in peers.items():
            again, grouped = median_seconds(self.package(), self.reference(True, own), self.repeats)
            ratios.append(
                f"official grouping in {own} ({name}): package {again:.3f} s, official {grouped:.3f} s: "
                f"{grouped / again:.2f} times faster"
            )
        return (
            f"ViT-Ti/16, 2 × {config.global_size} + {config.local_crops} × {config.local_size}, "
            f"batch {RECIPE.batch_size}; package and plain step in {precision}, "
            f"{torch.get_num_threads()} threads",
            f"loss after one update: reference {expected:.5f}, package {computed:.5f} in fp32, "
            f"{rough:.5f} in {precision}",
            *ratios,
        )

    def run_on_gpu(self) -> None:
        """Print images/s, share of the device's peak, memory and data wait."""
        recipe = replace(RECIPE, backbone=GPU_BACKBONE, crops=GPU_CROPS, batch_size=self.batch)
        name, precision = torch.cuda.get_device_name(CUDA), choose_precision("auto", CUDA)
        official = PlainStep(recipe, precision, CUDA, grouped=True)
        results = {
            "step": time_step(OurStep(recipe, precision, CUDA, compile=self.compile).begin, recipe),
            "official grouping": time_step(official, recipe),
            "step from JPEGs": time_training(recipe, precision, self.compile),
        }
        most, flops = peak(name, precision), image_flops(recipe, precision, CUDA)
        print(f"train_step: {name}, {precision}, batch {self.batch}, ViT-S/16, 2 × 224 + 10 × 96, K = 65,536")
        for way, result in results.items():
            speed = result["images_per_second"]
            share = f", {speed * flops / most:.1%} of the peak" if most else ""
            print(f"  {way}: {speed:,.0f} images/s{share}, {result['memory'] / 2**30:.1f} GiB")
        print(f"  {results['step from JPEGs']['data_wait']:.0%} of the time from JPEGs is waiting for images")
        step, reference, _ = (result["images_per_second"] for result in results.values())
        print(f"  {step / reference:.2f} times the official grouping", *PUBLISHED, sep="\n  ")
        if self.json:
            facts = {"device": name, "precision": precision, "flops": flops, "peak": most} | results
            ratio = {"name": "train_step --device cuda", "batch": self.batch, "ratio": step / reference}
            write_json(self.json, ratio | facts)


def time_step(step: Callable[[Crops], object], recipe: Recipe) -> Figures:
    """Time steps on crops that are on the device; memory is its peak in bytes."""
    crops = data.random_crops(recipe, CUDA)

    def steps() -> None:
        for _ in range(10):
            step(crops)
        torch.cuda.synchronize()

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    seconds, _ = median_seconds(steps, lambda: None)
    memory = torch.cuda.max_memory_allocated()
    return {"images_per_second": 10 * recipe.batch_size / seconds, "memory": memory}


def image_flops(recipe: Recipe, precision: ComputePrecision, device: torch.device) -> float:
    """Count the floating-point operations of a step for each image; a product and a sum are two."""
    step, crops = OurStep(recipe, precision, device), data.random_crops(recipe, device)
    with FlopCounterMode(display=False) as counter:
        step.begin(crops)
    return float(counter.get_total_flops() / recipe.batch_size)


def time_training(recipe: Recipe, precision: ComputePrecision, compile: bool) -> Figures:
    """Time a training from JPEGs: medians of its log; data wait is the share of a step."""
    data.draw()
    package_images = open_images(data.FOLDER)
    images = package_images.subset(i % len(package_images) for i in range(60 * recipe.batch_size))
    workers = default_workers(CUDA)
    session = Session(recipe, images, device=CUDA, precision=precision, workers=workers, compile=compile)
    torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        run, begun = Run(Path(folder) / "run"), time.monotonic()
        late = Callbacks(interrupted=lambda: time.monotonic() - begun > SECONDS)
        session.train(run, callbacks=late)
        lines = run.lines()[10:]
    medians = {name: median(line[name] for line in lines) for name in ("images_per_second", "data_wait")}
    return medians | {"memory": torch.cuda.max_memory_allocated()}


if __name__ == "__main__":
    tyro.cli(TrainStep).run()
