"""A CUDA device without a GPU: PyTorch runs as on an H100, except that no kernel computes anything.

A stub of the CUDA runtime (stub.c, more.c) gives streams, events and pinned memory. `load` builds it and
loads it before PyTorch, therefore in a process of its own (`process`). In `device.FakeDevice` a tensor on
CUDA has shape, type and device only. Tensors on the CPU are computed as usual.
"""

import ctypes
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path

SOURCES = [str(Path(__file__).with_name(name)) for name in ("stub.c", "more.c")]


def missing() -> str | None:
    """Name what the fake device lacks on this machine; None: nothing."""
    if not sys.platform.startswith("linux"):
        return f"the fake CUDA device needs Linux, and this is {sys.platform}"
    if shutil.which("cc") is None:
        return "the fake CUDA device needs a C compiler, and there is no cc"
    if not (_package("torch") / "lib" / "libtorch_cuda.so").exists():
        return "the fake CUDA device needs a PyTorch for CUDA, and this one is for CPUs only"
    if not (_headers() / "cuda_runtime_api.h").exists():
        return "the fake CUDA device needs the CUDA headers of the package triton, which are not installed"
    return None


def load() -> None:
    """Build the stub and load it; its symbols then come before those of the CUDA runtime.

    Raises:
        RuntimeError: PyTorch was imported before, or something is missing.
    """
    if reason := missing():
        raise RuntimeError(reason)
    if "torch" in sys.modules:
        raise RuntimeError("PyTorch was imported before the stub: load the stub in a new process")
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/libcuda.so.1"
        command = ["cc", "-shared", "-fPIC", "-O1", "-w", "-Wl,-soname,libcuda.so.1", f"-I{_headers()}"]
        subprocess.run([*command, "-o", library, *SOURCES], check=True)
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)


def process() -> ProcessPoolExecutor:
    """Start a process with the fake device. `submit` runs a function of a module there."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), load)


def _package(name: str) -> Path:
    spec = find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else Path(name)


def _headers() -> Path:
    return _package("triton") / "backends" / "nvidia" / "include"
