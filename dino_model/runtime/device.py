"""Choose the device and precision of a model, once and never silently."""

import re
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import torch

from dino_model.runtime.precision import ComputePrecision, Precision

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str = "auto") -> torch.device:
    """Return the device called `name`; `auto` is the first of cuda, mps and cpu on this machine.

    Raises ValueError for an unknown or unavailable device.
    """
    backends = {"cuda": torch.cuda, "mps": torch.backends.mps}
    available = [*(kind for kind, backend in backends.items() if backend.is_available()), "cpu"]
    if name == "auto":
        return torch.device(available[0])
    with suppress(RuntimeError):  # of a name that torch does not know
        device = torch.device(name)
        if device.type in available and (device.index or 0) < max(1, torch.cuda.device_count()):
            return device
    raise ValueError(
        f"device {name!r} is not available on this machine: choose 'auto' or one of {', '.join(available)}"
    )


def choose_precision(precision: Precision, device: torch.device) -> ComputePrecision:
    """Return the precision to compute in.

    `auto` is bf16 if `device` has instructions for it. It is fp16 on other CUDA devices with tensor cores
    (V100, T4) and on MPS before macOS 14. Otherwise it is fp32. Raises ValueError for an unknown precision.
    """
    if precision == "auto":
        if has_bf16(device):
            return "bf16"
        has_cores = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (7, 0)
        return "fp16" if has_cores or device.type == "mps" else "fp32"
    if precision not in DTYPES:
        raise ValueError(f"unknown precision {precision!r}: choose 'auto', 'fp32', 'bf16' or 'fp16'")
    return precision


def has_bf16(device: torch.device) -> bool:
    """Return whether `device` multiplies bfloat16 matrices in hardware."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "mps":
        return torch.backends.mps.is_available() and torch.backends.mps.is_macos_or_newer(14, 0)
    processor = Path("/proc/cpuinfo")  # of Linux
    has_flags = device.type == "cpu" and processor.exists()
    return has_flags and re.search(r"\b(avx512|amx)_bf16\b", processor.read_text()) is not None


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
