"""Processes that compute together; without a process group there is one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch.distributed as dist

Row = TypeVar("Row")
_alone: ContextVar[bool] = ContextVar("alone", default=False)
Result = TypeVar("Result")
Compute = Callable[[range], list[Row]]


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if _initialised() else 0


def world() -> int:
    """Number of processes."""
    return dist.get_world_size() if _initialised() else 1


def own(numbers: range) -> range:
    """This process's consecutive share of some numbers; together the processes have each once."""
    first, end = (len(numbers) * i // world() for i in (rank(), rank() + 1))
    return numbers[first:end]


def led(lead: Callable[[Compute[Row]], Result], compute: Compute[Row]) -> Result:
    """`lead(compute)`, where the rows that the first process asks `compute` for are computed by all.

    The first alone decides which rows are wanted and what is kept of them; all have the result, or its error.
    """
    if world() == 1:
        return lead(compute)
    if rank():
        return _follow(compute)

    def shared(numbers: range) -> list[Row]:
        _broadcast(numbers)
        parts: list[Any] = [None] * world()
        dist.gather_object(_attempt(compute, own(numbers)), parts)
        if error := next((part for part in parts if isinstance(part, Exception)), None):
            raise error
        return [row for part in parts for row in part]

    try:
        result = lead(shared)
    except Exception as error:
        _broadcast(error)
        raise
    _broadcast((result,))
    return result


def _follow(compute: Compute[Any]) -> Any:
    """Compute this process's shares of what the first asks for, until it has the result."""
    while isinstance(numbers := _broadcast(None), range):
        dist.gather_object(_attempt(compute, own(numbers)))
    if isinstance(numbers, Exception):
        raise numbers
    return numbers[0]


def _attempt(compute: Compute[Row], numbers: range) -> list[Row] | Exception:
    """Rows, or what went wrong: the first process raises it."""
    try:
        return compute(numbers)
    except Exception as error:
        return error


def _broadcast(message: Any) -> Any:
    """What the first process says."""
    told = [message]
    dist.broadcast_object_list(told)
    return told[0]


@contextmanager
def alone() -> Iterator[None]:
    """Within the block this process is the only one: nothing is asked of the others, or waited for."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def _initialised() -> bool:
    return not _alone.get() and dist.is_available() and dist.is_initialized()
