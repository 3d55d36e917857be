"""Short logs: equal to the means of the long ones."""

import json
import math
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tools.thin_log import main, thinned


def _log(values: list[float], **rare: float) -> list[dict]:
    records = [{"step": step, "loss": value} for step, value in enumerate(values)]
    records[-1] |= rare
    return records


@given(
    values=st.lists(st.floats(-1e3, 1e3).map(lambda value: round(value, 3)), min_size=1, max_size=60),
    every=st.integers(1, 20),
)
def test_a_line_is_the_mean_of_its_steps(values: list[float], every: int):
    short = thinned([_log(values, knn_teacher=30.0)], every)
    for line, start in zip(short, range(0, len(values), every), strict=True):
        part = values[start : start + every]
        assert line["step"] == start + len(part) - 1
        assert math.isclose(line["loss"], np.mean(part), rel_tol=1e-5, abs_tol=1e-6)
    assert [line.get("knn_teacher") for line in short] == [None] * (len(short) - 1) + [30.0]


def test_thin_log_of_two_runs_writes_one_file_with_two_phases(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        lines = (json.dumps(record) + "\n" for record in _log([1.0, 2.0, 6.0]))
        (tmp_path / name / "log.jsonl").write_text("".join(lines))
    main((tmp_path / "one", tmp_path / "two"), tmp_path / "short.jsonl", every=2)
    assert [json.loads(line) for line in (tmp_path / "short.jsonl").read_text().splitlines()] == [
        {"phase": 1, "step": 1, "loss": 1.5},
        {"phase": 1, "step": 2, "loss": 6.0},
        {"phase": 2, "step": 1, "loss": 1.5},
        {"phase": 2, "step": 2, "loss": 6.0},
    ]
