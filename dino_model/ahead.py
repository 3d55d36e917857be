"""Load and compute items in threads before they are needed."""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

WORKERS = min(8, os.cpu_count() or 1)


def load_ahead(load: Callable[[T], R], items: Iterable[T], depth: int = 2 * WORKERS) -> Iterator[R]:
    """Yield `load(item)` of every item, in order, computed by several threads.

    An exception of `load` is raised in its item's place; later items are dropped.

    Args:
        load: Must be thread-safe.
        items: Read as far as needed.
        depth: Largest number of waiting results, at least 1.
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
    ready: queue.Queue[Future[T] | None] = queue.Queue(depth)
    closed = threading.Event()

    def put(result: Future[T] | None) -> None:
        while not closed.is_set():
            try:
                return ready.put(result, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        iterator = iter(items)
        try:
            for item in iterator:
                done: Future[T] = Future()
                done.set_result(item)
                put(done)
                if closed.is_set():
                    break
        except BaseException as error:
            failed: Future[T] = Future()
            failed.set_exception(error)
            put(failed)
        finally:
            if isinstance(iterator, Generator):
                iterator.close()  # files are closed by the thread that read them
            put(None)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (result := ready.get()) is not None:
            yield result.result()
    finally:
        closed.set()
        thread.join()
