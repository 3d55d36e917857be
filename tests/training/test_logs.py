"""Metrics are read once the device has them, and lines are written in their order."""

import json

import pytest
import torch

from training.logging import Diverged, MetricLogger, Metrics, json_lines


class Late(Metrics):
    """As of an accelerator that is not done when it is asked."""

    def arrived(self):
        return False


def late(loss, lr=0.1):
    return Late({"loss": torch.tensor(loss), "kl": torch.tensor(1.0), "lr": lr})


def journal(path, seen):
    return MetricLogger([json_lines(path)], lambda *given: seen.append(given))


def steps(path):
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_metrics_keep_their_order_without_nan_and_infinity():
    given = {"loss": torch.tensor(2.0), "lr": 0.5, "norm": torch.tensor(torch.inf), "kl": torch.tensor(1.5)}
    assert list(Metrics(given).read().items()) == [("loss", 2.0), ("lr", 0.5), ("kl", 1.5)]


def test_metric_logger_writes_late_metrics_with_the_next_step(tmp_path):
    path, seen = tmp_path / "log.jsonl", []
    with journal(path, seen) as lines:
        lines.add(0, late(2.0), {}, [])
        assert steps(path) == []
        lines.add(1, late(1.0), {}, [])
        assert steps(path) == [0]
        lines.flush()  # before a checkpoint
        assert steps(path) == [0, 1]
        lines.add(2, late(0.5), {}, [])
    assert steps(path) == [0, 1, 2]
    assert [step for step, *_ in seen] == [0, 1, 2]


def test_metric_logger_names_the_step_of_a_nan_loss(tmp_path):
    path = tmp_path / "log.jsonl"
    lines = journal(path, [])
    lines.add(0, late(2.0), {}, [])
    lines.add(1, late(torch.nan, lr=0.2), {}, [])
    with pytest.raises(Diverged, match=r"the loss is nan at step 1, with learning rate 0\.2"):
        lines.add(2, late(1.0), {}, [])
    assert steps(path) == [0]
