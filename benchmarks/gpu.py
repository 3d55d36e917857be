"""A DINO step on a CUDA device, measured: images/s and memory of this project and of the official grouping.

python -m benchmarks.gpu [--models ViT-S/16] [--seconds 240] [--json FILE]

Crops are on the device. With "augmentation" they are made there from images in pinned memory. The official
grouping passes crops of one size together, in the same precision. `benchmarks.plan` computes the same table.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

import torch
import tyro

from benchmarks import data
from benchmarks.plan import IMAGES, MODELS
from benchmarks.steps import OurStep, PlainStep
from dino_model.runtime.files import write_json
from training.augmentation.crop_config import CropConfig
from training.methods.dino_config import DINOConfig
from training.recipes.recipe import OptimizerConfig, Recipe

CUDA = torch.device("cuda")
WARM_UP, BURST, TURNS = 5, 3, 3
"""Steps before the measurement, steps whose launching is timed, and timed turns."""
TURN_SECONDS = 1.0
"""Duration of a turn."""
Step = Callable[[], object]
Row = dict[str, Any]
Way = Literal[
    "package",
    "package, augmentation",
    "official grouping",
    "official grouping, timm's fused attention",
    "package, checkpoint activations",
    "package, compile",
    "package, CUDA graph",
    "package, CUDA graph, augmentation",
    "package, CUDA graph, compile",
    "package, CUDA graph, compile, augmentation",
    "package, compile, checkpoint activations",
]


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """DINO with 2 × 224 + 8 × 96, K = 65,536, bf16, on the first CUDA device."""

    models: tuple[str, ...] = ("ViT-S/16", "ViT-B/16", "ViT-S/8", "ViT-B/8")
    """Networks, of `benchmarks.plan.MODELS`."""
    ways: tuple[Way, ...] = get_args(Way)
    """Ways to measure."""
    batch: int = IMAGES
    """Images of a step; halved until they fit the memory."""
    seconds: float = 240.0
    """Time after which no measurement starts."""
    profile: bool = False
    """Print the kernels that take longest, of the first model."""
    json: Path | None = None
    """Write the results to this file, after every row."""

    def run(self) -> None:
        """Measure, print a table in Markdown, write the file."""
        if not torch.cuda.is_available():
            print("gpu: skipped, there is no CUDA device")
            return
        end, rows, skipped = time.monotonic() + self.seconds, list[Row](), list[str]()
        facts = {
            "name": "gpu",
            "device": torch.cuda.get_device_name(CUDA),
            "torch": torch.__version__,
            "precision": "bf16",
        }
        print(" · ".join(facts.values()), "2 × 224 + 8 × 96, K = 65,536", sep=" · ")
        print("| network | way | batch | images/s | peak GiB | step ms | launching ms | operations |")
        print("|---" * 8 + "|", flush=True)
        for model in self.models:
            for way in self.ways:
                if time.monotonic() > end:
                    skipped.append(f"{model}, {way}")
                else:
                    rows.append({"model": model, "way": way, **self.measure(model, way)})
                    print(line(rows[-1]), flush=True)
                if self.json:
                    write_json(self.json, facts | {"rows": rows, "skipped": skipped})
        print(*(f"not measured, the time was over: {name}" for name in skipped), sep="\n", flush=True)
        if self.profile:
            print_profile(recipe_of(self.models[0], self.batch))

    def measure(self, model: str, way: str) -> Row:
        """Measure one way with the largest batch that fits."""
        batch = self.batch
        while batch:
            row = try_step(recipe_of(model, batch), way)
            gc.collect()
            torch.cuda.empty_cache()
            if row is not None:
                return {"batch": batch, **row}
            batch //= 2
        return {"batch": 0, "error": "out of memory with one image"}


def recipe_of(model: str, batch: int) -> Recipe:
    """Recipe of a step with full learning rate and trained prototypes: the most expensive kind."""
    optimizer = OptimizerConfig(warmup_epochs=0)
    method = DINOConfig(freeze_last_layer_epochs=0)
    return Recipe(MODELS[model], method, CropConfig(augment="device"), optimizer, epochs=1, batch_size=batch)


def build_step(recipe: Recipe, way: str) -> Step:
    """Build the step of one of the ways. Its crops are on the device, or made there from 8 batches."""
    side, *rest = way.split(", ")
    if side == "official grouping":
        plain = PlainStep(recipe, "bf16", CUDA, grouped=True, fused=bool(rest))
        return partial(plain, data.random_crops(recipe, CUDA))
    options = {name.lower().replace(" ", "_"): True for name in rest if name != "augmentation"}
    step = OurStep(recipe, "bf16", CUDA, **options)
    if "augmentation" not in rest:
        return partial(step.begin, data.random_crops(recipe, CUDA))
    batches = cycle([*islice(step.session.batches(), 8)])
    return lambda: step.update(step.session.prefetch(next(batches)))


def try_step(recipe: Recipe, way: str) -> Row | None:
    """Time the steps of one way; None: the memory does not suffice. Other errors become a row."""
    torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    try:
        step = build_step(recipe, way)
        for _ in range(WARM_UP):
            step()
        torch.cuda.synchronize()
        start = time.perf_counter() - begun
        return {"start_seconds": start, **time_steps(step, recipe.batch_size)}
    except torch.OutOfMemoryError:
        return None
    except Exception as error:  # the other rows are still wanted
        return {"error": f"{type(error).__name__}: {error}"}


def time_steps(step: Step, batch: int) -> Row:
    """Time the steps, and the host's launching of a few that the device has not computed yet."""
    torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    for _ in range(BURST):
        step()
    launching = (time.perf_counter() - begun) / BURST
    torch.cuda.synchronize()
    count = max(2, round(TURN_SECONDS * BURST / (time.perf_counter() - begun)))
    seconds = []
    for _ in range(TURNS):
        begun = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - begun) / count)
    return {
        "images_per_second": batch / median(seconds),
        "seconds": seconds,
        "launching": launching,
        "memory": torch.cuda.max_memory_allocated(),
        "operations": sum(event.count for event in kernels(step)),
    }


def kernels(step: Step) -> list[Any]:
    """Profile a step: kernels with count and time, the longest first."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        torch.cuda.synchronize()
    found = [event for event in profile.key_averages() if event.self_device_time_total > 0]
    return sorted(found, key=lambda event: -event.self_device_time_total)


def print_profile(recipe: Recipe, most: int = 45) -> None:
    """Print the longest kernels of a step with its augmentation."""
    step = build_step(recipe, "package, augmentation")
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    events = kernels(step)
    total = sum(event.self_device_time_total for event in events)
    print(f"kernels of a step with augmentation: {total / 1000:.2f} ms of device time in total")
    for event in events[:most]:
        print(f"{event.self_device_time_total / 1000:8.3f} ms {event.count:5d} × {event.key[:110]}")


def line(row: Row) -> str:
    """Row of the printed table."""
    if "error" in row:
        return f"| {row['model']} | {row['way']} | {row['batch']} | {row['error'][:300]} |"
    cells = (
        row["model"],
        row["way"],
        row["batch"],
        f"{row['images_per_second']:,.0f}",
        f"{row['memory'] / 2**30:.2f}",
        f"{1000 * median(row['seconds']):.1f}",
        f"{1000 * row['launching']:.1f}",
        row["operations"],
    )
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    tyro.cli(Gpu).run()
