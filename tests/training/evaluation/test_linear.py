"""A grid of linear classifiers: training, selection, published heads."""

from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
from torch import nn

from dino_model.data.collection import open_images
from dino_model.data.framing import Framing
from dino_model.inference.features import FeatureExtractor, FeatureType
from dino_model.models.load import LoadedModel, load_model
from tests.training.runs import write_rectangles
from training.evaluation import linear
from training.evaluation import run as evaluation
from training.evaluation.linear import FeatureSpec, LinearProbeGrid, batches
from training.evaluation.options import Linear

OPTIONS = Linear(
    data=Path(), rates=(0.01, 0.3), features=("1", "2+average"), epochs=3, batch=20, precision="fp32"
)


def train_alone(features, labels, spec, rate, first) -> nn.Linear:
    """Train one classifier by torch's own layers, as the official code does."""
    layer = nn.Linear(first.weight.shape[1], 3)
    with torch.no_grad():
        layer.weight.copy_(first.weight)
        layer.bias.zero_()
    optimizer = torch.optim.SGD(layer.parameters(), rate * OPTIONS.batch / 256, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, OPTIONS.epochs)
    for epoch in range(OPTIONS.epochs):
        for chosen in batches(len(labels), OPTIONS, epoch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(layer(spec.select(features[chosen])), labels[chosen]).backward()
            optimizer.step()
        schedule.step()
    return layer


def test_grid_trains_each_classifier_as_alone():
    labels = torch.arange(90) % 3
    features = torch.randn(90, 3, 5, generator=torch.Generator().manual_seed(0)) + labels[:, None, None]
    first, grid = (LinearProbeGrid(OPTIONS, 5, 3) for _ in range(2))
    fast = LinearProbeGrid(replace(OPTIONS, precision="bf16"), 5, 3)
    for each in (grid, fast):
        each.train(features, labels)
    for exact, rounded in zip(grid.weights, fast.weights, strict=True):
        assert torch.cosine_similarity(exact.flatten(), rounded.flatten(), dim=0) > 0.999
    for kind, spec in enumerate(first.specs):
        for number, rate in enumerate(OPTIONS.rates):
            alone = train_alone(features, labels, spec, rate, first.classifier(kind, number))
            found = grid.classifier(kind, number)
            torch.testing.assert_close(found.weight, alone.weight.detach(), rtol=0, atol=1e-5)
            torch.testing.assert_close(found.bias, alone.bias.detach(), rtol=0, atol=1e-5)
            correct = (found.scores(spec.select(features)).argmax(1) == labels).float().mean() * 100
            assert grid.score(features, labels)[kind, number] == pytest.approx(float(correct))


def test_grid_begins_with_small_weights_and_no_bias():
    (weights, _) = LinearProbeGrid(OPTIONS, 400, 10).weights  # [400 values and a bias, rates * classes]
    assert weights[:-1].std() == pytest.approx(0.01, rel=0.05)
    assert not weights[-1].any()


def test_linear_command_selects_on_held_out_images_and_trains_on_all(shapes, evaluate, capsys, monkeypatch):
    trained, train = [], LinearProbeGrid.train

    def record(grid: LinearProbeGrid, features: torch.Tensor, labels: torch.Tensor) -> None:
        trained.append((len(grid.options.rates), len(grid.specs), len(labels)))
        train(grid, features, labels)

    monkeypatch.setattr(LinearProbeGrid, "train", record)
    words = ("--data", shapes, "--size", 32, "--epochs", 4, "--batch", 8)
    one, other = evaluate("linear", *words, "--model", "pixels", "--model", "random:embedded")["results"]
    shown = capsys.readouterr().out
    assert "the one feature of pixels is used: the pooled output of a Pixels" in shown
    assert "selected on 2 training images: " in shown
    assert (len(one["grid"]), len(other["grid"]), len(other["grid"][0])) == (1, 3, 13)
    assert trained == [(13, 1, 16), (1, 1, 18), (13, 3, 16), (1, 1, 18)]


@pytest.mark.parametrize("spec", [FeatureSpec(1, "interleaved"), FeatureSpec(4)], ids=str)
def test_published_head_predicts_from_its_features(spec: FeatureSpec, shapes, evaluate, tmp_path: Path):
    """A head of the means of the classes, in the file and the layout of the official code."""
    model, images, file = load_model("random:embedded"), open_images(shapes), tmp_path / "head.pth"
    framing = Framing(32, model.mean, model.std)
    extractor = FeatureExtractor(model, framing, FeatureType(4, "average", "cls"), device="cpu")
    features = spec.select(extractor.extract(images).features.unflatten(1, (5, -1)))
    labels = torch.tensor(images.labels)
    means = torch.stack([features[labels == label].mean(dim=0) for label in range(3)])
    tensors = {"module.linear.weight": means, "module.linear.bias": -means.square().sum(dim=1) / 2}
    torch.save({"epoch": 100, "state_dict": tensors, "best_acc": 1.0}, file)
    tested = [images.names.index(name) for name in ("a/004.png", "a/009.png", "c/004.png")]
    nearest = torch.cdist(features[tested], means).argmin(dim=1)
    expected = (nearest == labels[tested]).double().mean() * 100
    assert expected > 50, "a head that guesses compares nothing"
    words = ("linear", "--data", shapes, "--size", 32, "--model", model.name, "--head", file)
    assert evaluate(*words)["results"][0]["metrics"]["top1"] == pytest.approx(float(expected))
    torch.save({"linear.weight": torch.ones(7, means.shape[1]), "linear.bias": torch.ones(7)}, file)
    with pytest.raises(ValueError, match=r"head\.pth has 7 classes, .*shapes has 3"):
        evaluate(*words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vit_small_patch16_dinov3", "linear --epochs 2 --features 2+average"),
        ("eva02_tiny_patch14_224", "copy-detection synthetic --copies 2"),
    ],
)
def test_evaluation_of_eva_family_reads_blocks_and_patches(name, words, shapes, evaluate, monkeypatch):
    backbone = timm.create_model(
        name, num_classes=0, dynamic_img_size=True, depth=2, embed_dim=48, num_heads=2
    )
    model = LoadedModel(name, backbone.eval(), (0.5,) * 3, (0.5,) * 3, "random weights", None)
    monkeypatch.setattr(evaluation, "load_model", lambda *_, **__: model)
    (result,) = evaluate(*words.split(), "--data", shapes, "--size", 112, "--precision", "fp32")["results"]
    assert result["metrics"]


def test_fetch_official_head_uses_published_address(tmp_path: Path, monkeypatch):
    files = []
    monkeypatch.setattr(linear.PublishedFile, "fetch", lambda file: files.append(file) or tmp_path)
    assert linear.fetch_official_head("dino_vits16") == tmp_path
    name = "dino_deitsmall16_linearweights.pth"
    address = f"https://dl.fbaipublicfiles.com/dino/dino_deitsmall16_pretrain/{name}"
    assert [(file.address, file.name) for file in files] == [(address, name)]


@pytest.mark.parametrize(("count", "selected"), [(155, 49), (156, None)])
def test_linear_warns_of_a_rate_selected_on_fewer_than_50_images(
    tmp_path, evaluate, capsys, count: int, selected: int | None
):
    """A fifth of the training images of each class, which are four fifths of all: 24 of 155, 25 of 156."""
    folder = write_rectangles(tmp_path / "few", {"a": count, "b": 156}, shade=0)
    words = ("--data", folder, "--model", "pixels", "--size", 16, "--epochs", 1, "--rates", 0.1)
    content = evaluate("linear", *words)
    expected = [f"input and rate are selected on {selected} images: other images can give others"]
    assert content["protocol"]["warnings"] == (expected if selected else [])
    assert ("warning: input and rate" in capsys.readouterr().out) == bool(selected)


def test_features_of_blocks_are_joined_with_the_mean_of_the_patches():
    features = torch.arange(24.0).reshape(2, 4, 3)  # [CLS] of three blocks, and the mean of the patches
    last, mean = features[:, 2], features[:, 3]
    assert torch.equal(FeatureSpec(2).select(features), torch.cat([features[:, 1], last], dim=1))
    assert torch.equal(FeatureSpec(1, "after").select(features), torch.cat([last, mean], dim=1))
    mixed = FeatureSpec(1, "interleaved").select(features)
    assert (mixed[:, ::2].equal(last), mixed[:, 1::2].equal(mean)) == (True, True)
