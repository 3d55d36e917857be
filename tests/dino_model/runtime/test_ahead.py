"""Work done ahead: in order, bounded, and errors in their place."""

import threading
import time

import pytest

from dino_model.runtime.ahead import load_ahead, run_ahead


@pytest.mark.parametrize("kind", ["load", "run"])
def test_results_come_in_order_and_in_bounds_with_errors_in_their_place(kind: str):
    started: list[int] = []

    def load(item: int) -> int:
        started.append(item)
        time.sleep(0.01 * (item % 2 == 0))
        if item == 20:
            raise ValueError("twenty is broken")
        return item * item

    results = load_ahead(load, range(99), 3) if kind == "load" else run_ahead(map(load, range(99)), 3)
    assert next(results) == 0
    time.sleep(0.1)
    assert len(started) <= 1 + 3 + 1  # taken, waiting, in hand
    assert list(load_ahead(abs, range(20))) == list(run_ahead(range(20))) == list(range(20))
    found: list[int] = []
    with pytest.raises(ValueError, match="twenty is broken"):
        found.extend(results)
    assert found == [item * item for item in range(1, 20)]


def test_run_ahead_closed_early_stops_its_thread():
    closed = []

    def frames():
        try:
            yield from range(1000)
        finally:
            closed.append(threading.current_thread() is not threading.main_thread())

    before = threading.active_count()
    ahead = run_ahead(frames())
    assert next(ahead) == 0
    ahead.close()
    assert closed == [True]
    assert threading.active_count() == before
