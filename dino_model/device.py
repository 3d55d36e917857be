"""Choose the device and precision of a model, once and never silently."""

from contextlib import AbstractContextManager
from pathlib import Path

import torch

from dino_model.configs import ComputePrecision, Precision

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str = "auto") -> torch.device:
    """Return the device called `name`; `auto` is the first of cuda, mps and cpu on this machine.

    Raises:
        ValueError: Unknown or unavailable device.
    """
    backends = {"cuda": torch.cuda, "mps": torch.backends.mps}
    available = [*(kind for kind, backend in backends.items() if backend.is_available()), "cpu"]
    if name == "auto":
        return torch.device(available[0])
    here = ", ".join(available)
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"unknown device {name!r}: choose 'auto' or one of {here}") from None
    if device.type not in available:
        raise ValueError(f"device {name!r} is not available on this machine: choose 'auto' or one of {here}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {name!r} is not available: this machine has {torch.cuda.device_count()} CUDA devices"
        )
    return device


def choose_precision(precision: Precision, device: torch.device) -> ComputePrecision:
    """Return the precision to compute in.

    `auto` is bf16 where `device` has instructions for it, fp16 on other CUDA devices with tensor cores (V100,
    T4) and on MPS before macOS 14, and fp32 elsewhere.

    Raises:
        ValueError: Unknown precision.
    """
    if precision == "auto":
        cuda, mps = (device.type == kind for kind in ("cuda", "mps"))
        has_fp16 = mps or (cuda and torch.cuda.get_device_capability(device) >= (7, 0))
        return "bf16" if has_bf16(device) else "fp16" if has_fp16 else "fp32"
    if precision not in DTYPES:
        raise ValueError(f"unknown precision {precision!r}: choose 'auto', 'fp32', 'bf16' or 'fp16'")
    return precision


def has_bf16(device: torch.device) -> bool:
    """Return whether `device` multiplies bfloat16 matrices in hardware."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "mps":
        return torch.backends.mps.is_available() and torch.backends.mps.is_macos_or_newer(14, 0)
    return device.type == "cpu" and bool(_cpu_flags() & {"avx512_bf16", "amx_bf16"})


def autocast(precision: ComputePrecision, device: torch.device) -> AbstractContextManager:
    """Return a context in which matrix products run in `precision`; norms and residuals stay in fp32."""
    reduced = precision != "fp32"
    return torch.autocast(device.type, DTYPES[precision] if reduced else None, enabled=reduced)


def set_tensor_float32(precision: ComputePrecision) -> None:
    """Let CUDA round the factors of fp32 products to TF32, unless `precision` is fp32.

    TF32 has ten mantissa bits, as fp16 has. The setting holds for the whole process: `torch.compile` compiles
    again whenever it changes, so call this function once, before the first step.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"


def _cpu_flags() -> set[str]:
    """Instruction sets of the processor as Linux reports them; empty on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())
