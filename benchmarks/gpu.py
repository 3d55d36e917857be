"""A DINO step on a CUDA device, measured: images/s and memory of this project and of the official grouping.

python -m benchmarks.gpu [--models ViT-S/16] [--seconds 240] [--json FILE]

Crops lie on the device. With "augmentation" they are made there from canvases in pinned memory. The official
grouping passes crops of one size together, in the same precision. `benchmarks.plan` computes the same table.
"""

import gc
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from benchmarks import data
from benchmarks.plan import IMAGES, MODELS
from benchmarks.steps import OurStep, PlainStep
from dino_model.data.collection import open_images
from dino_model.runtime.files import write_json
from training.augmentation.crop_config import CropConfig
from training.augmentation.crops import Crops, MultiCrop, normalize
from training.commands.pretrain import default_workers
from training.methods.dino_config import DINOConfig
from training.one_pass import Packing, attend_groups, attend_varlen, pack
from training.recipes.recipe import OptimizerConfig, Recipe
from training.run.folder import Run
from training.session import Session
from training.train import Callbacks

CUDA = torch.device("cuda")
WARM_UP, BURST, TURNS = 5, 3, 3
"""Steps before the measurement, steps whose launching is timed, and timed turns."""
TURN_SECONDS = 1.0
"""Duration of a turn."""
JPEG_SECONDS = 60.0
"""Duration of the training from JPEGs."""
Step = Callable[[], object]
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """DINO with 2 × 224 + 8 × 96, K = 65,536, bf16, on the first CUDA device."""

    models: tuple[str, ...] = ("ViT-S/16", "ViT-B/16", "ViT-S/8", "ViT-B/8")
    """Networks, of `benchmarks.plan.MODELS`."""
    ways: tuple[str, ...] = ()
    """Ways to measure, of `benchmarks.gpu.WAYS`; default: all."""
    batch: int = IMAGES
    """Images of a step; halved until they fit the memory."""
    seconds: float = 240.0
    """Time after which no measurement starts."""
    attention: bool = False
    """Compare ways of attention over packed tokens."""
    jpegs: bool = False
    """Train the first model from JPEGs, too, for `JPEG_SECONDS`."""
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
            for way in self.ways or WAYS:
                if time.monotonic() > end:
                    skipped.append(f"{model}, {way}")
                    continue
                rows.append({"model": model, "way": way, **self.measure(model, way)})
                print(line(rows[-1]), flush=True)
                self.write(facts | {"rows": rows, "skipped": skipped})
        results: Row = facts | {"rows": rows, "skipped": skipped}
        print(*(f"not measured, the time was over: {name}" for name in skipped), sep="\n", flush=True)
        if self.jpegs:
            results["jpegs"] = train_from_jpegs(recipe_of(self.models[0], self.batch))
        if self.attention:
            results["attention"] = [row for model in self.models for row in time_attention(model, self.batch)]
        if self.profile:
            results["profile"] = print_profile(recipe_of(self.models[0], self.batch))
        self.write(results)

    def write(self, results: Row) -> None:
        """Write the results so far."""
        if self.json:
            write_json(self.json, results)

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


def package(recipe: Recipe, **options: bool) -> Step:
    """The step of this project."""
    step, crops = OurStep(recipe, "bf16", CUDA, **options), data.random_crops(recipe, CUDA)
    return lambda: step.begin(crops)


def augmented(recipe: Recipe, **options: bool) -> Step:
    """The step of this project with its augmentation, from 8 batches of canvases in pinned memory."""
    step, multi_crop, config = OurStep(recipe, "bf16", CUDA, **options), MultiCrop(recipe.crops), recipe.crops
    side, batches = config.canvas_size, list[Any]()
    for number in range(8):
        torch.manual_seed(number)
        canvas = torch.randint(256, (1, recipe.batch_size, 3, side, side), dtype=torch.uint8).pin_memory()
        params = [multi_crop.random_params(canvas[0, 0]) for _ in range(recipe.batch_size)]
        plan = multi_crop.plan(Crops(*(torch.stack(group, dim=1) for group in zip(*params, strict=True))))
        assert plan is not None
        batches.append((canvas, plan._replace(table=plan.table.pin_memory())))
    stream = torch.cuda.Stream()

    def compute() -> object:
        canvas, plan = batches[step.steps % len(batches)]
        with torch.cuda.stream(stream):  # as `Session.prefetch`
            views = canvas.to(CUDA, non_blocking=True)
            done = multi_crop.finish(Crops(views, views[:0]), plan)
            crops = normalize(done, recipe.mean, recipe.std, CUDA)
        torch.cuda.current_stream().wait_stream(stream)
        for tensor in crops:
            tensor.record_stream(torch.cuda.current_stream())
        return step.begin(crops)

    return compute


def official(recipe: Recipe, *, fused: bool) -> Step:
    """The step with the official grouping of crops."""
    step, crops = PlainStep(recipe, "bf16", CUDA, grouped=True, fused=fused), data.random_crops(recipe, CUDA)
    return lambda: step(crops)


WAYS: dict[str, Callable[[Recipe], Step]] = {
    "package": package,
    "package, augmentation": augmented,
    "official grouping": lambda recipe: official(recipe, fused=False),
    "official grouping, timm's fused attention": lambda recipe: official(recipe, fused=True),
    "package, checkpoint activations": lambda recipe: package(recipe, checkpoint_activations=True),
    "package, compile": lambda recipe: package(recipe, compile=True),
    "package, CUDA graph": lambda recipe: package(recipe, cuda_graph=True),
    "package, CUDA graph, augmentation": lambda recipe: augmented(recipe, cuda_graph=True),
    "package, CUDA graph, compile": lambda recipe: package(recipe, cuda_graph=True, compile=True),
    "package, CUDA graph, compile, augmentation": lambda recipe: augmented(
        recipe, cuda_graph=True, compile=True
    ),
    "package, compile, checkpoint activations": lambda recipe: package(
        recipe, compile=True, checkpoint_activations=True
    ),
}


def try_step(recipe: Recipe, way: str) -> Row | None:
    """Time the steps of one way; None: the memory does not suffice. Other errors become a row."""
    torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    try:
        step = WAYS[way](recipe)
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
        "operations": count_kernels(step),
    }


def train_from_jpegs(recipe: Recipe) -> Row:
    """Train from JPEGs of 500 × 375 pixels: medians of the log; data wait is the share of a step."""
    data.draw()
    drawn = open_images(data.FOLDER)
    images = drawn.subset(i % len(drawn) for i in range(60 * recipe.batch_size))
    session = Session(recipe, images, device=CUDA, precision="bf16", workers=default_workers(CUDA))
    with tempfile.TemporaryDirectory() as folder:
        run, begun = Run(Path(folder) / "run"), time.monotonic()
        session.train(run, callbacks=Callbacks(interrupted=lambda: time.monotonic() - begun > JPEG_SECONDS))
        lines = run.lines()[10:]
    row = {name: median(line[name] for line in lines) for name in ("images_per_second", "data_wait")}
    print("from JPEGs", *(f"{name} {value:.3g}" for name, value in row.items()), sep=" · ", flush=True)
    return row


def count_kernels(step: Step) -> int:
    """Count the kernels, copies and fills that a step launches."""
    return sum(event.count for event in kernels(step))


def kernels(step: Step) -> list[Any]:
    """Profile a step: kernels with count and time, the longest first."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        torch.cuda.synchronize()
    found = [event for event in profile.key_averages() if event.self_device_time_total > 0]
    return sorted(found, key=lambda event: -event.self_device_time_total)


def print_profile(recipe: Recipe, most: int = 45) -> list[Row]:
    """Print the longest kernels of a step with its augmentation."""
    step = augmented(recipe)
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    events = kernels(step)
    total = sum(event.self_device_time_total for event in events)
    print(f"kernels of a step with augmentation: {total / 1000:.2f} ms of device time in total")
    for event in events[:most]:
        print(f"{event.self_device_time_total / 1000:8.3f} ms {event.count:5d} × {event.key[:110]}")
    return [
        {"kernel": event.key, "count": event.count, "microseconds": event.self_device_time_total}
        for event in events
    ]


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


def time_attention(model: str, batch: int) -> list[Row]:
    """Time attention within crops of two sizes in one sequence, forward and with the backward pass."""
    config = MODELS[model]
    width, _, heads = config.vit_shape()
    lengths = [(side // config.patch_size) ** 2 + 1 for side in (224, 96)]
    packing = pack(((2 * batch, lengths[0]), (8 * batch, lengths[1])), CUDA)
    generator = torch.Generator(CUDA).manual_seed(0)
    tokens = len(packing.images)
    packed = torch.randn(tokens, 3, heads, width // heads, generator=generator, device=CUDA).bfloat16()
    packed.requires_grad_()
    gradient = torch.randn(tokens, heads, width // heads, generator=generator, device=CUDA).bfloat16()
    ways: dict[str, Callable[[Tensor, Packing], Tensor]] = {
        "a call for each size": attend_groups,
        "varlen": attend_varlen,
        "jagged": attend_jagged,
    }
    rows, expected = list[Row](), attend_groups(packed, packing).detach()
    for way, function in ways.items():
        attend = partial(function, packed, packing)
        row: Row = {"model": model, "way": way}
        try:
            row["difference"] = float((attend().detach() - expected).abs().max())
            row["forward"] = microseconds(torch.no_grad()(attend))
            row["both"] = microseconds(partial(backward, attend, gradient))
            packed.grad = None
        except Exception as error:  # a way that this version of PyTorch lacks
            row["error"] = f"{type(error).__name__}: {error}"
        print("attention", *(f"{name} {value}" for name, value in row.items()), sep=" · ", flush=True)
        rows.append(row)
    return rows


def backward(attend: Callable[[], Tensor], gradient: Tensor) -> None:
    """Compute attention and its gradient."""
    attend().backward(gradient)


def attend_jagged(heads: Tensor, packing: Packing) -> Tensor:
    """Attention of nested tensors, as `attend_varlen`."""
    longest, offsets = max(length for _, length in packing.shapes), packing.offsets.long()
    nested = (
        torch.nested.nested_tensor_from_jagged(part, offsets, min_seqlen=1, max_seqlen=longest)
        for part in heads.unbind(1)
    )
    query, key, value = (part.transpose(1, 2) for part in nested)
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).values()


def microseconds(compute: Step, repeats: int = 20) -> float:
    """Median time of the device for a computation."""
    for _ in range(3):
        compute()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        compute()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end))
    return median(times)


if __name__ == "__main__":
    tyro.cli(Gpu).run()
