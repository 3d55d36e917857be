"""Logs of training runs: read while they grow, thinned to a screen's width, honest about what is broken."""

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
    CHECKPOINTS_OFFERED,
    EMBEDDED_LOG,
    LIVE_FOR,
    Curve,
    Curves,
    GrowingLog,
    Runs,
    checkpoint_file,
)
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.predictor import AttentionPredictor

create_app = TestClient = None  # its tests move with the tab

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


def test_embedded_models_log_ships_and_draws_every_quantity_of_the_paper():
    told = Runs(None).told("embedded")
    assert told["broken"] == 0
    assert told["notFinite"] == {}
    assert {"loss", "teacher_entropy", "kl", "ln_k", "knn_teacher", "knn_student"} <= {
        name for name, curve in told["curves"].items() if curve["steps"]
    }
    assert EMBEDDED_LOG.stat().st_size < 1_000_000
    assert [checkpoint["model"] for checkpoint in told["checkpoints"]] == ["random:embedded", "embedded"]


def test_run_tells_steps_done_and_planned(tmp_path: Path):
    write_run(tmp_path / "run", range(12))
    told = Runs(tmp_path).told("run")
    assert (told["steps"], told["planned"], told["state"]) == (12, 30, "live")
    write_run(tmp_path / "without", range(12), recipe=None)
    assert Runs(tmp_path).told("without")["planned"] is None


def test_run_that_is_written_no_more_stops_being_live_and_the_page_hears_of_it(tmp_path: Path):
    folder = write_run(tmp_path / "run", range(3))
    client = TestClient(create_app(Lab(Models(MODEL, tmp_path), Limits(), 64), ["testserver"]))
    told = client.get("/api/runs/run").json()
    assert told["state"] == "live"
    long_ago = time.time() - 2 * LIVE_FOR
    os.utime(folder / "log.jsonl", (long_ago, long_ago))
    told = client.get("/api/runs/run", params={"version": told["version"]}).json()  # not 204: there is news
    assert told["state"] == "stopped"
    with (folder / "log.jsonl").open("ab") as file:
        file.write(b"".join(line(step, loss=1.0) for step in range(3, 30)))
    assert client.get("/api/runs/run").json()["state"] == "finished"


def collapsing(*kls: float) -> bytes:
    """A log with a line every hundred steps."""
    uniform = math.log(1024)
    return b"".join(line(100 * at, teacher_entropy=uniform, kl=kl, ln_k=uniform) for at, kl in enumerate(kls))


@pytest.mark.parametrize("kl", [0.0, 0.04])
def test_collapse_is_said_in_words(tmp_path: Path, kl: float):
    folder = write_run(tmp_path / "run", range(0))
    (folder / "log.jsonl").write_bytes(collapsing(kl))
    told = Runs(tmp_path).told("run")
    assert "collapse to the uniform output" in told["warning"]
    assert told["warnings"] == [{"step": 0, "message": told["warning"]}]
    (folder / "log.jsonl").write_bytes(line(0, teacher_entropy=3.0, kl=1.0, ln_k=math.log(1024)))
    assert Runs(tmp_path).told("run")["warning"] is None


def test_every_new_cause_is_warned_of_once_and_what_passed_is_no_longer_so(tmp_path: Path):
    folder = write_run(tmp_path / "run", range(0))
    (folder / "log.jsonl").write_bytes(collapsing(2.0, 0.01, 0.02, 0.03, 2.0, 0.01, 2.0))
    told = Runs(tmp_path).told("run")
    assert [warning["step"] for warning in told["warnings"]] == [100, 500]
    assert told["warning"] is None
    assert "collapse to the uniform output" in told["warnings"][0]["message"]


def test_warning_in_the_log_itself_is_told(tmp_path: Path):
    folder = write_run(tmp_path / "run", range(5))
    with (folder / "log.jsonl").open("ab") as file:
        file.write(json.dumps({"step": 5, "warning": "rank 3 of 64: raise the temperature"}).encode() + b"\n")
    told = Runs(tmp_path).told("run")
    assert told["warnings"] == [{"step": 5, "message": "rank 3 of 64: raise the temperature"}]


def test_missing_log_is_an_error_that_names_no_path(tmp_path: Path):
    client = TestClient(create_app(Lab(Models(MODEL, tmp_path), Limits(), 64), ["testserver"]))
    for name in ("none", "..", "%2e%2e%2fetc", "a%00b"):
        answer = client.get(f"/api/runs/{name}")
        assert answer.status_code in (404, 422)
        assert str(tmp_path) not in answer.text


def test_page_hears_nothing_while_a_log_stands_still(tmp_path: Path):
    folder = write_run(tmp_path / "run", range(3))
    client = TestClient(create_app(Lab(Models(MODEL, tmp_path), Limits(), 64), ["testserver"]))
    told = client.get("/api/runs/run").json()
    assert client.get("/api/runs/run", params={"version": told["version"]}).status_code == 204
    with (folder / "log.jsonl").open("ab") as file:
        file.write(line(3, loss=3.0))
    assert client.get("/api/runs/run", params={"version": told["version"]}).json()["steps"] == 4
    assert [run["name"] for run in client.get("/api/runs").json()["runs"]] == ["run", "embedded"]


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
    names = [checkpoint["model"] for checkpoint in grown.runs.told("run")["checkpoints"]]
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
    name = grown.runs.told("run")["checkpoints"][-1]["model"]
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
    steps = [checkpoint["step"] for checkpoint in Runs(tmp_path).told("run")["checkpoints"]]
    assert len(steps) == CHECKPOINTS_OFFERED
    assert (steps[0], steps[-1]) == (0, 29_900)
    assert steps == sorted(set(steps))
