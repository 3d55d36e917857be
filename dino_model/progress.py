"""How far a long command is: one line on stderr."""

import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")

tqdm.monitor_interval = 0  # no thread beside: the lines come with the items


def following(name: str, total: int) -> Callable[[range], Iterable[int]]:
    """`progress` over numbers that come in several ranges of one whole."""
    return lambda numbers: progress(numbers, name, total, done=numbers.start)


def progress(items: Iterable[T], name: str, total: int | None = None, *, done: int = 0) -> Iterable[T]:
    """The items, while a line tells how many are done, how fast, and how long the rest will take.

    On a terminal the line is rewritten; elsewhere it is told every half minute, and at the end.

    Args:
        items: what is worked through.
        name: of the work.
        total: how many there will be, where `items` does not know.
        done: how many were before `items`.
    """
    pause = 0.2 if sys.stderr.isatty() else 30
    return tqdm(items, name, total, initial=done, mininterval=pause, dynamic_ncols=sys.stderr.isatty())
