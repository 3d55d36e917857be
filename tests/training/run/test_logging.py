import sys
import types

import pytest
import torch

from tests.training.runs import pretrain, resume
from training.run.folder import Run
from training.run.logging import Diverged, MetricLogger, StepMetrics, json_lines


def test_metrics_keep_their_order_without_nan_and_infinity():
    given = {"loss": torch.tensor(2.0), "lr": 0.5, "norm": torch.tensor(torch.inf), "kl": torch.tensor(1.5)}
    assert list(StepMetrics(given).read().items()) == [("loss", 2.0), ("lr", 0.5), ("kl", 1.5)]


def test_metric_logger_on_a_slow_device_writes_in_order_and_stops_at_nan(tmp_path, monkeypatch):
    monkeypatch.setattr(StepMetrics, "has_arrived", lambda _: False)
    run, seen = Run(tmp_path), []
    logger = MetricLogger([json_lines(run.log)], lambda step, *_: seen.append(step))

    def add(step, loss):
        logger.add(step, StepMetrics({"loss": torch.tensor(loss), "lr": 0.2}), {}, [])
        return [line["step"] for line in run.lines()]

    assert add(0, 2.0) == []
    assert add(1, 1.0) == [0]
    logger.flush()  # before a checkpoint
    assert add(2, torch.nan) == [0, 1]
    with pytest.raises(Diverged, match=r"the loss is nan at step 2, with learning rate 0\.2"):
        add(3, 1.0)
    assert add(4, 0.5) == [0, 1]
    with logger:
        pass
    assert [line["step"] for line in run.lines()] == seen == [0, 1, 4]


def test_tensorboard_after_resume_has_every_metric_once(images, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = Run(tmp_path / "run")
    assert pretrain(images, run.folder, "--log", "tensorboard", "--epochs", 2) == 0
    assert resume(run.folder, "--log", "tensorboard", "--epochs", 3) == 0
    found = EventAccumulator(str(run.folder / "tensorboard")).Reload()
    lines = run.lines()
    assert len(lines) == 6
    assert set(found.Tags()["scalars"]) == {name for line in lines for name in line} - {"step"}
    losses = [(event.step, event.value) for event in found.Scalars("loss")]
    assert losses == [(line["step"], pytest.approx(line["loss"])) for line in lines]


def test_wandb_after_resume_continues_its_run(monkeypatch, images, tmp_path):
    begun, lines, ended = [], [], []

    def init(**settings):
        begun.append(settings)
        return types.SimpleNamespace(
            id="a1b2",
            log=lambda metrics, step: lines.append({"step": step} | metrics),
            finish=lambda: ended.append(1),
        )

    wandb = types.SimpleNamespace(init=init, Error=RuntimeError, __spec__=types.SimpleNamespace(name="wandb"))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    run = Run(tmp_path / "run")
    assert pretrain(images, run.folder, "--log", "wandb", "--epochs", 2) == 0
    assert resume(run.folder, "--log", "wandb", "--epochs", 3) == 0
    assert [settings["id"] for settings in begun] == [None, "a1b2"]
    assert begun[0]["config"]["method"] == "dino"
    assert lines == run.lines()
    assert len(ended) == 2
