"""Work done ahead: in order, bounded, and what goes wrong is told where it belongs."""

import threading
import time

import pytest

from dino_model.ahead import load_ahead, run_ahead


def test_load_and_run_ahead_keep_order():
    def slow_when_even(item: int) -> int:
        time.sleep(0.01 * (item % 2 == 0))
        return item * item

    assert list(load_ahead(slow_when_even, range(20))) == [item * item for item in range(20)]
    assert list(run_ahead(range(20))) == list(range(20))


def test_load_and_run_ahead_keep_to_their_depth():
    started: list[int] = []
    for ahead in (
        load_ahead(lambda item: started.append(item) or item, range(100), depth=3),
        run_ahead((started.append(item) or item for item in range(100)), depth=3),
    ):
        assert next(ahead) == 0
        time.sleep(0.1)
        assert len(started) <= 1 + 3 + 1  # taken, waiting, in hand
        ahead.close()
        started.clear()


@pytest.mark.parametrize("kind", ["load", "run"])
def test_error_is_raised_in_place_of_its_item(kind: str):
    def load(item: int) -> int:
        if item == 3:
            raise ValueError("three is broken")
        return item

    got: list[int] = []
    results = load_ahead(load, range(9)) if kind == "load" else run_ahead(map(load, range(9)))
    with pytest.raises(ValueError, match="three is broken"):
        got.extend(results)
    assert got == [0, 1, 2]


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
