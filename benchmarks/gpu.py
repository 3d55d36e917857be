"""The training step on a CUDA device; `python -m benchmarks.train_step --device cuda` runs it.

A step of ViT-S/16 (2 × 224 + 10 × 96, K = 65,536) from crops on the device and from JPEGs, next to the
official grouping of crops in fp16. It needs no network and less than 8 minutes.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch

from benchmarks import data, train_step
from benchmarks.flops import peak, picture_flops
from dino_model.collections import open_images
from dino_model.configs import BackboneConfig, HeadConfig
from dino_model.device import choose_precision
from dino_model.files import write_json
from training.commands.pretrain import default_workers
from training.crop_config import CropConfig
from training.crops import Crops
from training.methods.dino_config import DINOConfig
from training.recipe import OptimizerConfig, Recipe
from training.run import Run
from training.session import Session
from training.train import Callbacks

RECIPE = Recipe(
    BackboneConfig("vit_small", 16, drop_path=0.1),
    DINOConfig(HeadConfig(prototypes=65_536), freeze_last_layer_epochs=0),
    CropConfig(local_crops=10),
    OptimizerConfig(warmup_epochs=0),
    epochs=1,
    batch_size=256,
)
SECONDS = 30.0
"""Shortest timed part of each measurement, after three steps that are not timed."""
PUBLISHED = (
    "published, DINO's official code on a V100: 86 to 106 images/s (2 × 224 + 8 or 10 × 96)",
    "published, H200, two views: 871 images/s, the model alone 2,680 images/s",
    "goal: 3 times the official grouping on the same device, 30 % of its peak",
)


@dataclass(frozen=True)
class Speed:
    """Speed and memory of one measurement."""

    images_per_second: float
    memory: int
    """Peak of the device in bytes."""
    data_wait: float | None = None
    """Share of a step that the loop waited for images; None: they were on the device."""


def measure_step(batch: int, compile: bool, file: Path | None) -> None:
    """Print images/s, utilization, memory and data wait; without a CUDA device say so."""
    if not torch.cuda.is_available():
        print("train_step: skipped, there is no CUDA device")
        return
    device, recipe = torch.device("cuda"), replace(RECIPE, batch_size=batch)
    name, precision = torch.cuda.get_device_name(device), choose_precision("auto", device)
    official = train_step.PlainStep(True, "fp16", device, recipe)
    results = {
        "step": time_step(train_step.OurStep(precision, device, recipe, compile).begin, recipe),
        "official grouping, fp16": time_step(official, recipe),
        "step from JPEGs": time_training(recipe, device, compile),
    }
    most, flops = peak(name, precision), picture_flops(recipe)
    print(f"train_step: {name}, {precision}, batch {batch}, ViT-S/16, 2 × 224 + 10 × 96, K = 65,536")
    for way, speed in results.items():
        share = f", {speed.images_per_second * flops / most:.1%} of the peak" if most else ""
        wait = "" if speed.data_wait is None else f", {speed.data_wait:.0%} of the time waiting for images"
        memory = speed.memory / 2**30
        print(f"  {way}: {speed.images_per_second:,.0f} images/s{share}, {memory:.1f} GiB{wait}")
    ratio = results["step"].images_per_second / results["official grouping, fp16"].images_per_second
    print(f"  {ratio:.2f} times the official grouping", *PUBLISHED, sep="\n  ")
    if file:
        rows = {way: vars(speed) for way, speed in results.items()}
        facts = {"device": name, "precision": precision, "batch": batch, "flops": flops, "peak": most}
        write_json(file, {"name": "train_step --device cuda", "ratio": ratio} | facts | rows)


def time_step(step: Callable[[Crops], object], recipe: Recipe) -> Speed:
    """Time one step after the other on crops that are on the device."""
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
    return Speed(steps * recipe.batch_size / seconds, torch.cuda.max_memory_allocated())


def time_training(recipe: Recipe, device: torch.device, compile: bool) -> Speed:
    """Time a training from JPEGs: medians of its log."""
    data.draw()
    photographs = open_images(data.FOLDER)
    images = photographs.subset(i % len(photographs) for i in range(60 * recipe.batch_size))
    precision, workers = choose_precision("auto", device), default_workers(device)
    session = Session(recipe, images, device=device, precision=precision, workers=workers, compile=compile)
    torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        run, begun = Run(Path(folder) / "run"), time.monotonic()
        late = Callbacks(save_every=0, interrupted=lambda: time.monotonic() - begun > 4 * SECONDS)
        session.train(run, callbacks=late)
        lines = run.lines()[10:]
    speed, wait = (median(line[name] for line in lines) for name in ("images_per_second", "data_wait"))
    return Speed(speed, torch.cuda.max_memory_allocated(), wait)
