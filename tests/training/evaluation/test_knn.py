"""Weighted k-NN: the vote, its ties and errors, and the command on small and on real data."""

import json
import math
import tarfile
from pathlib import Path

import pytest
import torch

from dino_model import ranks
from dino_model.collections import open_images
from tests.training.evaluation.pictures import evaluate, write_pictures
from training.evaluation.knn import knn_accuracies, knn_accuracy, votes


def test_knn_with_equal_votes_ranks_smaller_class_first():
    train, labels = torch.ones(4, 3), torch.tensor([2, 1, 1, 2])
    query = torch.ones(1, 3)
    first = knn_accuracy(train, labels, query, torch.tensor([1]), k=4)
    second = knn_accuracy(train, labels, query, torch.tensor([2]), k=4)
    assert (first.top1, first.top5) == (100, 100)
    assert (second.top1, second.top5) == (0, 100)


def test_knn_class_without_vote_is_in_no_top5():
    train, labels = torch.eye(3), torch.tensor([0, 1, 2])
    query, truth = torch.tensor([[1.0, 0.1, 0.0]]), torch.tensor([2])
    results = knn_accuracies(train, labels, query, truth, ks=[1, 3])
    assert (results[1].top5, results[3].top5) == (0, 100)


def test_knn_coldest_vote_is_finite():
    assert votes(torch.ones(1, 9), torch.zeros(1, 9, dtype=torch.long), 0.012, 1).isfinite().all()


def test_per_class_accuracy_weights_classes_equally():
    test = torch.tensor([[1.0, 0.0]] * 9 + [[1.0, 0.1]])
    truth = torch.tensor([0] * 9 + [1])
    result = knn_accuracy(torch.eye(2), torch.tensor([0, 1]), test, truth, k=1)
    assert (result.top1, result.per_class_top1) == (90, 50)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 21}, "k is 21: choose 1 to 20, the number of training images"),
        ({"k": 0}, "k is 0: choose 1 to 20"),
        ({"temperature": math.nan}, r"temperature is nan: expected at least 0\.012"),
        ({"labels": torch.zeros(19, dtype=torch.long)}, "with 19 labels"),
        ({"test": torch.ones(5, 4)}, "use one model for both"),
        ({"test": torch.full((5, 5), torch.nan)}, "Features hold NaN or infinity"),
    ],
)
def test_knn_with_invalid_input_raises(change: dict[str, object], message: str):
    arguments = {"train": torch.rand(20, 5), "labels": torch.arange(20) % 3, "test": torch.rand(5, 5)}
    with pytest.raises(ValueError, match=message):
        knn_accuracy(**arguments | {"truth": torch.arange(5) % 3, "k": 5} | change)  # type: ignore[arg-type]


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "shapes", {"BACKGROUND_Google": 6, "a": 10, "b": 4, "c": 7})


def run(*words: object) -> None:
    evaluate("knn", "--device", "cpu", *words)


def test_knn_command_writes_protocol_results_and_test_list(shapes: Path, tmp_path: Path, capsys):
    (shapes / "c" / "003.png").write_bytes(b"no image")
    file, names = tmp_path / "out" / "knn.json", tmp_path / "test.txt"
    words = ("--data", shapes, "--model", "pixels", "--model", "random:embedded", "--size", "32")
    run(*words, "--k", "3", "5", "--json", file, "--test-list", names, "--precision", "fp32")
    shown = capsys.readouterr()
    assert "32; [CLS] after the final norm, L2; k = 3, 5, temperature 0.07" in shown.out
    assert "shapes: 3 test images (every fifth of each class, by name), 18 training images" in shown.out
    assert "left out (1): c/003.png" in shown.err
    content = json.loads(file.read_text())
    result, other = content["results"]
    assert (content["name"], result["metrics"]["k"], result["metrics"]["top1"]) == ("knn", 3, 100)
    assert [row["k"] for row in result["each"]] == [3, 5]
    assert (len(result["broken"]), other["model"]) == (1, "random:embedded")
    assert content["protocol"]["temperature"] == 0.07
    assert [*file.parent.iterdir()] == [file]
    assert "a/004.png" not in open_images(shapes, exclude=names).names


def test_knn_command_on_second_rank_writes_nothing(shapes: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(ranks, "rank", lambda: 1)
    run("--data", shapes, "--model", "pixels", "--size", "24", "--k", "3", "--json", tmp_path / "knn.json")
    assert not (tmp_path / "knn.json").exists()


def test_knn_command_reads_tar_and_test_folder(shapes: Path, tmp_path: Path, capsys):
    with tarfile.open(tmp_path / "shapes.tar", "w") as tar:
        tar.add(shapes, "shapes")
    test = write_pictures(tmp_path / "val", {"BACKGROUND_Google": 2, "a": 2, "b": 1}, shade=100)
    run("--data", tmp_path / "shapes.tar", "--test", test, "--model", "pixels", "--size", "24")
    assert "shapes.tar: 3 test images (those in val), 21 training images" in capsys.readouterr().out


def test_knn_command_with_too_large_k_raises_before_loading(shapes: Path):
    with pytest.raises(ValueError, match="k is 3, 100: choose 1 to 18, the number of training images"):
        run("--data", shapes, "--model", "no such model", "--k", "3", "100")


def test_knn_of_pixels_on_caltech_equals_published_baseline(data_root: Path, tmp_path: Path):
    file = tmp_path / "knn.json"
    run("--data", data_root / "caltech101_112px.tar", "--model", "pixels", "--json", file)
    metrics = json.loads(file.read_text())["results"][0]["metrics"]
    assert metrics["top1"] == pytest.approx(47.5, abs=0.1)
    assert metrics["per_class_top1"] == pytest.approx(28.7, abs=0.1)
