"""Logs of training runs: read while they grow, reduced to the width of a screen, with their faults."""

import json
import math
import os
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from app import photos
from app.errors import NotHere
from app.lab import Lab
from app.limits import Limits
from app.models import Models
from app.runs import (
    CHARTS,
    EMBEDDED_LOG,
    LIVE_SECONDS,
    MAX_CHECKPOINTS,
    Curve,
    Curves,
    GrowingLog,
    Runs,
    chart_table,
    checkpoint_file,
    status_text,
    warnings_text,
)
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.predictor import AttentionPredictor

MODEL = "random:vit_tiny/16"
BACKBONE = {"architecture": "vit_tiny", "patch_size": 16, "image_size": 64, "depth": 2}


def line(step: int, **values: float) -> bytes:
    return json.dumps({"step": step, **values}).encode() + b"\n"


def write_run(folder: Path, steps: range, **config: object) -> Path:
    folder.mkdir(parents=True)
    settings = {"recipe": {"epochs": 3, "batch_size": 4}, "pictures": 42, "backbone": BACKBONE} | config
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "log.jsonl").write_bytes(b"".join(line(step, loss=float(step)) for step in steps))
    return folder


def save_milestone(folder: Path, step: int, seed: int) -> None:
    torch.manual_seed(seed)
    backbone = create_backbone(BackboneConfig(**BACKBONE))
    state = {f"teacher.backbone.{name}": tensor for name, tensor in backbone.state_dict().items()}
    torch.save({"format": 1, "step": step, "method": state}, folder / f"step-{step:08d}.pt")


# --- curves


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), points=st.integers(1, 20))
@settings(deadline=None)
def test_curve_keeps_the_mean_of_every_bin_however_often_it_was_thinned(values: list[float], points: int):
    curve = Curve(points)
    for step, value in enumerate(values):
        curve.add(step, value)
    steps, means = curve.steps_and_values()
    bins = [range(at, min(at + curve.width, len(values))) for at in range(0, len(values), curve.width)]
    assert len(bins) <= points
    np.testing.assert_allclose(steps, [np.mean(of) for of in bins])
    np.testing.assert_allclose(means, [np.mean(values[of.start : of.stop]) for of in bins], atol=1e-6)


def test_rare_quantity_keeps_its_exact_steps():
    curve = Curve(points=500)
    for step in range(1000, 20_000, 1000):
        curve.add(step, step / 7)
    steps, values = curve.steps_and_values()
    assert steps == list(range(1000, 20_000, 1000))
    assert values == [step / 7 for step in steps]


# --- what a log may hold


def test_nan_is_left_out_of_the_curve_and_told():
    curves = Curves()
    for number, loss in enumerate([1.0, math.nan, math.inf, 4.0]):
        curves.add(line(number, loss=loss))
    assert curves.curves["loss"].steps_and_values() == ([0, 3], [1.0, 4.0])
    assert curves.not_finite == {"loss": 2}
    assert curves.lines == 4


@pytest.mark.parametrize(
    "broken",
    [
        b"\n",
        b"{\n",
        b"[1]\n",
        b'{"loss": 1}\n',
        b'{"step": "x"}\n',
        b'{"step": -1}\n',
        b'{"step": true}\n',
        b"\xff\n",
    ],
)
def test_line_that_is_no_record_is_counted_and_harms_nothing(broken: bytes):
    curves = Curves()
    for content in (line(0, loss=1.0), broken, line(1, loss=2.0)):
        curves.add(content)
    assert curves.broken == 1
    assert curves.curves["loss"].steps_and_values() == ([0, 1], [1.0, 2.0])


def test_phases_are_laid_one_behind_the_other():
    curves = Curves()
    for phase, step in [(1, 50), (1, 100), (2, 50), (2, 100)]:
        curves.add(line(step, phase=phase, loss=float(phase)))
    assert curves.phases == [("1", 0), ("2", 101)]
    assert curves.curves["loss"].steps_and_values() == ([50, 100, 151, 201], [1, 1, 2, 2])


def test_steps_taken_again_after_a_resume_replace_the_former_ones():
    curves = Curves()
    for step in range(10):
        curves.add(line(step, loss=0.0))
    for step in range(6, 9):
        curves.add(line(step, loss=1.0))
    steps, values = curves.curves["loss"].steps_and_values()
    assert steps == list(range(9))
    assert values == [0] * 6 + [1] * 3


# --- files that grow


def test_half_a_line_waits_for_its_end(tmp_path: Path):
    path, whole = tmp_path / "log.jsonl", line(1, loss=2.0)
    path.write_bytes(line(0, loss=1.0) + whole[:9])
    log = GrowingLog(path)
    assert (log.read().lines, log.read().broken) == (1, 0)
    with path.open("ab") as file:
        file.write(whole[9:])
    assert log.read().curves["loss"].steps_and_values() == ([0, 1], [1.0, 2.0])
    assert log.read().broken == 0


def test_only_what_was_added_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, taken = tmp_path / "log.jsonl", []
    monkeypatch.setattr(Curves, "add", lambda self, content: taken.append(content))
    path.write_bytes(line(0))
    log = GrowingLog(path)
    log.read()
    with path.open("ab") as file:
        file.write(line(1))
    log.read()
    assert taken == [line(0), line(1)]


def test_log_that_a_resumed_run_cut_is_read_anew(tmp_path: Path):
    folder = write_run(tmp_path / "run", range(20))
    log = GrowingLog(folder / "log.jsonl")
    assert log.read().last == 19
    beside = tmp_path / "beside"
    beside.write_bytes(b"".join(line(step, loss=9.0) for step in range(30)))
    beside.replace(folder / "log.jsonl")  # longer than before, as after a while of training
    assert log.read().last == 29
    assert set(log.read().curves["loss"].steps_and_values()[1]) == {9.0}


# --- runs in a folder


def test_runs_are_folders_with_a_log_and_the_embedded_models_comes_last(tmp_path: Path):
    write_run(tmp_path / "first", range(3))
    (tmp_path / "no-run").mkdir()
    (tmp_path / "file.pt").write_bytes(b"")
    assert list(Runs(tmp_path).all()) == ["first", "embedded"]
    assert list(Runs(None).all()) == ["embedded"]
    write_run(tmp_path / "begun-later", range(3))
    assert "begun-later" in Runs(tmp_path).all()


def test_embedded_log_has_every_plotted_quantity():
    status = Runs(None).status("embedded")
    assert (status.curves.broken, status.curves.not_finite) == (0, {})
    for chart in CHARTS:
        assert set(chart_table(chart, [status])["curve"]) == set(chart.curves.values())
    assert EMBEDDED_LOG.stat().st_size < 1_000_000
    assert [one.model for one in status.checkpoints] == ["random:embedded", "embedded"]


def test_status_has_finished_and_planned_steps(tmp_path: Path):
    write_run(tmp_path / "run", range(12))
    status = Runs(tmp_path).status("run")
    assert (status.steps, status.planned, status.state) == (12, 30, "live")
    write_run(tmp_path / "without", range(12), recipe=None)
    assert Runs(tmp_path).status("without").planned is None


def test_status_without_new_lines_changes_from_live_to_stopped(tmp_path: Path):
    folder = write_run(tmp_path / "run", range(3))
    runs = Runs(tmp_path)
    live = runs.status("run")
    assert status_text(live) == "Live, last line 0 s ago · 3 of 30 steps"
    long_ago = time.time() - 2 * LIVE_SECONDS
    os.utime(folder / "log.jsonl", (long_ago, long_ago))
    stopped = runs.status("run")
    assert status_text(stopped) == "Stopped: no line for 4 min · 3 of 30 steps"
    assert live.version != stopped.version
    with (folder / "log.jsonl").open("ab") as file:
        file.write(b"".join(line(step, loss=1.0) for step in range(3, 30)))
    assert status_text(runs.status("run")) == "Finished · 30 of 30 steps"


def test_chart_table_with_log_scales_drops_values_that_are_not_positive(tmp_path: Path):
    folder = write_run(tmp_path / "run", range(0))
    losses = {0: 10, 9: -1, 99: 100}
    (folder / "log.jsonl").write_bytes(b"".join(line(step, loss=loss) for step, loss in losses.items()))
    table = chart_table(CHARTS[0], [Runs(tmp_path).status("run")], log_steps=True, log_values=True)
    assert table["step"].tolist() == [0, 2]
    assert table["value"].tolist() == [1, 2]


def test_chart_table_of_several_runs_names_the_run(tmp_path: Path):
    for name in ("first", "second"):
        write_run(tmp_path / name, range(3))
    runs = Runs(tmp_path)
    table = chart_table(CHARTS[0], [runs.status("first"), runs.status("second")])
    assert set(table["curve"]) == {"first: Loss", "second: Loss"}


def collapsing(*kls: float) -> bytes:
    """A log with a line every hundred steps."""
    uniform = math.log(1024)
    return b"".join(line(100 * at, teacher_entropy=uniform, kl=kl, ln_k=uniform) for at, kl in enumerate(kls))


@pytest.mark.parametrize("kl", [0.0, 0.04])
def test_collapse_is_said_in_words(tmp_path: Path, kl: float):
    folder = write_run(tmp_path / "run", range(0))
    (folder / "log.jsonl").write_bytes(collapsing(kl))
    status = Runs(tmp_path).status("run")
    assert "collapse to the uniform output" in warnings_text(status)
    assert status.curves.warnings == [(0, status.curves.warning)]
    (folder / "log.jsonl").write_bytes(line(0, teacher_entropy=3.0, kl=1.0, ln_k=math.log(1024)))
    assert warnings_text(Runs(tmp_path).status("run")) == ""


def test_every_new_cause_is_warned_of_once_and_what_passed_is_no_longer_so(tmp_path: Path):
    folder = write_run(tmp_path / "run", range(0))
    (folder / "log.jsonl").write_bytes(collapsing(2.0, 0.01, 0.02, 0.03, 2.0, 0.01, 2.0))
    curves = Runs(tmp_path).status("run").curves
    assert [step for step, _ in curves.warnings] == [100, 500]
    assert curves.warning is None
    assert "collapse to the uniform output" in curves.warnings[0][1]


def test_warning_in_the_log_itself_is_told(tmp_path: Path):
    folder = write_run(tmp_path / "run", range(5))
    with (folder / "log.jsonl").open("ab") as file:
        file.write(json.dumps({"step": 5, "warning": "rank 3 of 64: raise the temperature"}).encode() + b"\n")
    curves = Runs(tmp_path).status("run").curves
    assert curves.warnings == [(5, "rank 3 of 64: raise the temperature")]


@pytest.mark.parametrize("name", ["none", "..", "../etc", "a\0b", None, ["run"], 3])
def test_status_of_unknown_run_is_refused_without_a_path(tmp_path: Path, name: object):
    with pytest.raises(NotHere) as caught:
        Runs(tmp_path).status(name)
    assert str(tmp_path) not in str(caught.value)


def test_version_changes_only_with_the_log(tmp_path: Path):
    folder = write_run(tmp_path / "run", range(3))
    runs = Runs(tmp_path)
    version = runs.status("run").version
    assert runs.status("run").version == version
    with (folder / "log.jsonl").open("ab") as file:
        file.write(line(3, loss=3.0))
    assert runs.status("run").version != version
    assert runs.status("run").steps == 4


def test_warnings_text_reports_values_that_are_not_finite_and_broken_lines(tmp_path: Path):
    folder = write_run(tmp_path / "run", range(2))
    with (folder / "log.jsonl").open("ab") as file:
        file.write(line(2, loss=math.nan) + b"{\n")
    text = warnings_text(Runs(tmp_path).status("run"))
    assert text == "**In this log loss was not finite once, 1 line could not be read.**"


# --- checkpoints


@pytest.fixture
def grown(tmp_path: Path) -> SimpleNamespace:
    """A run with two milestones, and an engine that knows its folder."""
    folder = write_run(tmp_path / "run", range(3))
    save_milestone(folder, 0, seed=1)
    save_milestone(folder, 20, seed=2)
    lab = Lab(Models(MODEL, tmp_path), Limits(), 64, precision="fp32", device="cpu")
    return SimpleNamespace(folder=folder, lab=lab, runs=Runs(tmp_path))


def test_milestone_is_seen_by_its_own_weights(grown: SimpleNamespace, encode):
    names = [one.model for one in grown.runs.status("run").checkpoints]
    assert names == ["run@0", "run@20"]
    seen = []
    for name, step in zip(names, (0, 20), strict=True):
        encoding = encode("kitten", name, 64, by=grown.lab)
        library = AttentionPredictor(
            str(grown.folder / f"step-{step:08d}.pt"), size=64, precision="fp32", device="cpu"
        )
        library.set_image(photos.example("kitten"))
        seen.append(encoding.queries_keys(1)[0])
        np.testing.assert_array_equal(seen[-1], library.queries_keys(1)[0])
    assert np.abs(seen[0].astype(float) - seen[1]).max() > 1e-3


def test_newest_checkpoint_has_a_name_that_a_later_one_does_not_share(grown: SimpleNamespace, encode):
    newest = grown.folder / "checkpoint.pt"
    (grown.folder / "step-00000020.pt").rename(newest)
    name = grown.runs.status("run").checkpoints[-1].model
    assert checkpoint_file(name, grown.runs.folder) == newest
    save_milestone(grown.folder, 40, seed=3)
    (grown.folder / "step-00000040.pt").replace(newest)
    assert checkpoint_file(name, grown.runs.folder) is None
    with pytest.raises(NotHere, match="no model of that name"):
        encode("kitten", name, 64, by=grown.lab)


@pytest.mark.parametrize(
    "name",
    ["run", "run@", "run@21", "../run@0", "run/../run@0", ".@0", "run@-1", "run@0/../../x", "run@newest.1"],
)
def test_what_is_no_checkpoint_finds_no_file(grown: SimpleNamespace, name: str):
    assert checkpoint_file(name, grown.runs.folder) is None


def test_many_checkpoints_are_thinned_with_the_first_and_the_last_kept(tmp_path: Path):
    folder = write_run(tmp_path / "run", range(1))
    for step in range(0, 30_000, 100):
        (folder / f"step-{step:08d}.pt").touch()
    steps = [one.step for one in Runs(tmp_path).status("run").checkpoints]
    assert len(steps) == MAX_CHECKPOINTS
    assert (steps[0], steps[-1]) == (0, 29_900)
    assert steps == sorted(set(steps))
