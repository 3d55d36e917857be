"""Work on the fake CUDA device. Each function runs in its process and returns its counts."""

import runpy
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _get_current_dispatch_mode

from benchmarks.fake_cuda.device import FakeDevice
from dino_model.data.collection import open_images
from dino_model.inference.predictor import AttentionPredictor
from dino_model.models.backbones import BackboneConfig, create_backbone
from segmentation.tracking import propagate_masks
from tests.training.runs import RECIPE, noise
from training.augmentation.crop_config import CropConfig
from training.evaluation.options import Throughput
from training.evaluation.throughput import measure
from training.methods.dino_config import DINOConfig
from training.recipes.recipe import OptimizerConfig, Recipe
from training.run.folder import Run, SaveSchedule
from training.run.monitor import Probe
from training.session import Session
from training.train import Callbacks

OFFICIAL = Recipe(
    BackboneConfig("vit_small", 16, drop_path=0.1),
    DINOConfig(freeze_last_layer_epochs=0),
    CropConfig(),
    OptimizerConfig(warmup_epochs=0),
    epochs=1,
    batch_size=64,
)
"""ViT-S/16 with 2 × 224 + 8 × 96 and K = 65,536, on 64 images."""
SMALL = replace(RECIPE, optimizer=OptimizerConfig(warmup_epochs=0), batch_size=4)
STEPS = 3
"""Steps of `train`."""


class Counts(NamedTuple):
    """Counts of a device since its last reset."""

    operations: int
    traffic: int
    """Bytes read and written."""
    peak: int
    """Bytes."""
    waits: dict[str, int]
    pageable: dict[str, int]
    """Copies from pageable memory."""
    errors: dict[str, int]
    collectives: int
    """Exchanges among ranks that the host waits for."""
    names: dict[str, int]
    """Operations by name."""

    @classmethod
    def of(cls, device: FakeDevice) -> "Counts":
        """Take the counts since the last `reset`."""
        uploads = {line: count for line, count in device.uploads.items() if line.startswith("pageable")}
        return cls(
            device.operations.total(),
            device.traffic.total(),
            device.peak,
            dict(device.waits),
            uploads,
            dict(device.errors),
            device.host_collectives,
            dict(device.operations),
        )


@cache
def images(many: int, height: int = 40, width: int = 48) -> Any:
    """Images of noise in two classes, in a folder of their own."""
    return open_images(noise(Path(tempfile.mkdtemp()), many, 2, height, width))


def train(
    recipe: Recipe, precision: str = "bf16", options: dict[str, Any] | None = None, *, ranks: int = 1
) -> list[Counts]:
    """Train three steps with checkpoints; return the counts of every step, and of the end after them.

    Of several ranks this is the first; the others do nothing, and take part in every exchange.
    """
    counts: list[Counts] = []

    def note(device: FakeDevice) -> dict[str, float]:
        counts.append(Counts.of(device))
        device.reset()
        return {}

    group = fake_ranks(ranks) if ranks > 1 else nullcontext()
    with tempfile.TemporaryDirectory() as folder, group, FakeDevice() as device:
        files = images(recipe.batch_size * STEPS)
        session = Session(recipe, files, device="cuda:0", precision=precision, **(options or {}))
        checkpoints = SaveSchedule(save_minutes=0, save_every=2)
        callbacks = Callbacks(checkpoints, eval_hook=lambda step: note(device))
        assert session.train(Run(Path(folder) / "run"), callbacks=callbacks) == STEPS
        note(device)
        again = Session(recipe, files, device="cuda:0", precision=precision, **(options or {}))
        assert again.resume(Run(Path(folder) / "run")) == STEPS
    return counts


def train_as_graph(recipe: Recipe) -> list[Counts]:
    """Like `train`; the second step is recorded, where a copy or a wait is an error, the third repeated."""

    @contextmanager
    def record(graph: Any, **options: str) -> Iterator[None]:
        device = _get_current_dispatch_mode()
        assert isinstance(device, FakeDevice)
        before = [*device.uploads.elements(), *device.waits.elements()]
        yield
        assert [*device.uploads.elements(), *device.waits.elements()] == before
        graph.replay = lambda: device.operations.update(["replay"])

    stub = mock.patch.multiple("torch.cuda", CUDAGraph=SimpleNamespace, graph=record)
    with stub, mock.patch("training.step_graph.WARM_UP", 1):
        return train(recipe, "bf16", {"cuda_graph": True})


def train_from_cache(recipe: Recipe) -> list[Counts]:
    """Like `train`, with the outputs of a teacher that a CPU computed before."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = replace(recipe, method=replace(recipe.method, teacher_cache=folder))
        Session(recipe, images(recipe.batch_size * STEPS), precision="bf16").method.prepare(lambda line: None)
        return train(recipe)


@contextmanager
def fake_ranks(ranks: int) -> Iterator[None]:
    """Be the first of several ranks whose exchanges return what the first one sends.

    DistributedDataParallel reads the addresses of gradients, which fake tensors lack, and is left out.
    """
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        with mock.patch("training.session.data_parallel", lambda method, accumulate: method):
            yield
    finally:
        dist.destroy_process_group()


def two_streams(wait: bool, record: bool) -> dict[str, int]:
    """Write memory on a side stream, read it on the main one, free it; return the errors."""
    with FakeDevice() as device:
        main, side = torch.cuda.current_stream(), torch.cuda.Stream()
        with torch.cuda.stream(side):
            tensor = torch.zeros(3, device="cuda")
        if wait:
            main.wait_stream(side)
        tensor.add_(1)
        if record:
            tensor.record_stream(main)
        del tensor
        return dict(device.errors)


def run_command(package: str, *words: object) -> tuple[dict[str, int], dict[str, int]]:
    """Run `python -m PACKAGE WORDS --device cuda`; return the waits and the copies from pageable memory."""
    command = [package, *map(str, words), "--device", "cuda"]
    save = mock.patch("torch.save", lambda state, path: Path(path).touch())  # fake tensors have no values
    write = mock.patch("training.evaluation.finetune.write_safetensors")
    arguments, end = mock.patch.object(sys, "argv", command), pytest.raises(SystemExit)
    with FakeDevice() as device, arguments, save, write, end as ended:
        runpy.run_module(package, run_name="__main__")
    assert ended.value.code in (0, None), f"exit code {ended.value.code}"
    counts = Counts.of(device)
    assert not counts.errors
    return counts.waits, counts.pageable


def propagate(frames: int) -> tuple[dict[str, int], dict[str, int]]:
    """Propagate the mask of a first frame; return the waits and the copies from pageable memory."""
    video = [np.full((96, 96, 3), 20 * frame, np.uint8) for frame in range(frames)]
    mask = np.zeros((96, 96), np.uint8)
    mask[20:60, 20:60], mask[70:90, 30:80] = 1, 2
    with FakeDevice() as device:
        predictor = AttentionPredictor("random:vit_tiny/16", size=96, resize="davis", device="cuda")
        device.reset()
        assert len(list(propagate_masks(lambda *_: video, {0: mask}, predictor, batch=2))) == frames
    return dict(device.waits), dict(device.uploads)


def probe() -> tuple[dict[str, int], dict[str, int]]:
    """Evaluate a backbone as during training; return the waits and the copies from pageable memory."""
    with FakeDevice() as device:
        backbone = create_backbone(SMALL.backbone).to("cuda")
        found = Probe(images(20), SMALL, "bf16", torch.device("cuda")).evaluate(backbone)
    assert {"knn", "rank", "lift"} <= found.keys()
    return dict(device.waits), dict(device.uploads)


def throughput_memory() -> int:
    """Measure the throughput of a backbone on a device with 700 bytes in use, 1,000 at the peak."""
    names = {"reset_peak_memory_stats": None, "memory_allocated": 700, "max_memory_allocated": 1000}
    stubs = {name: mock.Mock(return_value=value) for name, value in names.items()}
    with FakeDevice(), mock.patch.multiple("torch.cuda", **stubs):
        backbone = create_backbone(SMALL.backbone)
        return measure(backbone, Throughput(size=32, batch=1), "fp32", torch.device("cuda"))["memory"]
