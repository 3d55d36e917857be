"""Rankings of retrieval, and the files of revisited Oxford and Paris."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dino_model.collections import Images
from dino_model.features import FeatureExtractor, ImageFeatures
from tests.training.evaluation.pictures import evaluate
from training.evaluation.retrieval import Relevance, medium_and_hard, open_landmarks, score_rankings


def test_map_counts_first_rank_fully_and_removes_junk():
    similarity = torch.tensor([[0.9, 0.8, 0.7, 0.1]])
    assert score_rankings(similarity, [[0]], [[]]).map == 100
    assert score_rankings(similarity, [[1]], [[]]).map == 25  # precision 0 before, a half after
    assert score_rankings(similarity, [[1]], [[0]]).map == 100
    ties = torch.full((1, 2), 0.5)  # of equal ones the smaller number is first
    assert [score_rankings(ties, [[number]], [[]]).map for number in (0, 1)] == [100, 25]
    assert score_rankings(similarity, [[0, 1]], [[]]).precision == (100, 100, 100)
    medium, hard = medium_and_hard(similarity, [Relevance((0,), (1,), ())])
    assert (medium.map, hard.map) == (100, 100)  # the easy one is no mistake where the hard one is asked for


def test_score_rankings_skips_queries_without_relevant_image():
    result = score_rankings(torch.rand(2, 5), [[1], []], [[], [2]])
    assert result.queries == 1
    with pytest.raises(ValueError, match="No query has a relevant image"):
        score_rankings(torch.rand(1, 5), [[]], [[]])


@pytest.fixture
def oxford(tmp_path: Path) -> Path:
    """Six pictures of two colours and two queries, one of each, in a part of its picture."""
    folder = tmp_path / "roxford5k" / "jpg"
    folder.mkdir(parents=True)
    for number in range(6):
        picture = np.full((40, 60, 3), (250, 30, 30) if number % 2 else (30, 30, 250), np.uint8)
        picture[: 4 + number] = 128
        Image.fromarray(picture).save(folder / f"all_{number}.jpg")
    for number in range(2):
        picture = np.full((60, 60, 3), 128, np.uint8)
        picture[20:, 20:] = (250, 30, 30) if number else (30, 30, 250)
        Image.fromarray(picture).save(folder / f"query_{number}.jpg")
    truth = {
        "imlist": [f"all_{i}" for i in range(6)],
        "qimlist": ["query_0", "query_1"],
        "gnd": [
            {"bbx": np.array([20.0, 20, 60, 60]), "easy": np.array([0, 2]), "hard": [4], "junk": [1]},
            {"bbx": [20, 20, 60, 60], "easy": [1, 3], "hard": [5], "junk": []},
        ],
    }
    (tmp_path / "roxford5k" / "gnd_roxford5k.pkl").write_bytes(pickle.dumps(truth, 2))
    return tmp_path


def test_retrieval_command_crops_queries_unless_official(oxford: Path, tmp_path: Path, capsys, monkeypatch):
    figures = tmp_path / "out.json"
    evaluate("retrieval", "--data", oxford, "--model", "pixels", "--size", "32", "--json", figures)
    assert "queries cropped to their box" in capsys.readouterr().out
    found = json.loads(figures.read_text())["results"][0]["metrics"]
    assert found == {"medium_map": 100, "hard_map": 100}
    cut, honest = [], FeatureExtractor.extract
    monkeypatch.setattr(
        FeatureExtractor, "extract", lambda *a, **how: cut.append(how["boxes"]) or honest(*a, **how)
    )
    for extra in (("--official",), ("--multiscale",)):
        evaluate("retrieval", "--data", oxford, "--model", "random:embedded", "--size", "48", *extra)
    assert cut == [None, None, None, [(20.0, 20.0, 60.0, 60.0)] * 2]  # database and queries, twice
    shown = capsys.readouterr().out
    assert "queries whole, as released" in shown
    assert "mean of the scales 1, 0.707, 0.5" in shown


def test_retrieval_normalizes_features(oxford: Path, tmp_path: Path, monkeypatch):
    """Every second feature is a hundred times as long, and not quite across the others."""
    kinds, figures = torch.tensor([[1.0, 0.0], [50.0, 87.0]]), tmp_path / "out.json"

    def of(extractor: FeatureExtractor, images: Images, **how) -> ImageFeatures:
        return ImageFeatures(images, kinds[torch.arange(len(images)) % 2], ())

    monkeypatch.setattr(FeatureExtractor, "extract", of)
    evaluate("retrieval", "--data", oxford, "--model", "pixels", "--json", figures)
    found = json.loads(figures.read_text())["results"][0]["metrics"]
    assert found == {"medium_map": 100, "hard_map": 100}


def test_damaged_benchmark_raises(oxford: Path, tmp_path: Path):
    with pytest.raises(ValueError, match=r"gnd_rparis6k\.pkl is missing: rparis6k is published at http"):
        open_landmarks(oxford, "rparis6k")
    truth = oxford / "roxford5k" / "gnd_roxford5k.pkl"
    content = pickle.loads(truth.read_bytes())
    content["gnd"][0]["bbx"] = [20, 20, 90, 60]
    truth.write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=r"query_0\.jpg: the box .* is not inside the image of 60 × 60"):
        evaluate("retrieval", "--data", oxford, "--model", "pixels", "--size", "32")
    content["gnd"][1]["junk"] = [6]
    truth.write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match="is damaged: queries or images that it refers to are not listed"):
        open_landmarks(oxford, "roxford5k")
    content["gnd"][1]["junk"], content["imlist"][0] = [], "elsewhere"
    truth.write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=r"1 of the 6 images .* such as elsewhere\.jpg"):
        open_landmarks(oxford, "roxford5k")
    truth.write_bytes(pickle.dumps(Path("/")))
    with pytest.raises(ValueError, match="is refused: it would run pathlib"):
        open_landmarks(oxford, "roxford5k")
    truth.write_bytes(b"half")
    with pytest.raises(ValueError, match=r"(cannot be read|is refused)"):
        open_landmarks(oxford, "roxford5k")
