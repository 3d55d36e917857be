"""Short logs: equal to the means of the long ones."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dino_model.errors import SettingError
from tools.thin_log import ThinLog, in_phases, thinned


def _log(values: list[float], **rare: float) -> list[dict]:
    records = [{"step": step, "loss": value} for step, value in enumerate(values)]
    records[-1] |= rare
    return records


@given(
    values=st.lists(st.floats(-1e3, 1e3).map(lambda value: round(value, 3)), min_size=1, max_size=60),
    every=st.integers(1, 20),
)
def test_a_line_is_the_mean_of_its_steps(values: list[float], every: int):
    short = list(thinned(in_phases([_log(values, knn_teacher=30.0)]), every))
    for line, start in zip(short, range(0, len(values), every), strict=True):
        part = values[start : start + every]
        assert line["step"] == start + len(part) - 1
        assert math.isclose(line["loss"], np.mean(part), rel_tol=1e-5, abs_tol=1e-6)
    assert short[-1]["knn_teacher"] == 30.0
    assert list(thinned(short, every)) == short  # thinning again changes nothing


def test_phases_are_counted_on_from_those_that_a_log_names():
    first, second = _log([1.0, 2.0]), _log([3.0])
    named = list(in_phases([first, second]))
    assert [record["phase"] for record in named] == [1, 1, 2]
    assert [record["phase"] for record in in_phases([named, second])] == [1, 1, 2, 3]


def test_thin_log_of_a_run_and_a_log_writes_one_file(tmp_path: Path):
    (tmp_path / "run").mkdir()
    for path in (tmp_path / "run" / "log.jsonl", tmp_path / "former.jsonl"):
        path.write_text("".join(json.dumps(record) + "\n" for record in _log([1.0, 2.0, 6.0])))
    output = tmp_path / "short.jsonl"
    ThinLog((tmp_path / "former.jsonl", tmp_path / "run"), output, every=2).run()
    assert [json.loads(line) for line in output.read_text().splitlines()] == [
        {"phase": 1, "step": 1, "loss": 1.5},
        {"phase": 1, "step": 2, "loss": 6.0},
        {"phase": 2, "step": 1, "loss": 1.5},
        {"phase": 2, "step": 2, "loss": 6.0},
    ]


def test_thin_log_of_a_broken_log_names_the_line(tmp_path: Path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 0}\n{"ste')
    with pytest.raises(SettingError, match=r"line 2 of .* is no JSON object with a step"):
        ThinLog((log,), tmp_path / "short.jsonl").run()
    assert not (tmp_path / "short.jsonl").exists()
