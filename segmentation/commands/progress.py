"""How far a long command is: one line on stderr."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def progress(items: Sequence[T], name: str) -> Iterator[T]:
    """The items, while a line tells how many are done, how fast, and how long the rest will take.

    On a terminal the line is rewritten; elsewhere one is printed for every tenth of the way.
    """
    started, terminal = time.monotonic(), sys.stderr.isatty()
    for done, item in enumerate(items, start=1):
        yield item
        finished = done == len(items)
        if terminal or done * 10 // len(items) > (done - 1) * 10 // len(items):
            seconds = time.monotonic() - started
            left = seconds / done * (len(items) - done)
            line = f"{name}: {done}/{len(items)}, {done / max(seconds, 1e-9):.1f} a second, {left:.0f} s left"
            print(
                f"\r{line}   " if terminal else line,
                end="" if terminal and not finished else "\n",
                file=sys.stderr,
            )
