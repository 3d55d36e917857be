"""Speed and cost of networks on this machine: Table 1 of the paper."""

import ctypes
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from timm.models.vision_transformer import Attention
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dino_model import files
from dino_model.device import ComputePrecision, autocast, choose_device
from dino_model.weights import load_model
from training.evaluation.options import TABLE_1_NETWORKS, Throughput
from training.evaluation.paper import published
from training.evaluation.report import read_results
from training.evaluation.run import Metrics

_PROCESS = Path("/proc/self")  # Linux reports and resets a process's peak memory here


@dataclass(frozen=True)
class ThroughputResult:
    """Speed and cost of one network."""

    images_per_second: float
    """Median of the repeats."""
    parameters: int
    """Of the backbone, without a head."""
    flops: float
    """Of one image; a multiplication and an addition are two."""
    tokens: int | None
    """Of one image; None without blocks."""
    memory: int | None
    """Peak bytes of a forward pass above those before it; None where the system does not report them."""
    precision: ComputePrecision
    batch: int
    size: int

    def __str__(self) -> str:
        memory = "unknown" if self.memory is None else f"{self.memory / 1e6:,.0f} MB"
        tokens = f"{self.tokens} tokens, " if self.tokens else ""
        return (
            f"{self.precision}: {self.images_per_second:.1f} images/s, {self.parameters / 1e6:.1f} M"
            f" parameters, {self.flops / 1e9:.1f} GFLOP, {tokens}{memory} for {self.batch} of {self.size} px"
        )


@torch.no_grad()
def measure(
    backbone: nn.Module,
    *,
    size: int,
    batch: int,
    precision: ComputePrecision,
    device: torch.device,
    repeats: int,
) -> ThroughputResult:
    """Forward `batch` random images of `size` pixels `repeats` times, after one pass that is not timed.

    The backbone is put into evaluation mode. The paper uses batches of 128.
    """
    backbone.to(device).eval()
    images = torch.randn(batch, 3, size, size, device=device)

    def forward() -> None:
        with autocast(precision, device):
            backbone(images)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    forward()
    memory = _peak_memory(device, forward)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        forward()
        seconds.append(time.perf_counter() - start)
    vit: Any = backbone
    tokens = None
    if hasattr(backbone, "blocks"):
        tokens = vit.num_prefix_tokens + (size // vit.patch_embed.patch_size[0]) ** 2
    parameters = sum(parameter.numel() for parameter in backbone.parameters())
    speed, flops = batch / statistics.median(seconds), count_flops(backbone, size, device)
    return ThroughputResult(speed, parameters, flops, tokens, memory, precision, batch, size)


@torch.no_grad()
def count_flops(backbone: nn.Module, size: int, device: torch.device) -> float:
    """Count matrix products and convolutions of one image; fused attention is unfused so that it counts."""
    attentions = [module for module in backbone.modules() if isinstance(module, Attention)]
    before = [module.fused_attn for module in attentions]
    counter = FlopCounterMode(display=False)
    try:
        for module in attentions:
            module.fused_attn = False
        with counter:
            backbone(torch.zeros(1, 3, size, size, device=device))
    finally:
        for module, fused in zip(attentions, before, strict=True):
            module.fused_attn = fused
    return float(counter.get_total_flops())


def _peak_memory(device: torch.device, forward: Callable[[], None]) -> int | None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        forward()
        return torch.cuda.max_memory_allocated(device) - before
    if device.type != "cpu" or not (_PROCESS / "clear_refs").exists():
        return None
    with suppress(AttributeError):  # other systems' C libraries keep nothing
        ctypes.CDLL(None).malloc_trim(0)  # freed but cached memory would count as in use already
    (_PROCESS / "clear_refs").write_text("5")  # resets the peak to the current value
    before = _status_bytes("VmRSS")
    forward()
    return max(0, _status_bytes("VmHWM") - before)


def _status_bytes(field: str) -> int:
    lines = (_PROCESS / "status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)[field].split()[0]) * 1024


def evaluate(options: Throughput) -> None:
    """Run `evaluate throughput`."""
    files.make_room(options.json)
    device = choose_device(options.device)
    description = f"{options.batch} random images of {options.size} pixels per forward pass, on {device}"
    print(description)
    results = _earlier_results(options.json, description)
    protocol = {"description": description, "own_data": True}
    done = {(row["model"], row["metrics"]["precision"]) for row in results}
    for name in options.models:
        print(name, flush=True)
        missing = [precision for precision in options.precisions if (name, precision) not in done]
        for precision in missing:
            settings = {"size": options.size, "batch": options.batch, "repeats": options.repeats}
            result = measure(load_model(name).backbone, precision=precision, device=device, **settings)
            print(f"  {result}", flush=True)
            results.append({"model": name, "metrics": asdict(result)})
            if options.json:
                content = {"name": "throughput", "protocol": protocol, "results": results}
                files.write_json(options.json, content)
        for value in published():
            is_speed = value.table == "1" and "images" in value.measure
            if is_speed and value.architecture == TABLE_1_NETWORKS.get(name):
                print(f"  paper: {value.value:g} {value.measure}, {value.where}")


def _earlier_results(file: Path | None, description: str) -> list[Metrics]:
    """Return the results of an interrupted command."""
    if file is None or not file.exists():
        return []
    found = read_results(file)
    if found.name != "throughput" or found.protocol.get("description") != description:
        raise ValueError(f"{file} holds {found.name} of another protocol: choose another file.")
    return [dict(row) for row in found.results]
