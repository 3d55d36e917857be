import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measure import PROCESS, Result, extra_memory, measure, median_seconds, report

MEGABYTE = 10**6


def build_a_large_array() -> Callable[[], object]:
    loaded = np.ones(200 * MEGABYTE, np.uint8)
    return lambda: np.ones(50 * MEGABYTE, np.uint8).sum() + loaded[0]


def test_memory_counts_what_a_computation_adds_and_not_what_was_loaded():
    if not (PROCESS / "clear_refs").exists():
        pytest.skip("only Linux tells a process its peak memory")
    extra = extra_memory(build_a_large_array)
    assert extra is not None
    assert 49 * MEGABYTE < extra < 100 * MEGABYTE


def build_a_small_array() -> Callable[[], object]:
    return lambda: np.ones(5 * MEGABYTE, np.uint8).sum()


def test_a_measurement_holds_seconds_and_memory_of_both_sides():
    result = measure("example", build_a_small_array, build_a_large_array, repeats=1, remarks=("said",))
    assert (result.name, result.unit, result.remarks) == ("example", "s", ("said",))
    assert min(result.ours, result.reference) > 0
    if (PROCESS / "clear_refs").exists():
        assert result.memory_ratio is not None
        assert result.memory_ratio < 0.5


def test_both_sides_take_turns_after_a_warm_up():
    calls: list[str] = []
    median_seconds(lambda: calls.append("ours"), lambda: calls.append("reference"), repeats=2)
    assert calls == ["ours", "reference"] * 3


def test_ratio_says_how_many_times_faster_ours_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    result = Result(
        "example", 2.0, 8.0, ours_memory=MEGABYTE, reference_memory=4 * MEGABYTE, remarks=("said",)
    )
    report(result, tmp_path / "figures.json")
    printed = capsys.readouterr().out
    assert "4.00 times faster" in printed
    assert "0.25 of it" in printed
    assert "said" in printed
    assert json.loads((tmp_path / "figures.json").read_text()) == {
        "name": "example",
        "ratio": 4.0,
        "ours": 2.0,
        "reference": 8.0,
        "unit": "s",
        "memory_ratio": 0.25,
        "ours_memory": MEGABYTE,
        "reference_memory": 4 * MEGABYTE,
    }


def test_unknown_memory_is_said_and_not_guessed():
    result = Result("example", 1.0, 1.0)
    assert result.memory_ratio is None
    assert "not measured" in result.as_text()


def test_no_repeats_is_an_error():
    with pytest.raises(ValueError, match="at least 1"):
        median_seconds(lambda: None, lambda: None, repeats=0)
