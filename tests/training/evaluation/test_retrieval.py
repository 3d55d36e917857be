"""Rankings of retrieval, and the files of revisited Oxford and Paris."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dino_model.inference.features import FeatureExtractor, ImageFeatures
from training.evaluation.retrieval import score_rankings


def test_score_rankings_removes_junk_and_queries_without_relevant_image():
    similarity = torch.tensor([[0.9, 0.8, 0.7, 0.1]])
    assert score_rankings(similarity, [[1]], [[]]).map == 25  # precision 0 before, a half after
    assert score_rankings(similarity, [[1]], [[0]]).map == 100
    ties = torch.full((1, 2), 0.5)  # of equal ones the smaller number is first
    assert [score_rankings(ties, [[number]], [[]]).map for number in (0, 1)] == [100, 25]
    several = score_rankings(torch.arange(13.0, 0, -1)[None], [[0, 4, 9, 10, 12]], [[]])
    assert str(several).endswith("mP@1 100.0, mP@5 40.0, mP@10 30.0 (1 queries)")
    first = score_rankings(torch.tensor([[0.3, 0.2, 0.1]]), [[1]], [[]])  # up to the last relevant image
    assert str(first) == "mAP 25.0 %, mP@1 0.0, mP@5 50.0, mP@10 50.0 (1 queries)"
    assert score_rankings(torch.rand(2, 5), [[1], []], [[], [2]]).queries == 1
    with pytest.raises(ValueError, match="No query has a relevant image"):
        score_rankings(torch.rand(1, 5), [[]], [[]])


def ground_truth(first: str = "all_0", right: float = 60, junk: int = 1) -> dict[str, Any]:
    """Content of a file of two queries, with a database image, a side of a box and a junk image to choose."""
    box = np.array([20.0, 20, right, 60])
    return {
        "imlist": [first, *(f"all_{number}" for number in range(1, 6))],
        "qimlist": ["query_0", "query_1"],
        "gnd": [
            {"bbx": box, "easy": np.array([0, 2]), "hard": [4], "junk": [junk]},
            {"bbx": [20, 20, 60, 60], "easy": [1, 3], "hard": [5], "junk": []},
        ],
    }


@pytest.fixture
def oxford(tmp_path: Path) -> Path:
    """Six images of two colors; two queries, one of each color, in a part of the image."""
    folder = tmp_path / "roxford5k" / "jpg"
    folder.mkdir(parents=True)
    for number in range(6):
        image = np.full((40, 60, 3), (250, 30, 30) if number % 2 else (30, 30, 250), np.uint8)
        image[: 4 + number] = 128
        Image.fromarray(image).save(folder / f"all_{number}.jpg")
    for number in range(2):
        image = np.full((60, 60, 3), 128, np.uint8)
        image[20:, 20:] = (250, 30, 30) if number else (30, 30, 250)
        Image.fromarray(image).save(folder / f"query_{number}.jpg")
    (tmp_path / "roxford5k" / "gnd_roxford5k.pkl").write_bytes(pickle.dumps(ground_truth(), 2))
    return tmp_path


PERFECT = {"medium_map": 100, "hard_map": 100}


def test_retrieval_command_crops_queries_unless_official(oxford: Path, evaluate, capsys, monkeypatch):
    words = ("retrieval", "--data", oxford)
    assert evaluate(*words, "--model", "pixels", "--size", 32)["results"][0]["metrics"] == PERFECT
    assert "queries cropped to their box" in capsys.readouterr().out
    boxes, scales, extract = [], [], FeatureExtractor.extract

    def record(extractor, *given, **how):
        boxes.append(how["boxes"])
        scales.append(extractor.framing.scales)
        return extract(extractor, *given, **how)

    monkeypatch.setattr(FeatureExtractor, "extract", record)
    for option in ("--official", "--multiscale"):
        evaluate(*words, "--model", "random:embedded", "--size", 48, option)
    assert boxes == [None, None, None, [(20.0, 20.0, 60.0, 60.0)] * 2]  # database and queries, twice
    assert scales == [(1.0,)] * 2 + [(1.0, 0.5**0.5, 0.5)] * 2
    shown = capsys.readouterr().out
    assert "queries whole, as released" in shown
    assert "mean of the scales 1, 0.707, 0.5" in shown


def test_retrieval_normalizes_features(oxford: Path, evaluate, monkeypatch):
    """Features of every second image are a hundred times as long, and not quite across the others."""
    features = torch.tensor([[1.0, 0.0], [50.0, 87.0]] * 3)

    def extract(_extractor, images, **_):
        return ImageFeatures(images, features[: len(images)], ())

    monkeypatch.setattr(FeatureExtractor, "extract", extract)
    content = evaluate("retrieval", "--data", oxford, "--model", "pixels")
    assert content["results"][0]["metrics"] == PERFECT


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ground_truth(right=90), r"query_0\.jpg: the box .* is not inside the image of 60"),
        (ground_truth(junk=6), "is damaged: queries or images that it refers to"),
        (ground_truth(first="absent"), r"1 of the 6 images .* such as absent\.jpg"),
        ({"imlist": []}, "is no ground truth of roxford5k: 'qimlist' is missing"),
        (Path("/"), "is refused: it would run pathlib"),
        (b"half", r"(cannot be read|is refused)"),
    ],
)
def test_damaged_benchmark_raises(content: object, message: str, oxford: Path, evaluate):
    file = oxford / "roxford5k" / "gnd_roxford5k.pkl"
    file.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    with pytest.raises(ValueError, match=message):
        evaluate("retrieval", "--data", oxford, "--model", "pixels", "--size", 32)
    file.unlink()
    with pytest.raises(ValueError, match=r"gnd_roxford5k\.pkl is missing: roxford5k is published at http"):
        evaluate("retrieval", "--data", oxford)
