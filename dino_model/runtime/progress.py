"""Progress of a long command: one line on stderr."""

import sys
from collections.abc import Iterable
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")

tqdm.monitor_interval = 0  # no thread


def progress(items: Iterable[T], name: str, total: int | None = None, *, done: int = 0) -> "tqdm[T]":
    """Yield the items and print how many are done, the rate and the remaining time.

    On a terminal the line is rewritten; elsewhere it is printed every 30 seconds and at the end.

    Args:
        items: Items to work through.
        name: Name of the work; if empty, nothing is printed.
        total: Number of items, if `items` has no length.
        done: Number of items before these.
    """
    terminal = sys.stderr.isatty()
    pause = 0.2 if terminal else 30
    return tqdm(items, name, total, initial=done, mininterval=pause, dynamic_ncols=terminal, disable=not name)
