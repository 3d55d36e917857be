from pathlib import Path

import torch
from torch import nn

from dino_model.collections import open_images
from dino_model.progress import progress
from tests.training.pictures import noise
from training.doctor import Facts
from training.evaluation.run import Pixels
from training.methods.method import Method
from training.monitor import Monitor, Probe
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
    watch = Monitor(progress((), "steps", 450), TwoNetworks(), None, 0, HEALTHY)
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
    watch = Monitor(progress((), "steps", 4), TwoNetworks(), FakeProbe(), 2, HEALTHY)
    lines = [watch.evaluate(step) for step in range(4)]
    probed = {"knn_online": 10.0, "rank_online": 2.0, "knn_target": 20.0, "rank_target": 3.0}
    assert lines == [{}, probed] * 2


def test_probe_classifies_images_by_the_votes_of_others(tmp_path: Path):
    """Noise has no class: an image that had a vote of its own would be classified correctly."""
    images = open_images(noise(tmp_path, 60, 2, 20, 20))
    found = Probe(images, Recipe(), "fp32", torch.device("cpu")).evaluate(Pixels())
    assert found["knn"] < 90
    assert 50 < found["rank"] <= 60
    assert "lift" not in found
