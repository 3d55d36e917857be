"""Weighted k-NN: the vote, its errors, and the command on small and on real data."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from dino_model.data.collection import open_images
from dino_model.inference.classifier import vote
from dino_model.runtime import ranks
from training.evaluation.knn import knn_accuracies, knn_accuracy, neighbors

ONE: dict[str, Any] = {"temperature": 0.07}


def test_vote_of_knn_has_temperature_007():
    """A neighbor of the cosine 0.9 outweighs four of 0.8, exp(0.1 / 0.07) = 4.17 each, but not five."""
    train = torch.tensor([[0.9, 0.19**0.5], *[[0.8, -0.6]] * 5])
    for others, expected in ((4, 100), (5, 0)):
        labels = torch.tensor([0, *[1] * others])
        found = knn_accuracy(
            train[: 1 + others], labels, torch.tensor([[1.0, 0]]), torch.tensor([0]), k=1 + others
        )
        assert found.top1 == expected


def test_knn_ranks_equal_votes_by_class_and_classes_without_vote_last():
    train, labels = torch.ones(4, 3), torch.tensor([2, 1, 1, 2])
    found = [knn_accuracy(train, labels, train[:1], torch.tensor([truth]), k=4) for truth in range(3)]
    assert [(result.top1, result.top5) for result in found] == [(0, 0), (100, 100), (0, 100)]


@pytest.mark.parametrize("copies", [1, 5])
def test_leave_one_out_searches_each_feature_among_all_others(copies: int):
    """With a feature for each of 24 images of 3 classes, then with five equal ones of each, more than k."""
    torch.manual_seed(0)
    features = torch.randn(24, 4).repeat_interleave(copies, dim=0)
    labels = torch.arange(24).repeat_interleave(copies) % 3
    cosines = torch.nn.functional.normalize(features) @ torch.nn.functional.normalize(features).T
    cosines.fill_diagonal_(-2)
    for k in (1, 2, 4):
        near = labels[cosines.topk(k).indices]
        found = knn_accuracies(features, labels, features, labels, **ONE, ks=[k], leave_one_out=True)[k]
        assert found.recall == pytest.approx(100 * (near == labels[:, None]).any(1).double().mean())
    assert knn_accuracies(features, labels, features, labels, **ONE, ks=[1])[1].recall == 100
    numbers = torch.arange(len(features))
    _, others = neighbors(features, numbers, features, 1, leave_one_out=True)
    assert not (others[:, 0] == numbers).any()
    with pytest.raises(ValueError, match=f"choose 1 to {len(labels) - 1}"):
        knn_accuracies(features, labels, features, labels, **ONE, ks=[len(labels)], leave_one_out=True)


@pytest.mark.parametrize("several", [False, True])
def test_vote_is_the_share_of_the_weights_of_the_classes(several: bool):
    cosines, labels = torch.tensor([[0.9, 0.5, -1.0]]), torch.tensor([[0, 1, 0]])
    weights = cosines[0].div(0.1).exp()
    expected = torch.stack([weights[0] + weights[2], weights[1], torch.zeros(())]) / weights.sum()
    targets = labels
    if several:  # the second neighbor has both classes
        targets = torch.tensor([[[1, 0, 0], [1, 1, 0], [1, 0, 0]]]).bool()
        expected[0] = 1
    torch.testing.assert_close(vote(cosines, targets, 0.1, 3)[0], expected)
    assert vote(cosines, targets, 0.001, 3).isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 21}, "k is 21: choose 1 to 20, the number of training images"),
        ({"k": 0}, "k is 0: choose 1 to 20"),
        ({"temperature": math.nan}, "temperature is nan: expected a number above 0"),
        ({"labels": torch.zeros(19, dtype=torch.long)}, "with 19 labels"),
        ({"test": torch.ones(5, 4)}, "use one model for both"),
        ({"test": torch.full((5, 5), torch.nan)}, "Features hold NaN or infinity"),
    ],
)
def test_knn_with_invalid_input_raises(change: dict[str, object], message: str):
    arguments = {"train": torch.rand(20, 5), "labels": torch.arange(20) % 3, "test": torch.rand(5, 5)}
    with pytest.raises(ValueError, match=message):
        knn_accuracy(**arguments | {"truth": torch.arange(5) % 3, "k": 5} | change)  # type: ignore[arg-type]


def test_knn_command_writes_protocol_results_and_test_list(shapes, evaluate, tmp_path, capsys):
    (shapes / "c" / "003.png").write_bytes(b"no image")
    names = tmp_path / "test.txt"
    words = ("--data", shapes, "--model", "pixels", "--model", "random:embedded", "--size", 32)
    content = evaluate("knn", *words, "--k", 3, 5, "--test-list", names, "--precision", "fp32")
    shown = capsys.readouterr()
    assert "32; output of the model, L2; k = 3, 5, temperature 0.07" in shown.out
    assert (
        "shapes: 3 test images (every fifth of each class, in order), 18 training images, 3 classes (a, b, c)"
        in shown.out
    )
    assert "left out (1): c/003.png" in shown.err
    result, other = content["results"]
    assert (content["name"], result["metrics"]["k"], result["metrics"]["top1"]) == ("knn", 3, 100)
    assert [row["k"] for row in result["each"]] == [3, 5]
    assert (len(result["broken"]), other["model"]) == (1, "random:embedded")
    assert content["protocol"]["temperature"] == 0.07
    assert "a/004.png" not in open_images(shapes, exclude=names).names


@pytest.mark.parametrize(("part", "numbers"), [("training", (0, 1, 2, 3, 5, 6)), ("test", (4,))])
def test_evaluation_names_classes_without_a_readable_image(shapes, evaluate, part, numbers, capsys):
    for number in numbers:
        (shapes / "c" / f"{number:03}.png").write_bytes(b"no image")
    evaluate("knn", "--data", shapes, "--model", "pixels", "--size", 32, "--k", 3)
    assert f"warning: no {part} image can be read of 1 class (c)\n" in capsys.readouterr().out


def test_knn_command_on_second_rank_writes_nothing(shapes, evaluate, monkeypatch):
    monkeypatch.setattr(ranks, "rank", lambda: 1)
    with pytest.raises(FileNotFoundError):
        evaluate("knn", "--data", shapes, "--model", "pixels", "--size", 24, "--k", 3)


def test_knn_command_with_too_large_k_raises_before_loading(shapes, evaluate, tmp_path):
    (tmp_path / "broken.pth").touch()
    with pytest.raises(ValueError, match="k is 3, 100: choose 1 to 18, the number of training images"):
        evaluate("knn", "--data", shapes, "--model", tmp_path / "broken.pth", "--k", 3, 100)


def test_knn_of_pixels_on_caltech_equals_published_baseline(data_root: Path, evaluate):
    content = evaluate("knn", "--data", data_root / "caltech101_112px.tar", "--model", "pixels")
    metrics = content["results"][0]["metrics"]
    assert metrics["top1"] == pytest.approx(47.5, abs=0.1)
    assert metrics["per_class_top1"] == pytest.approx(28.7, abs=0.1)
