"""A grid of linear classifiers: training, selection, resuming, published heads."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from torch import nn

from dino_model.collections import open_images
from dino_model.features import FeatureExtractor, FeatureType
from dino_model.views import View
from dino_model.weights import LoadedModel, load_model
from tests.training.evaluation.pictures import evaluate, write_pictures
from training.evaluation import linear
from training.evaluation import run as evaluation
from training.evaluation.linear import FeatureSpec, LinearProbeGrid, batches
from training.evaluation.options import Linear
from training.evaluation.run import random_view


def drawn() -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    return torch.randn(90, 3, 5, generator=random) + labels[:, None, None], labels


OPTIONS = Linear(
    data=Path(), rates=(0.01, 0.3), features=("1", "2+average"), epochs=3, batch=20, precision="fp32"
)


def plain(features, labels, spec, rate, first):
    """One classifier by torch's own layers, as the official code trains it."""
    layer = nn.Linear(first.weights.shape[1], 3)
    with torch.no_grad():
        layer.weight.copy_(first.weights)
        layer.bias.zero_()
    optimizer = torch.optim.SGD(layer.parameters(), rate * OPTIONS.batch / 256, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, OPTIONS.epochs)
    for epoch in range(OPTIONS.epochs):
        for chosen in batches(len(labels), OPTIONS, epoch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(layer(spec.select(features[chosen])), labels[chosen])
            loss.backward()
            optimizer.step()
        schedule.step()
    return layer


def trained(features, labels, precision="fp32"):
    grid = LinearProbeGrid(replace(OPTIONS, precision=precision), 5, 3)
    grid.train(features, labels)
    return grid


def test_grid_trains_each_classifier_as_alone():
    features, labels = drawn()
    heads, first = trained(features, labels), LinearProbeGrid(OPTIONS, 5, 3)
    for exact, fast in zip(heads.weights, trained(features, labels, "bf16").weights, strict=True):
        assert torch.cosine_similarity(exact.flatten(), fast.flatten(), dim=0) > 0.999
    for kind, spec in enumerate(first.specs):
        for number, rate in enumerate(OPTIONS.rates):
            alone = plain(features, labels, spec, rate, first.head(kind, number))
            found = heads.head(kind, number)
            torch.testing.assert_close(found.weights, alone.weight.detach(), rtol=0, atol=1e-5)
            torch.testing.assert_close(found.bias, alone.bias.detach(), rtol=0, atol=1e-5)
            right = (found.scores(features).argmax(1) == labels).float().mean() * 100
            assert heads.top1(features, labels)[kind, number] == pytest.approx(float(right))


def test_random_view_follows_seed_and_covers_scales():
    picture = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    assert torch.equal(random_view(picture, 32, 5), random_view(picture, 32, 5))
    assert not torch.equal(random_view(picture, 32, 5), random_view(picture, 32, 6))
    ramp = np.repeat(np.arange(200, dtype=np.uint8)[None, :, None], 200, axis=0).repeat(3, axis=2)
    views = [random_view(ramp, 16, seed)[0].float() for seed in range(200)]
    mirrored = sum(view[0, 0] > view[0, -1] for view in views)
    assert 70 < mirrored < 130
    widths = torch.tensor([float(view.max() - view.min()) for view in views]) / 200
    assert 0.2 < widths.min() < 0.45
    assert widths.max() > 0.9


def run(*words: object) -> None:
    evaluate("linear", *words)


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "shapes", {"a": 10, "b": 10, "c": 10})


def options(shapes: Path) -> tuple[str | Path, ...]:
    return ("--data", shapes, "--size", "32", "--epochs", "4", "--batch", "8")


def test_linear_command_selects_on_training_images_and_writes_grid(shapes: Path, tmp_path: Path, capsys):
    file = tmp_path / "out.json"
    run(*options(shapes), "--model", "pixels", "--model", "random:embedded", "--json", file)
    shown = capsys.readouterr().out
    assert "pixels has no [CLS] token in its blocks: its one output feature is used" in shown
    assert "selected on 3 training images: " in shown
    one, other = json.loads(file.read_text())["results"]
    assert (len(one["grid"]), len(other["grid"]), len(other["grid"][0])) == (1, 3, 13)


def test_selected_classifier_trains_on_all_training_images(shapes: Path, monkeypatch):
    seen, honest = [], LinearProbeGrid.train

    def learn(heads: LinearProbeGrid, features: torch.Tensor, labels: torch.Tensor) -> None:
        seen.append((len(heads.options.rates), len(heads.specs), len(labels)))
        honest(heads, features, labels)

    monkeypatch.setattr(LinearProbeGrid, "train", learn)
    run(*options(shapes), "--model", "pixels")
    assert seen == [(13, 1, 21), (1, 1, 24)]


@pytest.mark.parametrize("spec", [FeatureSpec(1), FeatureSpec(1, "interleaved"), FeatureSpec(4)], ids=str)
def test_published_head_predicts_from_its_features(spec: FeatureSpec, shapes: Path, tmp_path: Path):
    """A head of the means of the classes, in the file and the layout of the official code."""
    model, images = load_model("random:embedded"), open_images(shapes)
    extractor = FeatureExtractor(
        model, View(32, model.mean, model.std), FeatureType(4, "average"), device="cpu"
    )
    seen = spec.select(extractor.extract(images).features.unflatten(1, (5, -1)))
    labels = torch.tensor(images.labels)
    means = torch.stack([seen[labels == label].mean(dim=0) for label in range(3)])
    tensors = {"module.linear.weight": means, "module.linear.bias": -means.square().sum(dim=1) / 2}
    torch.save({"epoch": 100, "state_dict": tensors, "best_acc": 1.0}, tmp_path / "head.pth")
    tested = torch.arange(len(labels)) % 5 == 4
    nearest = torch.cdist(seen[tested], means).argmin(dim=1)
    expected = (nearest == labels[tested]).double().mean() * 100
    figures = tmp_path / "out.json"
    words = ("--data", shapes, "--size", "32", "--model", model.name, "--device", "cpu", "--json", figures)
    run(*words, "--head", tmp_path / "head.pth")
    (found,) = json.loads(figures.read_text())["results"]
    assert found["metrics"]["top1"] == pytest.approx(float(expected))
    assert expected > 50, "a head that guesses compares nothing"


LINEAR = ("linear", "--epochs", "2", "--features", "2+average")
COPIES = ("copy-detection", "synthetic", "--copies", "2")


@pytest.mark.parametrize(
    ("name", "words"), [("vit_small_patch16_dinov3", LINEAR), ("eva02_tiny_patch14_224", COPIES)]
)
def test_evaluation_of_eva_family_reads_blocks_and_patches(name: str, words, tmp_path: Path, monkeypatch):
    backbone = timm.create_model(
        name, num_classes=0, dynamic_img_size=True, depth=2, embed_dim=48, num_heads=2
    )
    model = LoadedModel(name, backbone.eval(), (0.5,) * 3, (0.5,) * 3, "random weights", None)
    monkeypatch.setattr(evaluation, "load_model", lambda *_, **__: model)
    shapes = write_pictures(tmp_path / "shapes", {"a": 10, "b": 10})
    figures = tmp_path / "out.json"
    computed = ("--size", "112", "--json", figures, "--precision", "fp32", "--device", "cpu")
    evaluate(*words, "--data", shapes, *computed)
    assert json.loads(figures.read_text())["results"][0]["metrics"]


def test_published_head_of_other_classes_raises(shapes: Path, tmp_path: Path):
    head = tmp_path / "head.pth"
    torch.save({"linear.weight": torch.ones(7, 192), "linear.bias": torch.ones(7)}, head)
    with pytest.raises(ValueError, match=r"head\.pth has 7 classes, .*shapes has 3"):
        run("--data", shapes, "--size", "32", "--head", head)


def test_fetch_official_head_uses_published_address(tmp_path: Path, monkeypatch):
    asked = []
    monkeypatch.setattr(linear.PublishedFile, "fetch", lambda file: asked.append(file) or tmp_path)
    assert linear.fetch_official_head("dino_vits16") == tmp_path
    name = "dino_deitsmall16_linearweights.pth"
    address = f"https://dl.fbaipublicfiles.com/dino/dino_deitsmall16_pretrain/{name}"
    assert [(file.address, file.name) for file in asked] == [(address, name)]
