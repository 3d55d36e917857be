"""Load and compute items in threads before they are needed."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

WORKERS = min(8, os.cpu_count() or 1)


def load_ahead(load: Callable[[T], R], items: Iterable[T], depth: int = 2 * WORKERS) -> Iterator[R]:
    """Yield `load(item)` of every item, in order, computed by several threads; at most `depth` results wait.

    An exception of `load` is raised in its item's place; later items are dropped.
    """
    pool, waiting = ThreadPoolExecutor(WORKERS), deque[Future[R]]()
    try:
        for item in items:
            waiting.append(pool.submit(load, item))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def run_ahead(items: Iterable[T], depth: int = 2) -> Iterator[T]:
    """Yield the items, computed by one thread that is at most `depth` of them ahead.

    An exception is raised in its item's place. Closing the iterator stops the thread at its next item.
    """
    iterator, end = iter(items), object()
    pool, waiting = ThreadPoolExecutor(1), deque[Future[Any]]()
    try:
        waiting.extend(pool.submit(next, iterator, end) for _ in range(depth))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, iterator, end))
            yield item
    finally:
        for future in waiting:
            future.cancel()
        if isinstance(iterator, Generator):
            pool.submit(iterator.close)  # files are closed by the thread that read them
        pool.shutdown()
