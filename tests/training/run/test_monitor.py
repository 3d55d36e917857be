from pathlib import Path

import pytest
import torch

from dino_model.data.collection import Images, open_images
from dino_model.inference.features import FeatureExtractor, ImageFeatures
from dino_model.runtime.progress import progress
from tests.training.runs import noise
from training.evaluation.knn import knn_accuracy
from training.evaluation.run import Pixels
from training.recipes.recipe import Recipe
from training.run import monitor
from training.run.doctor import RunSettings
from training.run.monitor import Monitor, Probe


def test_monitor_reports_a_problem_once_until_it_is_gone(capsys):
    settings = RunSettings(steps=1000, steps_per_epoch=100, batch_size=8)
    watch = Monitor(progress((), "steps", 450), None, None, 0, settings)
    for step in range(450):
        watch(step, {"spread": 0.5 if step < 100 or 300 <= step < 400 else 0.001}, [])
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    # At 300 it is known; at 400 it is gone, so that it is reported again at the end.
    assert [line.partition(": ")[0] for line in warnings] == ["warning at step 200", "warning at step 450"]
    assert "spread 0.0010 of 1" in warnings[0]


def test_monitor_keeps_the_last_1000_lines_and_shows_three_metrics():
    watch = Monitor(progress((), "steps", 2000), None, None, 0, RunSettings(2000, 100, 8))
    for step in range(1050):
        watch(step, {"loss": 1.0, "kl": 0.25, "ln_k": 5.5451774, "lr": 0.1}, [])
    assert [line["step"] for line in watch.recent] == list(range(50, 1050))
    assert watch.progress.postfix == "loss=1, kl=0.25, ln_k=5.545"


def test_probe_classifies_images_by_the_votes_of_others(tmp_path: Path, monkeypatch):
    """Noise has no class: an image that had a vote of its own would be classified correctly."""
    images = open_images(noise(tmp_path, 60, 2, 20, 20))
    votes = []
    monkeypatch.setattr(
        monitor, "knn_accuracy", lambda *given, k: votes.append((given, k)) or knn_accuracy(*given, k=k)
    )
    found = Probe(images, Recipe(), "fp32", torch.device("cpu")).evaluate(Pixels())
    (((_, labels, _, truth), k),) = votes
    rest = [label for number, label in enumerate(images.labels) if number % 5 != 4]
    assert (labels.tolist(), truth.tolist(), k) == (rest, list(images.labels[4::5]), 20)
    assert found["knn"] < 90
    assert 50 < found["rank"] <= 60
    assert "lift" not in found


def test_probe_takes_evenly_at_most_its_limit_of_images(tmp_path: Path, monkeypatch):
    seen, honest = [], FeatureExtractor.extract

    def extract(extractor: FeatureExtractor, images: Images) -> ImageFeatures:
        seen.append(list(images.names))
        return honest(extractor, images)

    monkeypatch.setattr(FeatureExtractor, "extract", extract)
    images = open_images(noise(tmp_path, 30, 2, 20, 20))
    Probe(images, Recipe(), "fp32", torch.device("cpu"), limit=12).evaluate(Pixels())
    assert seen == [list(images.names[::3])]


@pytest.mark.parametrize(("count", "taken"), [(2500, 2500), (2501, 1251)])
def test_probe_takes_at_most_2500_images(tmp_path: Path, monkeypatch, count, taken):
    def extract(extractor: FeatureExtractor, images: Images) -> ImageFeatures:
        raise KeyboardInterrupt(len(images))

    monkeypatch.setattr(FeatureExtractor, "extract", extract)
    images = open_images(noise(tmp_path, 2, 2, 20, 20)).subset(number % 2 for number in range(count))
    with pytest.raises(KeyboardInterrupt, match=f"^{taken}$"):
        Probe(images, Recipe(), "fp32", torch.device("cpu")).evaluate(Pixels())
