"""Weighted k-NN: the vote, its ties and refusals; the split; the command on real and on wrong input."""

import json
import math
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dino_model.features import FeatureExtractor
from dino_model.images import open_images
from tests.training.evaluation.pictures import evaluate, write_pictures
from training.evaluation import knn as protocol
from training.evaluation import run as evaluation
from training.evaluation import search
from training.evaluation.knn import (
    knn_accuracies,
    knn_accuracy,
    knn_scores,
    neighbors,
)


def plain_scores(train: Tensor, labels: Tensor, test: Tensor, k: int, temperature: float) -> np.ndarray:
    """The vote as the paper words it, one pair of pictures after the other, in double precision."""
    votes = np.zeros((len(test), int(labels.max()) + 1))
    for row, picture in enumerate(test.double()):
        cosines = [float(picture @ other / (picture.norm() * other.norm())) for other in train.double()]
        for index in sorted(range(len(train)), key=lambda i: -cosines[i])[:k]:
            votes[row, labels[index]] += math.exp(cosines[index] / temperature)
    return votes


def drawn(
    seed: int, train: int, test: int, classes: int, width: int = 5
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return (
        torch.randn(train, width, generator=random),
        torch.randint(classes, (train,), generator=random),
        torch.randn(test, width, generator=random),
        torch.randint(classes, (test,), generator=random),
    )


# --- the vote


@settings(deadline=None)
@given(
    seed=st.integers(0, 999),
    train=st.integers(1, 30),
    test=st.integers(1, 9),
    classes=st.integers(1, 7),
    data=st.data(),
)
def test_votes_are_those_of_the_plain_sum(
    seed: int, train: int, test: int, classes: int, data: st.DataObject
):
    k = data.draw(st.integers(1, train))
    temperature = data.draw(st.sampled_from([0.05, 0.07, 1.0]))
    features, labels, queries, _ = drawn(seed, train, test, classes)
    votes = knn_scores(features, labels, queries, k=k, temperature=temperature)
    np.testing.assert_allclose(votes, plain_scores(features, labels, queries, k, temperature), rtol=1e-4)


@settings(deadline=None)
@given(seed=st.integers(0, 999), at_once=st.integers(1, 800))
def test_chunks_change_nothing(seed: int, at_once: int):
    train, labels, test, _ = drawn(seed, 20, 9, 4)
    whole = neighbors(train, labels, test, k=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_MAX_PRODUCT_BYTES", at_once)
        chunked = neighbors(train, labels, test, k=7)
    torch.testing.assert_close(chunked[0], whole[0], rtol=0, atol=1e-6)
    assert torch.equal(chunked[1], whole[1])


def test_the_length_of_features_does_not_matter():
    train, labels, test, _ = drawn(0, 20, 5, 3)
    stretched = knn_scores(3 * train, labels, 0.1 * test, k=5)
    torch.testing.assert_close(stretched, knn_scores(train, labels, test, k=5), rtol=1e-4, atol=0)


def test_near_neighbours_outvote_many_far_ones():
    train = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    labels = torch.tensor([0, 1, 1])
    query = torch.tensor([[1.0, 0.2]])
    assert knn_scores(train, labels, query, k=3).argmax(1).tolist() == [0]
    assert knn_scores(train, labels, query, k=3, temperature=10.0).argmax(1).tolist() == [1]


def test_equal_votes_go_to_the_class_with_the_smaller_number():
    train, labels = torch.ones(4, 3), torch.tensor([2, 1, 1, 2])
    query = torch.ones(1, 3)
    assert knn_scores(train, labels, query, k=4).argmax(1).tolist() == [1]
    first = knn_accuracy(train, labels, query, torch.tensor([1]), k=4)
    second = knn_accuracy(train, labels, query, torch.tensor([2]), k=4)
    assert (first.top1, first.top5) == (100, 100)
    assert (second.top1, second.top5) == (0, 100)


def test_a_class_without_a_vote_is_no_answer():
    train, labels = torch.eye(3), torch.tensor([0, 1, 2])
    query, truth = torch.tensor([[1.0, 0.1, 0.0]]), torch.tensor([2])
    result = knn_accuracies(train, labels, query, truth, ks=[1, 3])
    assert result[1].top5 == 0
    assert result[3].top5 == 100
    assert knn_accuracy(train, labels, query, torch.tensor([7]), k=3).top5 == 0


def test_the_coldest_vote_is_finite():
    votes = knn_scores(
        torch.ones(9, 2), torch.zeros(9, dtype=torch.long), torch.ones(1, 2), k=9, temperature=0.012
    )
    assert votes.isfinite().all()


def test_duplicates_beyond_k_still_give_k_votes():
    train, labels = torch.ones(50, 2), torch.zeros(50, dtype=torch.long)
    votes = knn_scores(train, labels, torch.ones(1, 2), k=20, temperature=1.0, classes=3)
    assert votes[0].tolist() == pytest.approx([20 * math.e, 0, 0], rel=1e-5)


def test_the_mean_of_the_classes_counts_small_classes_as_much_as_large_ones():
    train, labels = torch.eye(2), torch.tensor([0, 1])
    test = torch.tensor([[1.0, 0.0]] * 9 + [[1.0, 0.1]])
    truth = torch.tensor([0] * 9 + [1])
    result = knn_accuracy(train, labels, test, truth, k=1)
    assert (result.top1, result.per_class_top1) == (90, 50)
    assert str(result) == "top-1 90.0 % (mean of the classes 50.0), top-5 90.0 %"  # class 1 has no vote


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"k": 21}, "k is 21: choose 1 to 20, the number of training images"),
        ({"k": 0}, "k is 0: choose 1 to 20"),
        ({"temperature": 0.01}, r"temperature is 0\.01: expected at least 0\.012, below it votes overflow"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"classes": 2}, "Label 2 is none of 2 classes"),
        ({"train_labels": torch.zeros(19, dtype=torch.long)}, "20 training features with 19 labels"),
        ({"test_features": torch.ones(5, 4)}, r"shapes \(20, 5\) and \(5, 4\)"),
        ({"test_features": torch.full((5, 5), torch.nan)}, "Features hold NaN or infinity"),
    ],
)
def test_what_cannot_be_voted_on_is_one_sentence(change: dict[str, object], sentence: str):
    train, labels, test, _ = drawn(0, 20, 5, 3)
    given_ = {"train_features": train, "train_labels": labels, "test_features": test, "k": 5} | change
    with pytest.raises(ValueError, match=sentence):
        knn_scores(**given_)  # type: ignore[arg-type]


def test_no_test_pictures_and_no_k_are_one_sentence():
    train, labels, test, truth = drawn(0, 20, 5, 3)
    with pytest.raises(ValueError, match="Found 0 test features with 0 labels"):
        knn_accuracy(train, labels, test[:0], truth[:0])
    with pytest.raises(ValueError, match="k is missing: choose 1 to 20"):
        knn_accuracies(train, labels, test, truth, ks=[])


# --- the command


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "shapes", {"BACKGROUND_Google": 6, "a": 10, "b": 4, "c": 7})


def run(*words: object) -> None:
    evaluate("knn", *words)


def test_of_several_processes_the_first_writes_the_figures(shapes: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(evaluation.ranks, "rank", lambda: 1)
    run("--data", shapes, "--model", "pixels", "--size", "24", "--k", "3", "--json", tmp_path / "knn.json")
    assert not (tmp_path / "knn.json").exists()


def test_the_command_prints_its_protocol_and_writes_figures_and_test_list(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    figures, names = tmp_path / "out" / "knn.json", tmp_path / "test.txt"
    run(
        *("--data", shapes, "--model", "pixels", "--size", "24", "--k", "3", "5"),
        *("--json", figures, "--test-list", names, "--device", "cpu", "--precision", "fp32"),
    )
    shown = capsys.readouterr().out
    assert "short side 24 (bicubic), centre crop 24; [CLS] after the final norm, L2; k = 3, 5" in shown
    assert "shapes: 3 test images (every fifth of each class, by name), 18 training images" in shown
    assert "k = 5: top-1 100.0 % (mean of the classes 100.0)" in shown
    written = json.loads(figures.read_text())
    (result,) = written["results"]
    assert (written["name"], result["metrics"]["k"], result["metrics"]["top1"]) == ("knn", 3, 100)
    assert [result["k"] for result in result["each"]] == [3, 5]
    assert written["protocol"]["temperature"] == 0.07
    assert list(figures.parent.iterdir()) == [figures]
    left = open_images(shapes, exclude=names)
    assert len(left) == 27 - 3
    assert "a/004.png" not in left.names


def test_the_command_votes_and_looks_as_it_was_told(shapes: Path, monkeypatch: pytest.MonkeyPatch):
    given, seen, honest = [], [], FeatureExtractor.extract

    def vote(*features: Tensor, **how):
        given.append(how)
        return knn_accuracies(*features, **how)

    def look(extractor: FeatureExtractor, *images, **how):
        seen.append(extractor.view)
        return honest(extractor, *images, **how)

    monkeypatch.setattr(protocol, "knn_accuracies", vote)
    monkeypatch.setattr(FeatureExtractor, "extract", look)
    words = ("--k", "2", "4", "--temperature", "0.5", "--size", "24", "--resize-to", "32")
    run("--data", shapes, "--model", "pixels", *words)
    assert [(how["ks"], how["temperature"]) for how in given] == [((2, 4), 0.5)]
    assert {(view.size, view.short_side) for view in seen} == {(24, 32)}


def test_the_command_reads_a_tar_and_a_folder_of_their_own_to_test_on(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with tarfile.open(tmp_path / "shapes.tar", "w") as tar:
        tar.add(shapes, "shapes")
    test = write_pictures(tmp_path / "val", {"BACKGROUND_Google": 2, "a": 2, "b": 1}, shade=100)
    run(
        "--data",
        tmp_path / "shapes.tar",
        "--test",
        test,
        "--model",
        "pixels",
        "--size",
        "24",
        "--device",
        "cpu",
    )
    shown = capsys.readouterr().out
    assert "shapes.tar: 3 test images (those in val), 21 training images" in shown


def test_too_many_neighbours_are_told_before_the_model_runs(shapes: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(ValueError, match="k is 3, 100: choose 1 to 18, the number of training images"):
        run("--data", shapes, "--model", "no such model", "--k", "3", "100")


def test_several_models_stand_in_one_file(shapes: Path, tmp_path: Path):
    figures = tmp_path / "knn.json"
    run(
        *("--data", shapes, "--model", "pixels", "--model", "random:embedded", "--size", "32", "--k", "3"),
        *("--json", figures, "--device", "cpu"),
    )
    assert [result["model"] for result in json.loads(figures.read_text())["results"]] == [
        "pixels",
        "random:embedded",
    ]


def test_a_broken_picture_is_named_and_left_out(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (shapes / "a" / "003.png").write_bytes(b"no more")
    figures = tmp_path / "knn.json"
    run(
        "--data",
        shapes,
        "--model",
        "pixels",
        "--size",
        "24",
        "--k",
        "3",
        "--json",
        figures,
        "--device",
        "cpu",
    )
    assert "left out (1): a/003.png is not a picture" in capsys.readouterr().err
    assert len(json.loads(figures.read_text())["results"][0]["broken"]) == 1


def test_pixels_reach_their_known_figures_on_caltech(data_root: Path, tmp_path: Path):
    figures = tmp_path / "knn.json"
    run(
        "--data",
        data_root / "caltech101_112px.tar",
        "--model",
        "pixels",
        "--device",
        "cpu",
        "--json",
        figures,
    )
    found = json.loads(figures.read_text())["results"][0]["metrics"]
    assert found["top1"] == pytest.approx(47.5, abs=0.1)
    assert found["per_class_top1"] == pytest.approx(28.7, abs=0.1)
