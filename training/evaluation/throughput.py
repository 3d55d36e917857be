"""How fast networks look at pictures, and what they take: Table 1 of the paper, on this machine."""

import ctypes
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from timm.models.vision_transformer import Attention
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dino_model.device import ComputePrecision, autocast

_PROCESS = Path("/proc/self")  # Linux tells and resets a process's peak memory here


@dataclass(frozen=True)
class Throughput:
    """What one network takes for a batch of pictures."""

    images_per_second: float
    """Median of the repeats."""
    parameters: int
    """Of the backbone, without a head."""
    flops: float
    """Of one picture; a multiplication and an addition are two."""
    tokens: int | None
    """That the blocks see of one picture; None without blocks."""
    memory: int | None
    """Peak bytes of a forward above what stood loaded; None where the system does not tell."""
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
) -> Throughput:
    """Forward random pictures, after one forward that is not timed.

    Args:
        backbone: in evaluation mode.
        size: side of the pictures in pixels.
        batch: pictures in a forward; the paper has 128.
        precision: of the computation.
        device: where it runs.
        repeats: timed forwards.

    Raises:
        ValueError: a batch or repeats below 1.
    """
    if batch < 1 or repeats < 1:
        raise ValueError(f"{repeats} forwards of {batch} pictures: both must be at least 1")
    backbone.to(device).eval()
    images = torch.randn(batch, 3, size, size, device=device)

    def forward() -> None:
        with autocast(precision, device):
            backbone(images)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    forward()
    memory = _peak(device, forward)
    seconds = [_seconds(forward) for _ in range(repeats)]
    vit: Any = backbone
    tokens = None
    if hasattr(backbone, "blocks"):
        tokens = vit.num_prefix_tokens + (size // vit.patch_embed.patch_size[0]) ** 2
    return Throughput(
        batch / statistics.median(seconds),
        sum(parameter.numel() for parameter in backbone.parameters()),
        flops(backbone, size, device),
        tokens,
        memory,
        precision,
        batch,
        size,
    )


@torch.no_grad()
def flops(backbone: nn.Module, size: int, device: torch.device) -> float:
    """Of one picture: matrix products and convolutions, attention written out so that its products count."""
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


def _seconds(forward: Any) -> float:
    start = time.perf_counter()
    forward()
    return time.perf_counter() - start


def _peak(device: torch.device, forward: Any) -> int | None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        forward()
        return torch.cuda.max_memory_allocated(device) - before
    if device.type != "cpu" or not (_PROCESS / "clear_refs").exists():
        return None
    with suppress(AttributeError):  # other systems' C libraries keep nothing
        ctypes.CDLL(None).malloc_trim(0)  # what was freed and kept for later would count as in use already
    (_PROCESS / "clear_refs").write_text("5")  # the peak falls back to what is in use now
    before = _status("VmRSS")
    forward()
    return max(0, _status("VmHWM") - before)


def _status(field: str) -> int:
    lines = (_PROCESS / "status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)[field].split()[0]) * 1024
