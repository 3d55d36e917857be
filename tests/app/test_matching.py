"""Matching of two images by the tab Match: the library's matches, downloads, and invalid requests."""

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest

from app.engine import Encoding, Key
from app.errors import LabError
from app.lab import Lab
from app.limits import Limits
from app.matching import direction_bytes
from app.matching import match as match_pair
from app.shared import Shared
from app.tabs import match
from dino_model import photographs
from dino_model.predictor import AttentionPredictor
from segmentation import matching

MODEL, SIZE = "embedded", 64


@pytest.fixture(scope="module")
def pictures() -> tuple[np.ndarray, np.ndarray]:
    """A photograph, and the middle of it from nearer."""
    a = photographs.image("owl")
    height, width = a.shape[:2]
    return a, cv2.resize(a[height // 8 : -height // 8, width // 8 : -width // 8], (width, height))


@pytest.fixture(scope="module")
def pair(
    lab: Lab, encode: Callable[..., Encoding], pictures: tuple[np.ndarray, ...], as_file: Callable[..., bytes]
) -> tuple[Encoding, Encoding]:
    """Both, as the embedded model sees them."""
    a, b = (encode(lab.images.keep(as_file(one)), MODEL, SIZE) for one in pictures)
    return a, b


@pytest.fixture(scope="module")
def library(pictures: tuple[np.ndarray, np.ndarray]) -> tuple[float, matching.Matches, tuple[Any, Any]]:
    """Scale, matches, and what they were found in."""

    def look(picture: np.ndarray, scale: float = 1.0) -> matching.ImageFeatures:
        predictor = AttentionPredictor(MODEL, size=round(SIZE * scale), precision="fp32", device="cpu")
        predictor.set_image(picture)
        return matching.image_features(predictor, picture)

    a, scaled = look(pictures[0]), {scale: look(pictures[1], scale) for scale in matching.SCALES}
    scale, matches = matching.best_scale(a, scaled)
    return scale, matches, (a, scaled[scale])


@pytest.fixture(scope="module")
def answer(shared: Shared, pair: tuple[Encoding, Encoding]) -> dict[str, Any]:
    """The value of the view for both images."""
    a, b = (f"{encoding.key.photo}/{name}.jpg" for encoding, name in zip(pair, ("owl", "near"), strict=True))
    return match.matched(shared, a, MODEL, SIZE, b, 100)


def test_matches_are_the_librarys_at_its_scale(pair, answer, library):
    scale, matches, (a, b) = library
    assert answer["scale"] == scale
    assert answer["scales"] == sorted(matching.SCALES)
    assert Key.of(answer["b"]["token"]).size == round(SIZE * scale)
    assert len(answer["matches"]) == len(matches) >= 5
    sizes = pair[0].predictor.image_size, pair[1].predictor.image_size
    grids = a.features.shape[:2], b.features.shape[:2]
    assert answer["matches"] == matching.matches_as_json(matches, grids, sizes)


def test_cosines_of_the_page_are_the_librarys(lab, answer, library):
    _, _, (a, b) = library
    assert answer["directions"] == f"lab/directions/{answer['a']}/{answer['b']['token']}"
    content = direction_bytes(lab, answer["a"], answer["b"]["token"])
    vectors = np.frombuffer(content, "<f2").astype(np.float32).reshape(-1, a.features.shape[-1])
    patches = a.features.shape[0] * a.features.shape[1]
    at = 3 * a.features.shape[1] + 4
    found = vectors[patches:] @ vectors[at]
    expected = matching.similarities(*matching.prepared(a.features, b.features), (3, 4))
    np.testing.assert_allclose(found, expected.ravel(), atol=2e-3)


@pytest.mark.parametrize(
    ("second", "percent", "sentence"),
    [*((match.TURNED, percent, "ratio must be a number") for percent in (0, 101, float("nan"), True, "1")),
     *((second, 100, "open it again|named by text") for second in (None, "", "guessed", "../../etc/passwd"))],
)  # fmt: skip
def test_matched_with_invalid_argument_is_refused(shared, second, percent, sentence):
    with pytest.raises(LabError, match=sentence):
        match.matched(shared, "owl", MODEL, SIZE, second, percent)


def test_match_without_texture_or_with_two_models_is_refused(lab, encode, pair, as_file):
    name = lab.images.keep(as_file(np.full((60, 90, 3), 77, np.uint8)))
    for other, sentence in (
        (encode(name, MODEL, SIZE), "no texture"),
        (encode(pair[1].key.photo, "random:vit_tiny/16", SIZE), "different models"),
    ):
        with pytest.raises(LabError, match=sentence):
            match_pair(lab, pair[0].key.token, other.key.token, 1)


def test_match_leaves_out_scales_beyond_the_limits(lab, encode, pair, monkeypatch):
    smallest = encode("kitten", size=32).key.token
    assert match_pair(lab, smallest, smallest, 1)[0]["scales"] == [1.0, 1.4]
    rows, columns = pair[1].predictor.grid
    monkeypatch.setattr(lab, "limits", Limits(max_patches=rows * columns))
    assert match_pair(lab, *(one.key.token for one in pair), 1)[0]["scales"] == [0.7, 1.0]
