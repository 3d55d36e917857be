"""Speed and cost of networks on this machine: Table 1 of the paper."""

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from timm.models.vision_transformer import Attention
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dino_model import files
from dino_model.device import ComputePrecision, autocast, choose_device
from dino_model.weights import load_model
from training.evaluation import paper
from training.evaluation.options import TABLE_1_NETWORKS, Throughput
from training.evaluation.run import Metrics


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
    """Peak bytes of a forward pass on CUDA above those before it; None on other devices."""
    precision: ComputePrecision
    batch: int
    size: int

    def __str__(self) -> str:
        memory = "" if self.memory is None else f", {self.memory / 1e6:,.0f} MB"
        tokens = f", {self.tokens} tokens" if self.tokens else ""
        return (
            f"{self.precision}: {self.images_per_second:.1f} images/s, {self.parameters / 1e6:.1f} M"
            f" parameters, {self.flops / 1e9:.1f} GFLOP{tokens}{memory}"
        )


@torch.no_grad()
def measure(
    backbone: nn.Module, options: Throughput, precision: ComputePrecision, device: torch.device
) -> ThroughputResult:
    """Forward a batch of random images `repeats` times, after one pass that is not timed."""
    backbone.to(device).eval()
    size, batch = options.size, options.batch
    images = torch.randn(batch, 3, size, size, device=device)

    def forward() -> None:
        with autocast(precision, device):
            backbone(images)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    forward()
    memory, seconds = None, []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    for _ in range(options.repeats):
        start = time.perf_counter()
        forward()
        seconds.append(time.perf_counter() - start)
    if device.type == "cuda":
        memory = torch.cuda.max_memory_allocated(device) - before
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
    fused = [module for module in backbone.modules() if isinstance(module, Attention) and module.fused_attn]
    counter = FlopCounterMode(display=False)
    try:
        for module in fused:
            module.fused_attn = False
        with counter:
            backbone(torch.zeros(1, 3, size, size, device=device))
    finally:
        for module in fused:
            module.fused_attn = True
    return float(counter.get_total_flops())


def evaluate(options: Throughput) -> None:
    """Run `evaluate throughput`."""
    files.make_room(options.json)
    device = choose_device(options.device)
    description = f"{options.batch} random images of {options.size} pixels per forward pass, on {device}"
    print(description)
    results: list[Metrics] = []
    for name in options.models:
        print(name, flush=True)
        for precision in options.precisions:
            result = measure(load_model(name).backbone, options, precision, device)
            print(f"  {result}", flush=True)
            results.append({"model": name, "metrics": asdict(result)})
        for row in paper.published():
            is_speed = row["table"] == "1" and "images" in row["measure"]
            if is_speed and row["architecture"] == TABLE_1_NETWORKS.get(name):
                print(f"  paper: {paper.describe(row)}")
    if options.json:
        protocol = {"description": description}
        files.write_json(options.json, {"name": "throughput", "protocol": protocol, "results": results})
