"""Progress of a long command: one line on stderr."""

import sys
from collections.abc import Iterable
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")

tqdm.monitor_interval = 0  # no thread


def progress(items: Iterable[T], name: str, total: int | None = None, *, done: int = 0) -> "tqdm[T]":
    """Yield the items and print how many are done, the rate and the remaining time.

    On a terminal the line is rewritten; elsewhere it is printed every 30 seconds and at the end. Without a
    name, nothing is printed. `total` is the number of items, if they have no length; `done` were before
    these.
    """
    terminal = sys.stderr.isatty()
    pause = 0.2 if terminal else 30
    return tqdm(items, name, total, initial=done, mininterval=pause, dynamic_ncols=terminal, disable=not name)
