"""Join the processes that torchrun starts and exchange rows; without a process group there is one process."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from dino_model.runtime.errors import LostRank, SettingError

LISTING_LIMIT = timedelta(hours=6)
"""Time that the first rank has to list images, and to read their sizes."""
Result = TypeVar("Result")


@contextmanager
def process_group(device: torch.device) -> Iterator[torch.device]:
    """Join the process group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, if they are set.

    Yields this process's device: with CUDA that of LOCAL_RANK. Only the first rank prints.

    Raises:
        LostRank: Another rank ended.
        SettingError: Several tasks of Slurm that would each do the whole work.
    """
    tasks = os.environ.get("SLURM_NTASKS", "1")
    if tasks.isdecimal() and int(tasks) > 1 and "RANK" not in os.environ:
        raise SettingError(
            f"SLURM_NTASKS is {tasks} and RANK is not set: each task would do the whole work. Start with"
            " torchrun, or set RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS,"
            " MASTER_ADDR and MASTER_PORT in srun; for one process, unset SLURM_NTASKS"
        )
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
        with Path(os.devnull).open("w") as nowhere:
            output, errors = (nowhere, nowhere) if rank() else (sys.stdout, sys.stderr)
            with redirect_stdout(output), redirect_stderr(errors):
                yield device
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise LostRank("another process ended or cannot be reached") from error
        raise
    finally:
        dist.destroy_process_group()


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if _is_initialized() else 0


def world() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if _is_initialized() else 1


def local_range(numbers: range, index: int | None = None) -> range:
    """Return the consecutive share of a rank (this one if None); all shares have each number once."""
    index = rank() if index is None else index
    first, end = (len(numbers) * i // world() for i in (index, index + 1))
    return numbers[first:end]


def gather_objects(own: Any) -> list[Any]:
    """Return the objects of all ranks, in their order."""
    objects = [own] * world()
    if world() > 1:
        dist.all_gather_object(objects, own)
    return objects


def gather_results(compute: Callable[[], Any]) -> list[Any]:
    """Return the results of all ranks, in their order; raise on all ranks what one of them raised."""
    try:
        own = compute()
    except Exception as raised:
        own = raised
    results = gather_objects(own)
    if failed := next((one for one in results if isinstance(one, Exception)), None):
        raise failed
    return results


def gather_rows(compute: Callable[[range], Tensor | None], numbers: range) -> Tensor | None:
    """Compute a row for every number, each rank its share, and return all rows on all ranks.

    `compute` takes numbers, which are the same on all ranks, and returns [numbers, ...], or None if no row
    could be computed. What it raises on any rank is raised on all. Each rank sends its rows once.

    Returns:
        [numbers, ...], of several ranks on the CPU. Shares that are None become NaN; None if all are.
    """
    if world() == 1:
        return compute(numbers)
    shares, own = [local_range(numbers, index) for index in range(world())], list[Tensor]()

    def compute_share() -> Tensor | None:
        """Keep the rows here; return none of them, in their shape and type."""
        rows = compute(shares[rank()]) if shares[rank()] else None
        own.extend([] if rows is None else [rows.detach()])
        return None if rows is None else torch.empty(0, *rows.shape[1:], dtype=rows.dtype)

    known = next((empty for empty in gather_results(compute_share) if empty is not None), None)
    if known is None:
        return None
    gathered = known.new_empty(len(numbers), *known.shape[1:])
    for index, part in enumerate(gathered.split([*map(len, shares)])):
        if index == rank() and len(part):
            part.copy_(own[0]) if own else part.fill_(torch.nan)
        if len(part):
            dist.broadcast(part, index)
    return gathered


def on_first(action: Callable[[], Result], limit: timedelta | None = None) -> Result:
    """Run an action on the first rank; return its result, or raise its error, on all ranks.

    The other ranks wait until `limit`, by default that of the process group.
    """
    if world() == 1:
        return action()
    group: Any = dist.new_group(timeout=limit) if limit else None
    outcome: list[Any] = [None, None]  # result, error
    if rank() == 0:
        try:
            outcome = [action(), None]
        except Exception as raised:
            outcome = [None, raised]
    dist.broadcast_object_list(outcome, group=group)
    if group:
        dist.destroy_process_group(group)
    if outcome[1] is not None:
        raise outcome[1]
    return cast(Result, outcome[0])


def _is_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()
