"""On a CUDA device: a step of ViT-S/16 (2 × 224 + 8 × 96, K = 65,536) against the plain eager step in fp16.

python -m benchmarks.gpu [--batch 256] [--json FILE]

Without such a device it says so and ends. It needs no network, and less than 8 minutes.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import tyro

from benchmarks import data, train_step
from dino_model import files
from dino_model.backbones import BackboneConfig
from dino_model.device import choose_precision
from dino_model.head import HeadConfig
from dino_model.images import open_images
from training.crop_config import CropConfig
from training.crops import Crops
from training.loop import Watch
from training.methods.dino import DINOConfig
from training.recipes import OptimizerConfig, Recipe
from training.run import Run
from training.session import Session
from training.utilisation import peak, picture_flops

RECIPE = Recipe(
    BackboneConfig("vit_small", 16, drop_path=0.1),
    DINOConfig(HeadConfig(prototypes=65_536), freeze_last_layer_epochs=0),
    CropConfig(local_crops=8, augment="device"),
    OptimizerConfig(warmup_epochs=0),
    epochs=1,
    batch_size=256,
)
SECONDS = 30.0
"""That each way is timed for at least, after three steps that are not."""


@dataclass(frozen=True)
class Gpu:
    """Images/s, utilisation and memory: from crops on the device, and from JPEGs to the weights."""

    batch: int = 256
    """Pictures of a step."""
    compile: bool = False
    """With torch.compile of every block."""
    workers: int = max(1, (os.cpu_count() or 2) - 1)
    """Processes that decode and cut."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Measure, print."""
        if not torch.cuda.is_available():
            print("gpu: skipped, there is no CUDA device here")
            return
        device, recipe = torch.device("cuda"), replace(RECIPE, batch_size=self.batch)
        name, precision = torch.cuda.get_device_name(device), choose_precision("auto", device)
        precision = "fp16" if precision == "fp32" else precision  # an older device
        found = {
            "ours": self.timed(train_step.OurStep(precision, device, recipe, self.compile).begin, recipe),
            "plain": self.timed(
                train_step.PlainStep({"grouped", "precision"}, "fp16", device, recipe), recipe
            ),
            "from JPEGs": self.end_to_end(recipe, device),
        }
        most, flops = peak(name, precision), picture_flops(recipe)
        for way, (pace, memory) in found.items():
            share = f", {pace * flops / most:.1%} of the peak" if most else ""
            print(f"gpu: {way} {pace:,.0f} images/s, {memory / 2**30:.1f} GiB{share}")
        ratio = found["ours"][0] / found["plain"][0]
        print(
            f"  {ratio:.2f} times the plain; {name}, {precision}, batch {self.batch}, {self.workers} workers"
        )
        if self.json:
            figures = {
                "name": "gpu",
                "device": name,
                "precision": precision,
                "batch": self.batch,
                "ratio": ratio,
            }
            rates = {
                way: {"images_per_second": pace, "memory": memory} for way, (pace, memory) in found.items()
            }
            told = {"unit": "images/s", "flops": flops, "peak": most, "workers": self.workers}
            files.write_json(self.json, figures | told | rates)

    def timed(self, step: Callable[[Crops], object], recipe: Recipe) -> tuple[float, int]:
        """Images/s and the most memory of one step after the other."""
        crops = train_step.random_crops(recipe, torch.device("cuda"))
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(3):
            step(crops)
        torch.cuda.synchronize()
        begun, steps = time.perf_counter(), 0
        while (seconds := time.perf_counter() - begun) < SECONDS:
            for _ in range(5):
                step(crops)
            torch.cuda.synchronize()
            steps += 5
        return steps * self.batch / seconds, torch.cuda.max_memory_allocated()

    def end_to_end(self, recipe: Recipe, device: torch.device) -> tuple[float, int]:
        """Of a training from JPEGs: the middle of what its log tells, and the most memory."""
        data.draw()
        one = open_images(data.FOLDER)
        images = one.subset(i % len(one) for i in range(60 * self.batch))
        precision = choose_precision("auto", device)
        session = Session(
            recipe,
            images,
            device=device,
            precision="fp16" if precision == "fp32" else precision,
            workers=self.workers,
            compile=self.compile,
        )
        torch.cuda.reset_peak_memory_stats()
        with tempfile.TemporaryDirectory() as folder:
            run, begun = Run(Path(folder) / "run"), time.monotonic()
            late = Watch(save_every=10**9, interrupted=lambda: time.monotonic() - begun > 4 * SECONDS)
            session.train(run, watch=late)
            paces = sorted(line["images_per_second"] for line in run.lines()[10:])
        return paces[len(paces) // 2], torch.cuda.max_memory_allocated()


if __name__ == "__main__":
    tyro.cli(Gpu).run()
