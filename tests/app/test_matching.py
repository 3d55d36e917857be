"""Two photographs matched, as the page and programs ask for it: the library's answers, and what cannot be."""

import io
import json
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from app.engine import Encoding
from app.lab import Lab
from app.limits import Limits
from dino_model import photographs
from dino_model.predictor import AttentionPredictor
from segmentation import matching

MODEL, SIZE = "embedded", 64
PIN = {"row": 3, "column": 4, "color": "#f97316"}


@pytest.fixture(scope="module")
def pictures() -> tuple[np.ndarray, np.ndarray]:
    """A photograph, and the middle of it from nearer."""
    a = photographs.picture("owl")
    height, width = a.shape[:2]
    return a, cv2.resize(a[height // 8 : -height // 8, width // 8 : -width // 8], (width, height))


@pytest.fixture(scope="module")
def pair(
    lab: Lab, encode: Callable[..., Encoding], pictures: tuple[np.ndarray, ...], as_file: Callable[..., bytes]
) -> tuple[Encoding, Encoding]:
    """Both, as the embedded model sees them."""
    a, b = (encode(lab.pictures.keep(as_file(one))[0], MODEL, SIZE) for one in pictures)
    return a, b


@pytest.fixture(scope="module")
def library(pictures: tuple[np.ndarray, np.ndarray]) -> tuple[float, matching.Matches, tuple[Any, Any]]:
    """Scale, matches, and what they were found in."""

    def look(picture: np.ndarray, scale: float = 1.0) -> matching.ImageFeatures:
        predictor = AttentionPredictor(MODEL, size=round(SIZE * scale), precision="fp32", device="cpu")
        predictor.set_image(picture)
        return matching.patch_features(predictor, picture)

    a, scaled = look(pictures[0]), {scale: look(pictures[1], scale) for scale in matching.SCALES}
    scale, matches = matching.best_scale(a, scaled)
    return scale, matches, (a, scaled[scale])


@pytest.fixture(scope="module")
def answer(client: TestClient, pair: tuple[Encoding, Encoding]) -> dict[str, Any]:
    """What a program is answered."""
    asked = {"a": pair[0].key.token, "b": pair[1].key.token}
    return client.post("/api/match", json=asked).json()


@pytest.fixture
def export(client: TestClient, pair: tuple[Encoding, Encoding], answer: dict[str, Any]) -> Callable[..., Any]:
    """`export(file, …)`: a download of what is shown of the pair."""
    shown = {"a": pair[0].key.token, "b": answer["seen"]["token"], "ratio": 1, "pins": [PIN], "lines": True}

    def ask(file: str, **asked: object) -> Any:
        return client.post(f"/api/match/{file}", json={**shown, "names": ["owl.jpg", "near.jpg"], **asked})

    return ask


def test_matches_are_the_librarys_at_its_scale(pair, answer, library):
    scale, matches, (a, b) = library
    assert answer["scale"] == scale
    assert answer["scales"] == sorted(matching.SCALES)
    assert answer["seen"]["size"] == round(SIZE * scale)
    assert len(answer["matches"]) == len(matches) >= 5
    sizes = pair[0].picture_size, pair[1].picture_size
    grids = a.features.shape[:2], b.features.shape[:2]
    assert answer["matches"] == matching.matches_as_json(matches, grids, sizes)


def test_cosines_of_the_page_are_the_librarys(client, pair, answer, library):
    _, _, (a, b) = library
    query = {"a": pair[0].key.token, "b": answer["seen"]["token"]}
    content = client.get("/api/match/directions", params=query).content
    vectors = np.frombuffer(content, "<f2").astype(np.float32).reshape(-1, a.features.shape[-1])
    patches = a.features.shape[0] * a.features.shape[1]
    at = 3 * a.features.shape[1] + 4
    found = vectors[patches:] @ vectors[at]
    expected = matching.similarities(*matching.prepared(a.features, b.features), (3, 4))
    np.testing.assert_allclose(found, expected.ravel(), atol=2e-3)


def test_exported_pins_and_matches_are_those_shown(export, pair, answer, library):
    told = json.loads(export("matches.json").content)
    assert told["matches"] == answer["matches"]
    assert told["sizes"] == [SIZE, answer["seen"]["size"]]
    assert [told["a"], told["b"], told["model"]] == ["owl.jpg", "near.jpg", MODEL]
    _, _, (a, b) = library
    cell, cosine = matching.transfer(*matching.prepared(a.features, b.features), (3, 4))
    (pin,) = told["pins"]
    expected = matching.centers(np.array(cell), b.features.shape[:2], pair[1].picture_size)
    np.testing.assert_allclose(pin["b"], expected, atol=0.06)
    assert pin["cosine"] == pytest.approx(cosine, abs=1e-3)


def test_lines_are_drawn_only_where_they_are_shown(export):
    sheets = {}
    for name, asked in {
        "all": {},
        "pins": {"lines": False},
        "none": {"lines": False, "pins": []},
    }.items():
        given = export("lines.png", **asked)
        assert 'filename="owl-near-lines.png"' in given.headers["content-disposition"]
        sheets[name] = np.array(Image.open(io.BytesIO(given.content)))
    orange = (sheets["pins"] == [249, 115, 22]).all(axis=-1)
    assert orange.any()
    assert (sheets["pins"] != sheets["none"]).any(axis=-1).mean() < 0.05
    assert (sheets["all"] != sheets["pins"]).any(axis=-1).sum() > orange.sum()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"ratio": 0}, "ratio must be at least 0.01"),
        ({"ratio": 2}, "ratio must be at most 1"),
        ({"b": "guessed"}, "nothing behind this token"),
        ({"c": 1}, "does not take what was asked"),
    ],
)
def test_impossible_questions_get_one_sentence(client, pair, asked, sentence):
    question = {"a": pair[0].key.token, "b": pair[1].key.token, **asked}
    given = client.post("/api/match", json=question)
    assert given.status_code in (404, 422)
    assert sentence in given.json()["error"]


@pytest.mark.parametrize(
    ("file", "asked", "status", "sentence"),
    [
        ("lines.png", {"pins": [PIN | {"row": 500}]}, 422, "patches end at row"),
        ("lines.png", {"pins": [PIN] * 9}, 422, "The pins"),
        ("lines.png", {"pins": [PIN | {"color": "red"}]}, 422, "The color"),
        ("secret.png", {}, 404, "lines.png, matches.json"),
    ],
)
def test_impossible_downloads_get_one_sentence(export, file, asked, status, sentence):
    given = export(file, **asked)
    assert given.status_code == status
    assert sentence in given.json()["error"]


def test_photograph_without_texture_is_told(client, lab, encode, pair, as_file):
    flat = encode(lab.pictures.keep(as_file(np.full((60, 90, 3), 77, np.uint8)))[0], MODEL, SIZE)
    given = client.post("/api/match", json={"a": pair[0].key.token, "b": flat.key.token})
    assert given.status_code == 422
    assert "no texture" in given.json()["error"]


def test_photographs_of_two_models_are_not_compared(client, encode, pair):
    other = encode(pair[1].key.photo, "random:vit_tiny/16", SIZE)
    given = client.post("/api/match", json={"a": pair[0].key.token, "b": other.key.token})
    assert given.status_code == 422
    assert "Two models looked" in given.json()["error"]


def test_sizes_that_make_too_many_patches_are_left_out_and_told(lab, client, pair, monkeypatch):
    rows, columns = pair[1].grid
    monkeypatch.setattr(lab, "limits", Limits(max_patches=rows * columns))
    found = client.post("/api/match", json={"a": pair[0].key.token, "b": pair[1].key.token}).json()
    assert found["scales"] == [0.7, 1.0]
