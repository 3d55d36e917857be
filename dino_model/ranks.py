"""Join the processes that torchrun starts and exchange rows; without a process group there is one process."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

Result = TypeVar("Result")
_alone: ContextVar[bool] = ContextVar("alone", default=False)


class LostRank(RuntimeError):
    """Another process ended, or cannot be reached any more."""


@contextmanager
def joined(device: torch.device) -> Iterator[torch.device]:
    """Join the process group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, if they are set.

    Yields this process's device: with CUDA that of LOCAL_RANK. Only the first rank prints.

    Raises:
        LostRank: Another rank ended.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    cuda = device.type == "cuda"
    if cuda:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    store, number, processes = next(dist.rendezvous("env://"))
    # Processes that torchrun restarts must not read the addresses of the former ones.
    store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",  # tensors of the host never wait for the device
        store=store,
        rank=number,
        world_size=processes,
        device_id=device if cuda else None,
    )
    try:
        with _silent() if rank() else nullcontext():
            yield device
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise LostRank("another process ended or cannot be reached") from error
        raise
    finally:
        dist.destroy_process_group()


@contextmanager
def _silent() -> Iterator[None]:
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if _initialized() else 0


def world() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if _initialized() else 1


def local_range(numbers: range, index: int | None = None) -> range:
    """Return the consecutive share of a rank (this one if None); all shares have each number once."""
    index = rank() if index is None else index
    first, end = (len(numbers) * i // world() for i in (index, index + 1))
    return numbers[first:end]


def gather_rows(compute: Callable[[range], Tensor | None], numbers: range) -> Tensor | None:
    """Compute a row for every number, each rank its share, and return all rows on all ranks.

    Args:
        compute: Numbers -> [numbers, ...], or None if no row could be computed.
        numbers: The same on all ranks.

    Returns:
        [numbers, ...] on the CPU. Shares that are None become NaN; None if all are.

    Raises:
        Exception: What `compute` raised on any rank, on every rank.
    """
    if world() == 1:
        return compute(numbers)
    rows, error = None, None
    try:
        share = local_range(numbers)
        rows = compute(share) if share else None
    except Exception as raised:
        error = raised
    found: list[Any] = [None] * world()
    dist.all_gather_object(found, error or (None if rows is None else (rows.shape[1:], rows.dtype)))
    if failed := next((one for one in found if isinstance(one, Exception)), None):
        raise failed
    if (kind := next((one for one in found if one is not None), None)) is None:
        return None
    longest = -(-len(numbers) // world())
    sent = torch.zeros(longest, *kind[0], dtype=kind[1], device=_device())
    if rows is None and sent.is_floating_point():
        sent.fill_(torch.nan)
    elif rows is not None:
        sent[: len(rows)] = rows
    received = sent.new_empty(world() * longest, *kind[0])
    dist.all_gather_into_tensor(received, sent)
    shares = received.cpu().split(longest)
    return torch.cat([part[: len(local_range(numbers, i))] for i, part in enumerate(shares)])


def on_first(action: Callable[[], Result]) -> Result:
    """Run an action on the first rank; return its result, or raise its error, on all ranks."""
    if world() == 1:
        return action()
    outcome: list[Any] = [None, None]  # result, error
    if rank() == 0:
        try:
            outcome[0] = action()
        except Exception as raised:
            outcome[1] = raised
    dist.broadcast_object_list(outcome)
    result, error = outcome
    if error is not None:
        raise error
    return cast(Result, result)


@contextmanager
def alone() -> Iterator[None]:
    """Within the block this process is the only one: it sends nothing to other ranks and waits for none."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def _device() -> torch.device:
    """The device whose tensors the process group sends: the CPU if gloo is one of its backends."""
    return torch.device("cpu" if "gloo" in dist.get_backend_config() else "cuda")


def _initialized() -> bool:
    return not _alone.get() and dist.is_available() and dist.is_initialized()
