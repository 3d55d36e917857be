"""Speed and cost of networks on this machine: Table 1 of the paper."""

import statistics
import time
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dino_model.models.load import load_model
from dino_model.runtime import files
from dino_model.runtime.device import ComputePrecision, autocast, choose_device
from dino_model.runtime.errors import pluralize
from training.evaluation import paper
from training.evaluation.options import TABLE_1_NETWORKS, Throughput
from training.evaluation.run import Metrics

PRECISIONS: tuple[ComputePrecision, ...] = ("fp32", "bf16")
REPEATS = 3


@torch.no_grad()
def measure(
    backbone: nn.Module, options: Throughput, precision: ComputePrecision, device: torch.device
) -> Metrics:
    """Measure forward passes of a batch of random images, `REPEATS` times after one untimed pass.

    Returns:
        `images_per_second`: median of the repeats. `parameters`: number in the backbone. `flops`: matrix
        products and convolutions of one image; a multiplication and an addition are two. `tokens`: number per
        image, None without blocks. `memory`: on CUDA, peak bytes of a pass above those before it.
    """
    backbone.to(device).eval()
    size, cuda = options.size, device.type == "cuda"
    images = torch.randn(options.batch, 3, size, size, device=device)

    def forward() -> float:
        start = time.perf_counter()
        with autocast(precision, device):
            backbone(images)
        if cuda:
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    forward()
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    seconds = statistics.median(forward() for _ in range(REPEATS))
    memory = torch.cuda.max_memory_allocated(device) - before if cuda else None
    with FlopCounterMode(display=False) as counter:
        backbone(images[:1])
    vit: Any = backbone
    has_blocks = hasattr(backbone, "blocks")
    tokens = vit.num_prefix_tokens + (size // vit.patch_embed.patch_size[0]) ** 2 if has_blocks else None
    return {
        "images_per_second": options.batch / seconds,
        "parameters": sum(parameter.numel() for parameter in backbone.parameters()),
        "flops": float(counter.get_total_flops()),
        "tokens": tokens,
        "memory": memory,
        "precision": precision,
        "batch": options.batch,
        "size": size,
    }


def evaluate(options: Throughput) -> None:
    """Run `evaluate throughput`."""
    files.make_room(options.json)
    device = choose_device(options.device)
    description = (
        f"{pluralize(options.batch, 'random image')} of {options.size} pixels per forward pass, on {device}"
    )
    print(description)
    results: list[Metrics] = []
    for name in options.models:
        print(name, flush=True)
        for precision in PRECISIONS:
            metrics = measure(load_model(name).backbone, options, precision, device)
            results.append({"model": name, "metrics": metrics})
            tokens = f", {metrics['tokens']} tokens" if metrics["tokens"] else ""
            memory = "" if metrics["memory"] is None else f", {metrics['memory'] / 1e6:,.0f} MB"
            speed = f"{precision}: {metrics['images_per_second']:.1f} images/s"
            cost = f"{metrics['parameters'] / 1e6:.1f} M parameters, {metrics['flops'] / 1e9:.1f} GFLOP"
            print(f"  {speed}, {cost}{tokens}{memory}", flush=True)
        for row in paper.published_rows():
            is_speed = row["table"] == "1" and "images" in row["measure"]
            if is_speed and row["architecture"] == TABLE_1_NETWORKS.get(name):
                print(f"  paper: {paper.describe(row)}")
    protocol = {"description": description}
    options.save({"name": "throughput", "protocol": protocol, "results": results})
