"""A run is watched elsewhere, too, by what is installed."""

import sys
import types

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.training.runs import pretrain, resume
from training.run import Run


def test_tensorboard_after_resume_has_every_metric_once(images, tmp_path):
    run = Run(tmp_path / "run")
    log = ("--log", "tensorboard")
    assert pretrain(images, run.folder, *log, "--epochs", 2) == 0
    assert resume(run.folder, *log, "--epochs", 3) == 0
    found = EventAccumulator(str(run.folder / "tensorboard")).Reload()
    lines = run.lines()
    assert len(lines) == 6
    assert set(found.Tags()["scalars"]) == {name for line in lines for name in line} - {"step"}
    losses = [(event.step, event.value) for event in found.Scalars("loss")]
    assert losses == [(line["step"], pytest.approx(line["loss"])) for line in lines]


@pytest.fixture
def wandb(monkeypatch):
    """What stands for the package, and what it was told."""
    told = {"begun": [], "lines": [], "ended": 0}

    class Begun:
        id = "a1b2"

        def log(self, figures, step):
            told["lines"].append((step, figures))

        def finish(self):
            told["ended"] += 1

    module = types.ModuleType("wandb")
    module.__spec__ = types.SimpleNamespace(name="wandb")
    module.Error = type("Error", (Exception,), {})
    module.init = lambda **settings: (told["begun"].append(settings), Begun())[1]
    monkeypatch.setitem(sys.modules, "wandb", module)
    return told, module


def test_wandb_after_resume_continues_its_run(wandb, images, tmp_path):
    told, _ = wandb
    run = Run(tmp_path / "run")
    assert pretrain(images, run.folder, "--log", "wandb", "--epochs", 2) == 0
    assert resume(run.folder, "--log", "wandb", "--epochs", 3) == 0
    assert [begun["id"] for begun in told["begun"]] == [None, "a1b2"]
    assert told["begun"][0]["config"]["method"] == "dino"
    assert [{"step": step} | figures for step, figures in told["lines"]] == run.lines()
    assert told["ended"] == 2
