"""Work done ahead of where it is needed: threads read and decode while a model computes."""

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
    """`load(item)` of every item, in their order, up to `depth` of them before they are asked for.

    What `load` raises is raised where its item's turn comes; items behind it are given up.

    Args:
        load: run by several threads at once.
        items: read as far as needed.
        depth: how many results may wait, at least 1: memory holds no more.
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
    """The items, computed by one thread that is up to `depth` of them ahead.

    What they raise is raised where it would have been. Leaving early stops the thread at its next item.
    """
    ready: queue.Queue[Future[T] | None] = queue.Queue(depth)
    left = threading.Event()

    def hand_over(entry: Future[T] | None) -> None:
        while not left.is_set():
            try:
                return ready.put(entry, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        iterator = iter(items)
        try:
            for item in iterator:
                done: Future[T] = Future()
                done.set_result(item)
                hand_over(done)
                if left.is_set():
                    break
        except BaseException as error:
            failed: Future[T] = Future()
            failed.set_exception(error)
            hand_over(failed)
        finally:
            if isinstance(iterator, Generator):
                iterator.close()  # files are closed by the thread that read them
            hand_over(None)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (entry := ready.get()) is not None:
            yield entry.result()
    finally:
        left.set()
        thread.join()
