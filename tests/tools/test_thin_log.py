"""Short logs: equal to the means of the long ones."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.thin_log import in_phases, thinned
from training.__main__ import main


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


def test_command_makes_runs_and_logs_into_one(tmp_path: Path, capsys):
    (tmp_path / "run").mkdir()
    for path in (tmp_path / "run" / "log.jsonl", tmp_path / "former.jsonl"):
        path.write_text("".join(json.dumps(record) + "\n" for record in _log([1.0, 2.0, 6.0])))
    output = tmp_path / "short.jsonl"
    logs = [str(tmp_path / "former.jsonl"), str(tmp_path / "run")]
    assert main(["thin-log", *logs, "--output", str(output), "--every", "2"]) == 0
    assert "6 lines made into 4" in capsys.readouterr().out
    assert [json.loads(line) for line in output.read_text().splitlines()] == [
        {"phase": 1, "step": 1, "loss": 1.5},
        {"phase": 1, "step": 2, "loss": 6.0},
        {"phase": 2, "step": 1, "loss": 1.5},
        {"phase": 2, "step": 2, "loss": 6.0},
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"step": 0}\n{"ste', "line 2 of {log} is no JSON object with a step: '{{\"ste'"),
        ('{"loss": 1}\n', "line 1 of {log} is no JSON object with a step"),
        ('{"step": 0, "loss": NaN}\n', "not JSON compliant"),
    ],
)
def test_broken_logs_end_in_one_sentence_and_nothing_is_written(tmp_path: Path, capsys, content, said):
    log = tmp_path / "log.jsonl"
    log.write_text(content)
    assert main(["thin-log", str(log), "--output", str(tmp_path / "short.jsonl")]) == 1
    assert said.format(log=log) in capsys.readouterr().err
    assert not (tmp_path / "short.jsonl").exists()
