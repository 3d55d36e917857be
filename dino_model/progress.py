"""Progress of a long command: one line on stderr."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")

tqdm.monitor_interval = 0  # no thread


def following(name: str, total: int) -> Callable[[range], Iterator[int]]:
    """Return `progress` for numbers that come in several ranges of one whole: one line for all."""
    bars: list[tqdm[int]] = []

    def track(numbers: range) -> Iterator[int]:
        bar = bars[0] if bars else progress((), name, total, done=numbers.start)
        bars[:] = [bar]
        bar.update(max(0, numbers.start - bar.n))  # other ranks did the numbers between
        for number in numbers:
            yield number
            bar.update()
        if numbers.stop == total:
            bar.close()

    return track


def progress(items: Iterable[T], name: str, total: int | None = None, *, done: int = 0) -> "tqdm[T]":
    """Yield the items and print how many are done, the rate and the remaining time.

    On a terminal the line is rewritten; elsewhere it is printed every 30 seconds and at the end.

    Args:
        items: Items to work through.
        name: Name of the work.
        total: Number of items, if `items` has no length.
        done: Number of items before these.
    """
    pause = 0.2 if sys.stderr.isatty() else 30
    return tqdm(items, name, total, initial=done, mininterval=pause, dynamic_ncols=sys.stderr.isatty())
