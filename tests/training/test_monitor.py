from pathlib import Path

import pytest
import torch
from torch import nn

from dino_model.collections import Images
from dino_model.features import ImageFeatures
from training import monitor
from training.doctor import Facts
from training.methods.method import Method
from training.monitor import Monitor, Probe, progress_bar
from training.recipe import Recipe

HEALTHY = Facts(steps=1000, steps_per_epoch=100, batch_size=8)


class TwoNetworks(Method):
    """A method without a loss."""

    @classmethod
    def from_config(cls, config, backbone, schedules, classes):
        raise NotImplementedError

    def forward(self, batch, step):
        raise NotImplementedError

    def backbones(self):
        return {"online": nn.Linear(1, 1), "target": nn.Linear(2, 2)}


def test_monitor_reports_a_problem_once_until_it_is_gone(capsys):
    watch = Monitor(progress_bar(0, 450), TwoNetworks(), None, 0, HEALTHY)
    for step in range(450):
        watch(step, {"spread": 0.5 if step < 100 or 300 <= step < 400 else 0.001}, [])
    said = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    # At 300 it is known already; at 400 it is gone, so that it is reported again at the end.
    assert [line.partition(": ")[0] for line in said] == ["warning at step 200", "warning at step 450"]
    assert "spread 0.0010 of 1" in said[0]


class FakeProbe:
    def evaluate(self, network):
        return {"knn": 10.0 * network.in_features, "rank": 1.0 + network.in_features}


def test_monitor_probes_every_network():
    watch = Monitor(progress_bar(0, 4), TwoNetworks(), FakeProbe(), 2, HEALTHY)
    lines = [watch.evaluate(step) for step in range(4)]
    probed = {"knn_online": 10.0, "rank_online": 2.0, "knn_target": 20.0, "rank_target": 3.0}
    assert lines == [{}, probed] * 2


@pytest.fixture
def labelled(monkeypatch):
    """Twenty pictures of two classes whose features say nothing of the class but who they are."""
    images = Images(tuple(map(str, range(20))), tuple(i % 2 for i in range(20)), ("a", "b"), Path())
    monkeypatch.setattr(Images, "read", lambda *_: None)
    seen = {}

    def of(extractor, images):
        seen.update(vars(extractor.view), precision=extractor.precision)
        return ImageFeatures(images, torch.eye(20)[[int(name) for name in images.names]], ())

    monkeypatch.setattr(monitor.FeatureExtractor, "extract", of)
    return images, seen


def test_probe_classifies_held_out_images(labelled, monkeypatch):
    images, _ = labelled
    votes = {}

    def accuracy(train, train_labels, test, test_labels, *, k):
        votes.update(train=train, test=test, k=k, train_labels=train_labels, test_labels=test_labels)
        return type("Result", (), {"top1": 1.0})

    monkeypatch.setattr(monitor, "knn_accuracy", accuracy)
    Probe(images, Recipe(), "fp32", torch.device("cpu")).evaluate(nn.Identity())
    voting, tested = votes["train"].argmax(1).tolist(), votes["test"].argmax(1).tolist()
    assert tested == [4, 9, 14, 19]
    assert sorted(voting + tested) == list(range(20))
    assert votes["k"] == 16
    assert votes["test_labels"].tolist() == [0, 1, 0, 1]
    assert votes["train_labels"].tolist() == [i % 2 for i in voting]
