"""Labels from tables, several classes of an image, predictions of own images, confusion, saved heads."""

import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from dino_model.inference.classifier import FeatureSpec, ImageTask, LinearClassifier, SavedClassifier
from dino_model.inference.classifier import read_classifier as read
from dino_model.runtime.errors import SettingError
from segmentation.heads import PatchTask
from tests.commands import dino as dino_model
from tests.training.evaluation.test_linear import OPTIONS
from training.evaluation.linear import LinearProbeGrid, batches
from training.evaluation.metrics import multi_label_quality

MODEL = ("--model", "random:embedded", "--size", "32", "--precision", "fp32")


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


@pytest.fixture
def bands(tmp_path: Path) -> Path:
    """Folder of 40 images with a red band, a green band, both or none, and their labels.csv."""
    random, lines = np.random.default_rng(0), ["path,labels"]
    (tmp_path / "bands").mkdir()
    for number in range(40):
        image = random.integers(0, 60, (16, 16, 3), np.uint8)
        image[:8, :, 0] += np.uint8(160 * (number % 2))
        image[8:, :, 1] += np.uint8(160 * (number // 2 % 2))
        Image.fromarray(image).save(tmp_path / "bands" / f"{number:02}.png")
        names = ["red"] * (number % 2) + ["green"] * (number // 2 % 2)
        lines.append(f"{number:02}.png,{'|'.join(names)}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    return tmp_path / "bands"


def test_multi_label_quality_equals_plain_computation():
    from sklearn.metrics import f1_score

    random = torch.Generator().manual_seed(0)
    probabilities = (torch.rand(50, 5, generator=random) * 10).round() / 10  # with ties
    targets = torch.rand(50, 5, generator=random) < 0.4
    targets[:, 4] = False  # a class of no test image, which counts for the micro F1 only
    found, truth, scores = multi_label_quality(probabilities, targets), targets.numpy(), probabilities.numpy()
    precisions = [
        np.mean([has[column >= value].mean() for value in column[has]])
        for column, has in zip(scores.T[:4], truth.T[:4], strict=True)
    ]
    assert found.map == pytest.approx(100 * np.mean(precisions))
    for average, value, classes in (("micro", found.micro_f1, 5), ("macro", found.macro_f1, 4)):
        expected = f1_score(truth[:, :classes], scores[:, :classes] >= 0.5, average=average)
        assert value == pytest.approx(100 * expected)
    probabilities[7, 1] = torch.nan
    with pytest.raises(ValueError, match="Scores hold NaN or infinity"):
        multi_label_quality(probabilities, targets)
    with pytest.raises(ValueError, match="none of them with a class"):
        multi_label_quality(probabilities, torch.zeros_like(targets))


def test_grid_with_several_classes_trains_as_binary_cross_entropy():
    random = torch.Generator().manual_seed(0)
    targets = torch.rand(90, 3, generator=random) < 0.4
    features = torch.randn(90, 3, 3, generator=random) + targets[:, None].float()
    options = replace(OPTIONS, features=("1",), rates=(0.3,))
    grid = LinearProbeGrid(options, 3, 3)
    layer = nn.Linear(3, 3)
    with torch.no_grad():
        layer.weight.copy_(grid.classifier(0, 0).weight)
        layer.bias.zero_()
    optimizer = torch.optim.SGD(layer.parameters(), 0.3 * options.batch / 256, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    for epoch in range(options.epochs):
        for chosen in batches(90, options, epoch):
            optimizer.zero_grad()
            logits = layer(FeatureSpec(1).select(features[chosen]))
            loss = nn.functional.binary_cross_entropy_with_logits(
                logits, targets[chosen].float(), reduction="sum"
            )
            (loss / len(chosen)).backward()
            optimizer.step()
        schedule.step()
    grid.train(features, targets)
    found = grid.classifier(0, 0)
    torch.testing.assert_close(found.weight, layer.weight.detach(), rtol=0, atol=1e-5)
    quality = multi_label_quality(found.scores(FeatureSpec(1).select(features)).sigmoid(), targets)
    assert float(grid.score(features, targets)) == pytest.approx(quality.map)


def test_knn_of_several_classes_predicts_own_images(bands, tmp_path, evaluate):
    table, output = bands.parent / "labels.csv", tmp_path / "own.csv"
    words = ("--data", bands, "--labels", table, "--class-column", "labels")
    words += ("--label-separator", "|", "--model", "pixels", "--size", 16, "--k", 3)
    content = evaluate("knn", *words, "--predict", bands, "--output", output)
    metrics = content["results"][0]["metrics"]
    assert (metrics["map"], metrics["micro_f1"], metrics["macro_f1"]) == (100, 100, 100)
    assert content["results"][0]["paper"] == []
    rows, expected = rows_of(output), rows_of(table)
    assert [{*row["class"].split("|")} for row in rows] == [{*row["labels"].split("|")} for row in expected]
    assert list(rows[0]) == ["path", "class", "score", *(f"nearest_{rank}" for rank in range(1, 6))]
    assert rows[0]["nearest_1"] == "00.png"
    with pytest.raises(
        ValueError, match=r"several classes, which logistic does not support: use knn or linear"
    ):
        evaluate("logistic", *words[:-2])


def test_files_of_an_evaluation_are_of_one_model(shapes, tmp_path, evaluate):
    words = ("knn", "--data", shapes, "--size", 16, "--k", 3, "--model", "pixels")
    two = (*words, "--model", "random:embedded", "--confusion", tmp_path / "c.csv")
    with pytest.raises(SettingError, match="need one model"):
        evaluate(*two)
    evaluate(*words, "--confusion", tmp_path / "c.csv")
    assert (tmp_path / "c.csv").exists()


@pytest.mark.parametrize("protocol", ["linear", "logistic"])
def test_saved_head_predicts_as_the_evaluation_did(shapes, tmp_path, evaluate, capsys, protocol: str):
    words = ["--data", shapes, *MODEL, "--predict", shapes, "--output", tmp_path / "a.csv"]
    words += ["--save-head", tmp_path / "head.safetensors", "--confusion", tmp_path / "c.csv"]
    more = ["--epochs", 30, "--rates", 0.1] if protocol == "linear" else ["--shares", "100%"]
    evaluate(protocol, *words, *more)
    assert "classes (a, b, c)" in capsys.readouterr().out
    head = ["--head", str(tmp_path / "head.safetensors"), "--output", str(tmp_path / "b.csv")]
    dino_model(["predict", str(shapes), *head, "--device", "cpu", "--precision", "fp32"])
    assert (tmp_path / "b.csv").read_text() == (tmp_path / "a.csv").read_text()
    rows = rows_of(tmp_path / "a.csv")
    assert len(rows) == 27
    assert {row["class"] for row in rows} <= {"a", "b", "c"}
    matrix = [list(row.values()) for row in rows_of(tmp_path / "c.csv")]
    assert [row[0] for row in matrix] == ["a", "b", "c"]
    assert [sum(map(int, row[1:])) for row in matrix] == [2, 0, 1]
    assert Image.open(tmp_path / "c.png").size[0] > 300


def test_classifier_of_other_weights_or_task_or_damaged_is_refused(tmp_path: Path):
    task = ImageTask(spec=FeatureSpec(1), several=False, size=32, resize_to=32)
    linear = LinearClassifier(torch.zeros(2, 192), torch.zeros(2))
    made = {"classes": ("a", "b"), "model": "random:embedded", "weights": "other", "checkpoint": {}}
    saved: SavedClassifier = SavedClassifier(classifier=linear, task=task, **made)
    file, odd = tmp_path / "head.safetensors", tmp_path / os.fsdecode(b"t\xeate.safetensors")
    for path in (file, odd):
        saved.write(path)
    assert read(odd, ImageTask).task == task
    words = ["predict", str(tmp_path), "--head", str(file), "--output", str(tmp_path / "p.csv")]
    with pytest.raises(ValueError, match="fitted to other weights of 'random:embedded'"):
        dino_model([*words, "--device", "cpu"])
    with pytest.raises(ValueError, match=r"classifier of patches .*it classifies images, expected patches"):
        read(file, PatchTask)
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(ValueError, match="is no classifier of images of this program"):
        dino_model(words)
