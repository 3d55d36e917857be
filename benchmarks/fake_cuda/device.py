"""Dispatch mode in which tensors on CUDA are fake; it counts what a device would do, and what is wrong.

Import this module in a process that has called `load`.
"""

import ctypes
import math
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.fake_cuda.order import HOST, WAIT_FOR_DEVICE, WAIT_FOR_EVENT, WAIT_FOR_STREAM, Order, Usage

ROOT = str(Path(__file__).parents[2])
READS = (
    *("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "unique_dim"),
    *("bincount", "nonzero_static"),
)
"""Operations whose result, or its shape, the host can only know from values."""
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")
"""Operations that wait if an index is a mask."""
FAKE = FakeTensorMode(allow_non_fake_inputs=True)
"""Shared by all devices of this process: fake tensors of two modes cannot be mixed."""
STUB = ctypes.CDLL(None)
HOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
SWAP = torch.utils.swap_tensors


class HostWaitError(AssertionError):
    """An operation whose result has a shape that only the device knows."""


class Pending(NamedTuple):
    """A copy to the host that the device has not made yet."""

    buffer: Tensor
    stream: int
    number: int


class FakeDevice(TorchDispatchMode):
    """CUDA device without values. Inside the `with` block it counts; `reset` begins again.

    Copies to pinned memory arrive when the host waits for them; before, it holds NaN or -1, then 1. Other
    copies bring random numbers, and single values are 1. Mixed devices raise an error.
    """

    operations: Counter[str]
    """Operations that launch kernels, by name; one of a list of tensors counts once."""
    lines: Counter[str]
    """The same, by the line of the project that calls them; those of autograd as "backward"."""
    traffic: Counter[str]
    """Bytes that operations read and write, by name."""
    waits: Counter[str]
    """Operations and lines that make the host wait until the device has nothing to do."""
    uploads: Counter[str]
    """Copies to the device from pinned and from pageable memory, by line."""
    errors: Counter[str]
    """Memory that two streams use without order, or that is freed too early."""

    host_collectives: int
    """Exchanges of host memory among ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.order, self.memory = Order(), weakref.WeakKeyDictionary[Any, Usage]()
        self.pending: list[Pending] = []
        self.arriving = threading.RLock()  # the thread that writes checkpoints waits for copies, too
        self.live = self.peak = 0
        self.hook = HOOK(self._note_call)
        self.reset()

    def reset(self) -> None:
        """Set all counts to zero, and the peak to the memory in use."""
        self.operations, self.lines, self.traffic = Counter(), Counter(), Counter()
        self.waits, self.uploads, self.errors = Counter(), Counter(), Counter()
        self.peak, self.host_collectives = self.live, 0

    def __enter__(self) -> "FakeDevice":
        STUB.stub_set_hook(self.hook)
        torch.utils.swap_tensors = swap_to_device
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.utils.swap_tensors = SWAP
        STUB.stub_set_hook(None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        fake, target = [tensor for tensor in tensors if isinstance(tensor, FakeTensor)], kwargs.get("device")
        if not fake and (target is None or torch.device(target).type != "cuda"):
            self.host_collectives += func.namespace == "c10d"
            return func(*args, **kwargs)
        name = func.__name__.split(".")[0]
        if name == "record_stream":
            return self._usage(args[0]).recorded.add(args[1].native_handle or 0)
        if name in READS or (name in INDEXING and _has_mask(args)):
            return self._read(name, fake[0])
        if name == "_to_copy" and fake and torch.device(target or "cuda").type == "cpu":
            self._note(self.waits, "copy to the host")
            return made_up(args[0], kwargs.get("dtype") or args[0].dtype)
        asynchronous = bool(kwargs.get("non_blocking") or (name == "copy_" and args[2:] and args[2]))
        if name == "copy_" and not isinstance(args[0], FakeTensor):
            return self._download(args[0], args[1], asynchronous)
        self._count_uploads(tensors, asynchronous or name not in ("_to_copy", "copy_"))
        with FAKE:
            result = func(*args, **kwargs)
        return self._record(func, name, fake, result, kwargs)

    def _read(self, name: str, tensor: Tensor) -> float | int:
        self._note(self.waits, name)
        if name != "_local_scalar_dense":
            raise HostWaitError(f"the host waits for {name} at {project_line()}")
        return 1.0 if tensor.is_floating_point() else 1

    def _download(self, buffer: Tensor, source: Tensor, asynchronous: bool) -> Tensor:
        """Copy to memory of the host: it arrives later if that is pinned and the copy asynchronous."""
        if not (asynchronous and buffer.is_pinned()):
            self._note(self.waits, "copy to the host")
            return buffer.copy_(made_up(source, buffer.dtype))
        stream = current_stream()
        number = self.order.issue(stream)
        self._access([source], [], stream, number)
        buffer.fill_(torch.nan if buffer.is_floating_point() else -1 if buffer.dtype.is_signed else 0)
        self.pending.append(Pending(buffer, stream, number))
        return buffer

    def _count_uploads(self, tensors: Sequence[Tensor], asynchronous: bool) -> None:
        for tensor in tensors:
            if tensor.is_cpu and tensor.numel() and (tensor.ndim or len(tensors) == 1):
                pinned = tensor.is_pinned()
                self._note(self.uploads, "pinned" if pinned else "pageable")
                if pinned and not asynchronous:
                    self._note(self.waits, "copy to the device")

    def _record(self, func: Any, name: str, fake: list[Any], result: Any, kwargs: Any) -> Any:
        """Count an operation that is no view, and its memory."""
        if isinstance(result, FakeTensor) and result.fake_device.type == "cpu":  # a buffer on the host
            return torch.ones(
                result.shape, dtype=result.dtype, pin_memory=bool(kwargs.get("pin_memory", False))
            )
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, FakeTensor)]
        known = {id(tensor.untyped_storage()) for tensor in fake}
        new = [tensor for tensor in results if id(tensor.untyped_storage()) not in known]
        for tensor in new:
            self._usage(tensor)
        if (not new and not func._schema.is_mutable) or name.startswith(("empty", "new_empty", "prim")):
            return result
        self.operations[name] += 1
        self.lines[project_line()] += 1
        self.traffic[name] += moved_bytes(name, fake, results)
        stream = current_stream()
        written = [*new, *((results or fake) if func._schema.is_mutable else ())]
        self._access(fake, written, stream, self.order.issue(stream))
        return result

    def _access(self, read: Sequence[Any], written: Sequence[Any], stream: int, number: int) -> None:
        for write, tensors in ((False, read), (True, written)):
            for tensor in tensors:
                if conflict := self.order.access(self._usage(tensor), stream, number, write=write):
                    self._note(self.errors, conflict)

    def _usage(self, tensor: Tensor) -> Usage:
        storage = tensor.untyped_storage()
        if storage not in self.memory:
            self.memory[storage] = usage = Usage(current_stream())
            self.live += storage.nbytes()
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._free, usage, storage.nbytes())
        return self.memory[storage]

    def _free(self, usage: Usage, size: int) -> None:
        self.live -= size
        if error := self.order.free(usage):
            self.errors[error] += 1

    def _note_call(self, what: int, first: int | None, second: int | None) -> int:
        """Take a call of the runtime; copies to the host that it waits for arrive."""
        unfinished = self.order.note_call(what, first or 0, second or 0)
        with self.arriving:
            for copy in [
                copy for copy in self.pending if self.order.is_complete(HOST, copy.stream, copy.number)
            ]:
                self.pending.remove(copy)
                copy.buffer.fill_(1)
        idle = what == WAIT_FOR_EVENT and self.order.issued <= self.order.clocks[HOST]
        waits = idle or what in (WAIT_FOR_STREAM, WAIT_FOR_DEVICE)
        if waits and threading.current_thread() is threading.main_thread():
            self._note(self.waits, "synchronization")
        return int(unfinished)

    def _note(self, counts: Counter[str], what: str) -> None:
        counts[f"{what} at {project_line()}"] += 1


def swap_to_device(old: Tensor, new: Tensor) -> None:
    """Swap a parameter of `Module.to` that comes to the device; of fake ones PyTorch cannot swap others."""
    if new.is_cuda and (old.device, old.dtype) != (new.device, new.dtype):
        SWAP(old, new)


def made_up(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Values that a copy to the host finds: uniform random numbers, or 1 for integers and conditions."""
    if dtype.is_floating_point:
        return torch.rand(tensor.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    return torch.ones(tensor.shape, dtype=dtype)


def moved_bytes(name: str, read: Sequence[Tensor], results: Sequence[Tensor]) -> int:
    """Bytes that an operation reads and writes; one that selects elements touches only these."""
    if name in ("index", "gather", "index_select"):
        return 2 * sum(map(num_bytes, results))
    if name.startswith(("index_put", "scatter", "index_add", "index_copy")):
        return 2 * num_bytes(read[-1])
    return sum(map(num_bytes, [*read, *results]))


def num_bytes(tensor: Tensor) -> int:
    """Bytes of the different elements of a tensor, which may be expanded."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in pairs if stride or not size) * tensor.element_size()


def _has_mask(args: Any) -> bool:
    return any(index is not None and index.dtype == torch.bool for index in args[1])


def current_stream() -> int:
    """Return the handle of the current stream."""
    return int(torch.cuda.current_stream().cuda_stream)


def project_line() -> str:
    """Return file and line of the innermost call of this project, "backward" if autograd calls."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(ROOT) and "/.venv/" not in name and "/fake_cuda/" not in name:
            return f"{name.removeprefix(ROOT)[1:]}:{frame.f_lineno}"
        frame = frame.f_back
    return "backward"
