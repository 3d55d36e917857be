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

from app.errors import NotHere
from app.runs import (
    CHARTS,
    LIVE_SECONDS,
    MAX_CHECKPOINTS,
    POINTS,
    Runs,
    TrainingRun,
    chart_table,
    milestone_file,
    status_text,
    warnings_text,
)
from dino_model import photographs
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.predictor import AttentionPredictor
from tests.app.conftest import small_lab

BACKBONE = {"architecture": "vit_tiny", "patch_size": 16, "image_size": 64, "depth": 2}
UNIFORM = math.log(1024)


def line(step: int, **values: float) -> bytes:
    return json.dumps({"step": step, **values}).encode() + b"\n"


def write_run(folder: Path, *lines: bytes, **config: object) -> Path:
    """A run of 30 planned steps with these lines in its log; default: three lines."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = {"epochs": 3, "batch_size": 4, "method": {}}
    settings = {"method": "dino", "recipe": recipe, "num_images": 42, "backbone": BACKBONE} | config
    (folder / "config.json").write_text(json.dumps(settings))
    default = [line(step, loss=float(step)) for step in range(3)]
    (folder / "log.jsonl").write_bytes(b"".join(lines or default))
    return folder


def append(folder: Path, content: bytes) -> None:
    with (folder / "log.jsonl").open("ab") as file:
        file.write(content)


def read(folder: Path, *lines: bytes) -> TrainingRun:
    """Write a run with these lines and return it."""
    return Runs(write_run(folder / "run", *lines).parent).read("run")


def points(status: TrainingRun) -> tuple[list[float], list[float]]:
    """Steps and values of the loss as they are plotted."""
    table = chart_table(CHARTS[0], status)
    return table["step"].tolist(), table["value"].tolist()


def save_milestone(folder: Path, step: int, seed: int) -> None:
    torch.manual_seed(seed)
    backbone = create_backbone(BackboneConfig(**BACKBONE))
    state = {f"teacher.backbone.{name}": tensor for name, tensor in backbone.state_dict().items()}
    torch.save({"format": 1, "step": step, "method": state}, folder / f"step-{step:08d}.pt")


# --- what a log may hold


def test_long_curve_is_reduced_to_means(tmp_path):
    steps, values = points(read(tmp_path, *(line(step, loss=step % 4) for step in range(4 * POINTS))))
    assert steps == [4 * number + 1.5 for number in range(POINTS)]
    assert values == [1.5] * POINTS


def test_values_that_are_not_finite_and_broken_lines_are_left_out_and_counted(tmp_path):
    broken = [
        b"\n", b"{\n", b"[1]\n", b'{"loss": 1}\n', b'{"step": "x"}\n', b'{"step": -1}\n', b'{"step": true}\n',
        b"\xff\n",
    ]  # fmt: skip
    losses = [line(number, loss=loss) for number, loss in enumerate([1.0, math.nan, math.inf, 4.0])]
    status = read(tmp_path, *losses[:2], *broken, *losses[2:])
    assert points(status) == ([0, 3], [1, 4])
    text = warnings_text(status)
    assert "Values of loss that are not finite: 2" in text
    assert f"cannot be read: {len(broken)}" in text


def test_steps_of_a_later_phase_follow_those_of_the_phase_before(tmp_path):
    steps = [(1, 50), (1, 100), (2, 50), (2, 100)]
    status = read(tmp_path, *(line(step, phase=phase, loss=float(phase)) for phase, step in steps))
    assert points(status) == ([50, 100, 151, 201], [1, 1, 2, 2])


def test_steps_repeated_after_a_resume_replace_the_former_ones(tmp_path):
    first, second = ([line(step, loss=float(loss)) for step in range(*steps)]
                     for loss, steps in ((0, (10,)), (1, (6, 9))))  # fmt: skip
    assert points(read(tmp_path, *first, *second)) == (list(range(9)), [0] * 6 + [1] * 3)


def test_growing_log_is_read_to_its_last_complete_line_and_replaced_log_anew(tmp_path):
    folder, runs = write_run(tmp_path / "run", line(0, loss=1.0), line(1, loss=2.0)[:-5]), Runs(tmp_path)
    run = runs.read("run")
    version = run.version
    assert points(run)[0] == [0]
    assert runs.read("run").version == version
    append(folder, line(1, loss=2.0)[-5:])
    assert points(runs.read("run"))[1] == [1, 2]
    assert runs.read("run").version != version
    (folder / "other").write_bytes(line(0, loss=7.0))
    (folder / "other").replace(folder / "log.jsonl")
    assert points(runs.read("run")) == ([0], [7])


# --- runs


def test_runs_are_folders_with_a_log_and_the_embedded_models_comes_last(tmp_path):
    write_run(tmp_path / "first")
    (tmp_path / "no-run").mkdir()
    runs = Runs(tmp_path)
    assert list(runs.all()) == ["first", "embedded"]
    write_run(tmp_path / "begun-later")
    assert "begun-later" in runs.all()
    assert list(Runs(None).all()) == ["embedded"]


def test_embedded_log_has_every_plotted_quantity():
    status = Runs(None).read("embedded")
    assert warnings_text(status) == ""
    for chart in CHARTS:
        assert set(chart_table(chart, status)["curve"]) == set(chart.curves.values())
    assert [one.model for one in status.checkpoints] == ["random:embedded", "embedded"]


def test_status_without_new_lines_changes_from_live_to_stopped_to_finished(tmp_path):
    folder, runs = write_run(tmp_path / "run"), Runs(tmp_path)
    run = runs.read("run")
    version = run.version
    assert status_text(run) == "Live, last line 0 s ago · 3 of 30 steps"
    os.utime(folder / "log.jsonl", (time.time() - 2 * LIVE_SECONDS,) * 2)
    assert status_text(run) == "Stopped: no line for 4 min · 3 of 30 steps"
    assert run.version != version
    append(folder, b"".join(line(step, loss=1.0) for step in range(3, 30)))
    assert status_text(runs.read("run")) == "Finished · 30 of 30 steps"
    write_run(tmp_path / "without", recipe=None)
    assert status_text(runs.read("without")).endswith("· 3 steps")


def test_collapse_is_reported(tmp_path):
    collapsed = read(tmp_path, line(0, teacher_entropy=UNIFORM, kl=0.04, ln_k=UNIFORM))
    assert "collapse to the uniform output" in warnings_text(collapsed)
    assert warnings_text(read(tmp_path, line(0, teacher_entropy=3.0, kl=1.0, ln_k=UNIFORM))) == ""


@pytest.mark.parametrize("name", ["none", "..", "../etc", "a\0b", None, ["run"], 3])
def test_status_of_unknown_run_is_refused_without_a_path(tmp_path, name):
    with pytest.raises(NotHere) as caught:
        Runs(tmp_path).read(name)
    assert str(tmp_path) not in str(caught.value)


# --- checkpoints


@pytest.fixture
def grown(tmp_path: Path) -> SimpleNamespace:
    """A run with two milestones, and an engine that knows its folder."""
    folder = write_run(tmp_path / "run")
    save_milestone(folder, 0, seed=1)
    save_milestone(folder, 20, seed=2)
    lab = small_lab(folder=tmp_path)
    return SimpleNamespace(folder=folder, lab=lab, runs=Runs(tmp_path))


def test_milestone_is_encoded_with_its_own_weights(grown, encode):
    names = [one.model for one in grown.runs.read("run").checkpoints]
    assert names == ["run@0", "run@20"]
    found = []
    for name, step in zip(names, (0, 20), strict=True):
        path = str(grown.folder / f"step-{step:08d}.pt")
        library = AttentionPredictor(path, size=64, precision="fp32", device="cpu")
        library.set_image(photographs.image("kitten"))
        found.append(encode("kitten", name, 64, by=grown.lab).queries_keys(1)[0])
        np.testing.assert_array_equal(found[-1], library.queries_keys(1)[0])
    assert np.abs(found[0].astype(float) - found[1]).max() > 1e-3


def test_newest_checkpoint_is_encoded_anew_when_a_later_one_replaces_it(grown, encode):
    newest = grown.folder / "checkpoint.pt"
    (grown.folder / "step-00000020.pt").rename(newest)
    version = grown.runs.read("run").version
    name, lab = grown.runs.read("run").checkpoints[-1].model, small_lab(folder=grown.folder.parent)
    first = encode("kitten", name, 64, by=lab)
    save_milestone(grown.folder, 40, seed=3)
    (grown.folder / "step-00000040.pt").replace(newest)
    assert grown.runs.read("run").version != version
    second = encode("kitten", name, 64, by=lab)
    assert first.key.token != second.key.token
    assert (first.queries_keys(1)[0] != second.queries_keys(1)[0]).any()


@pytest.mark.parametrize(
    "name", ["run", "run@", "run@21", "../run@0", "run/../run@0", ".@0", "run@-1", "run@0/../../x"]
)
def test_milestone_file_of_an_invalid_name_is_none(grown, name):
    assert milestone_file(name, grown.runs.folder) is None


def test_many_checkpoints_are_thinned_with_the_first_and_the_last_kept(tmp_path):
    folder = write_run(tmp_path / "run")
    for step in range(0, 30_000, 100):
        (folder / f"step-{step:08d}.pt").touch()
    steps = [one.step for one in Runs(tmp_path).read("run").checkpoints]
    assert len(steps) == MAX_CHECKPOINTS
    assert (steps[0], steps[-1]) == (0, 29_900)
    assert steps == sorted(set(steps))
