"""Logs of training runs: read while they grow, reduced to the width of a screen, with their faults."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from app.limits.errors import LabError, NotHere
from app.store import runs as module
from app.store.runs import CHARTS, Runs, TrainingRun, chart_value, status_text, warnings_text
from app.tabs import training
from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from tests.app.conftest import line, save_milestone, small_backend, write_run


def read(folder: Path, *lines: bytes) -> TrainingRun:
    """Write a run with these lines and return it."""
    return Runs(write_run(folder / "run", *lines).parent).read("run")


def points(run: TrainingRun) -> tuple[list[float], list[float]]:
    """Steps and values of the loss as they are plotted."""
    steps, values = zip(*chart_value(CHARTS[0], run)["curves"][0]["points"], strict=True)
    return list(steps), list(values)


def test_long_curve_is_reduced_to_means(tmp_path):
    steps, values = points(read(tmp_path, *(line(step, loss=step % 4) for step in range(4 * module.POINTS))))
    assert steps == [4 * number + 1.5 for number in range(module.POINTS)]
    assert values == [1.5] * module.POINTS


def test_values_that_are_not_finite_and_broken_lines_are_left_out_and_counted(tmp_path):
    broken = [
        b"\n", b"{\n", b"[1]\n", b'{"loss": 1}\n', b'{"step": "x"}\n', b'{"step": -1}\n', b'{"step": true}\n',
        b"\xff\n",
    ]  # fmt: skip
    losses = [line(number, loss=loss) for number, loss in enumerate([1.0, math.nan, math.inf, 4.0])]
    run = read(tmp_path, *losses[:2], *broken, *losses[2:])
    assert points(run) == ([0, 3], [1, 4])
    text = warnings_text(run)
    assert "Values of loss that are not finite: 2" in text
    assert f"cannot be read: {len(broken)}" in text


def test_steps_of_later_phases_follow_those_of_earlier_ones(tmp_path):
    phases = [(1, 50), (1, 100), (2, 50), (2, 100)]
    run = read(tmp_path, *(line(step, phase=phase, loss=float(phase)) for phase, step in phases))
    steps, losses = points(run)
    assert steps == [50, 100, 100.5, 151, 201]
    assert losses == [1, 1, None, 2, 2]


def test_growing_log_is_read_to_its_last_complete_line_and_replaced_log_anew(tmp_path):
    second = line(1, loss=2.0)
    folder, runs = write_run(tmp_path / "run", line(0, loss=1.0), second[:-5]), Runs(tmp_path)
    run = runs.read("run")
    assert points(run)[0] == [0]
    with (folder / "log.jsonl").open("ab") as file:
        file.write(second[-5:])
    assert points(runs.read("run"))[1] == [1, 2]
    (folder / "other").write_bytes(line(0, loss=7.0))
    (folder / "other").replace(folder / "log.jsonl")
    assert points(runs.read("run")) == ([0], [7])


def test_runs_are_folders_with_a_log_and_the_shipped_ones_comes_last(tmp_path):
    write_run(tmp_path / "first")
    (tmp_path / "no-run").mkdir()
    runs = Runs(tmp_path)
    assert list(runs.folders()) == ["first", "embedded-dino", "embedded"]
    write_run(tmp_path / "begun-later")
    assert "begun-later" in runs.folders()
    for name in ("none", "..", "../etc", "a\0b", None, ["run"]):
        with pytest.raises(NotHere, match=r"^[^/]*$"):
            runs.read(name)


def test_shipped_logs_have_every_plotted_quantity():
    runs = [Runs(None).read(name) for name in ("embedded-dino", "embedded")]
    assert [warnings_text(run) for run in runs] == ["", ""]
    for chart in CHARTS:
        curves = {curve["label"] for run in runs for curve in chart_value(chart, run)["curves"]}
        keys = {key for run in runs for key, curve in run.log.curves.items() if curve.size}
        assert curves == set(chart.select(keys).values())
    assert [curve["label"] for curve in chart_value(CHARTS[2], runs[0])["curves"]] == ["Teacher", "Student"]
    for run in runs:
        assert [(one.model, one.step) for one in run.checkpoints] == [
            ("random:embedded", 0),
            (run.name, run.log.last),
        ]


def test_status_names_steps_and_phases(tmp_path):
    folder, runs = write_run(tmp_path / "run"), Runs(tmp_path)
    assert status_text(runs.read("run")) == "3 of 30 steps"
    write_run(tmp_path / "begun", b"{")
    assert status_text(runs.read("begun")) == "0 of 30 steps"
    write_run(folder, *(line(step, loss=1.0) for step in range(30)))
    assert status_text(runs.read("run")) == "30 of 30 steps"
    write_run(folder, line(0, phase=1, loss=1.0), line(0, phase=2, loss=-1.0), recipe=None)
    run = runs.read("run")
    assert status_text(run).startswith("2 of an unknown number of steps in 2 phases")
    assert points(run) == ([0, 0.5, 1], [1, None, -1])  # no line between


def test_checkpoints_have_their_own_weights_and_old_tokens_are_refused_when_replaced(tmp_path):
    folder = write_run(tmp_path / "run")
    files = [save_milestone(folder, step) for step in (0, 20)]
    files.append(save_milestone(folder, 40).rename(folder / "checkpoint.pt"))
    backend, found = small_backend(folder=tmp_path), []
    run = backend.runs.read("run")
    names = [one.model for one in run.checkpoints]
    assert names == ["run@0", "run@20", "run"]
    for name, path in zip(names, files, strict=True):
        library = AttentionPredictor(str(path), size=64, precision="fp32", device="cpu")
        library.set_image(photographs.image("kitten"))
        found.append(backend.encode("kitten", name, 64))
        np.testing.assert_array_equal(found[-1].queries_keys(1)[0], library.queries_keys(1)[0])
    for encoding, path in zip(found, files, strict=True):
        before = encoding.queries_keys(1)[0]
        save_milestone(folder, 60).replace(path)
        with pytest.raises(NotHere, match="has changed: choose the model again"):
            backend.encoding(encoding.key.token)
        assert (backend.encode("kitten", encoding.key.model, 64).queries_keys(1)[0] != before).any()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_slider_of_the_tab_has_a_place_for_each_checkpoint(tmp_path, count):
    folder = write_run(tmp_path / "run")
    for number in range(count):
        (folder / f"step-{10 * number:08d}.pt").touch()
    page = SimpleNamespace(backend=SimpleNamespace(runs=Runs(tmp_path)))
    _, warnings, slider, *charts = training._read(page, "run")
    assert (slider.maximum, slider.value, slider.interactive) == (max(1, count - 1), count - 1, count > 1)
    assert (warnings.visible, len(charts)) == (False, 3)
    for index, steps in ((0, 0), (1, 10 * min(1, count - 1)), (2, 20)):
        if index < max(2, count) and count:
            assert training._checkpoint(page, "run", index).step == steps
        else:
            with pytest.raises(LabError, match="no checkpoint yet" if index < 2 else "number of the slider"):
                training._checkpoint(page, "run", index)
    for index in (-1, True, 0.0):
        with pytest.raises(LabError, match="number of the slider"):
            training._checkpoint(page, "run", index)


def test_many_checkpoints_are_thinned_with_the_first_and_the_last_kept(tmp_path):
    folder = write_run(tmp_path / "run")
    for step in range(0, 30_000, 100):
        (folder / f"step-{step:08d}.pt").touch()
    steps = [one.step for one in Runs(tmp_path).read("run").checkpoints]
    assert (len(steps), steps[0], steps[-1]) == (module.MAX_CHECKPOINTS, 0, 29_900)
    assert steps == sorted(set(steps))
