"""Matching of two images by the tab Match: the library's matches, and invalid requests."""

from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from app.handlers.matching import direction_bytes
from app.handlers.matching import match as match_pair
from app.limits.bounds import Limits
from app.limits.errors import LabError
from app.store.backend import Backend
from app.store.engine import Encoding, Key
from app.store.images import png
from app.tabs import match
from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from segmentation import matching

MODEL, SIZE = "embedded", 64


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray]:
    """A photograph, and the middle of it from nearer."""
    a = photographs.image("owl")
    height, width = a.shape[:2]
    return a, cv2.resize(a[height // 8 : -height // 8, width // 8 : -width // 8], (width, height))


@pytest.fixture(scope="module")
def pair(backend: Backend, images: tuple[np.ndarray, ...]) -> tuple[Encoding, ...]:
    """Both, encoded by the embedded model."""
    return tuple(backend.encode(backend.images.keep(png(image)), MODEL, SIZE) for image in images)


def features(image: np.ndarray, scale: float = 1.0) -> matching.MatchFeatures:
    predictor = AttentionPredictor(MODEL, size=round(SIZE * scale), precision="fp32", device="cpu")
    predictor.set_image(image)
    return matching.match_features(predictor, image)


def test_matches_are_the_librarys_at_its_scale(page, images, pair):
    names = [f"{encoding.key.image}/{name}.jpg" for encoding, name in zip(pair, ("owl", "near"), strict=True)]
    answer: dict[str, Any] = match.match_images(page, names[0], MODEL, SIZE, names[1], 100)
    a, scaled = features(images[0]), {scale: features(images[1], scale) for scale in matching.SCALES}
    scale, matches = matching.best_scale(a, scaled, 1.0)
    b = scaled[scale]
    tokens = answer["a"], answer["b"]["token"]
    assert (answer["scale"], answer["scales"]) == (scale, sorted(matching.SCALES))
    assert Key.of(tokens[1]).size == round(SIZE * scale)
    assert len(matches) >= 5
    sizes = pair[0].predictor.image_size, pair[1].predictor.image_size
    grids = a.features.shape[:2], b.features.shape[:2]
    assert answer["matches"] == matching.matches_as_json(matches, grids, sizes)
    assert answer["directions"] == f"lab/directions/{tokens[0]}/{tokens[1]}"
    compared = matching.prepare_pair(a.features, b.features)
    vectors = np.frombuffer(direction_bytes(page.backend, *tokens), "<f2").astype(np.float32)
    one, other = np.split(vectors.reshape(-1, compared[0].shape[-1]), [np.prod(grids[0])])
    patch = (1, grids[0][1] - 1)
    cosines = (other @ one[np.ravel_multi_index(patch, grids[0])]).reshape(grids[1])
    np.testing.assert_allclose(cosines, matching.similarities(*compared, patch), atol=3e-3)


@pytest.mark.parametrize(
    ("second", "percent", "sentence"),
    [*((match.TURNED, percent, "ratio must be a number") for percent in (0, 101, float("nan"), True, "1")),
     *((second, 100, "open it again|named by text") for second in (None, "", "guessed", "../../etc/passwd"))],
)  # fmt: skip
def test_matched_with_invalid_argument_is_refused(page, second, percent, sentence):
    with pytest.raises(LabError, match=sentence):
        match.match_images(page, "owl", MODEL, SIZE, second, percent)


def test_turned_image_is_the_first_one_turned_by_20_degrees_on_gray(page):
    answer = match.match_images(page, "owl", MODEL, SIZE, match.TURNED, 1)  # the smallest ratio
    image = Image.fromarray(photographs.image("owl"))
    turned = image.rotate(20, Image.Resampling.BICUBIC, fillcolor=(128, 128, 128))
    assert answer["b"]["name"] == "owl turned"
    name = answer["b"]["source"].split("/")[0]
    np.testing.assert_array_equal(page.backend.images.read(name), np.asarray(turned))


def test_match_without_texture_or_with_two_models_is_refused(backend, pair):
    plain = backend.images.keep(png(np.full((60, 90, 3), 77, np.uint8)))
    for other, sentence in (
        (backend.encode(plain, MODEL, SIZE), "no texture"),
        (backend.encode(pair[1].key.image, "random:vit_tiny/16", SIZE), "different models"),
    ):
        with pytest.raises(LabError, match=sentence):
            match_pair(backend, pair[0].key.token, other.key.token, 1)


def test_match_leaves_out_scales_beyond_the_limits(backend, pair, monkeypatch):
    smallest = backend.encode("kitten", MODEL, 32).key.token
    assert match_pair(backend, smallest, smallest, 1)[0]["scales"] == [1.0, 1.4]
    rows, columns = pair[1].predictor.grid
    monkeypatch.setattr(backend, "limits", Limits(max_patches=rows * columns))
    assert match_pair(backend, *(one.key.token for one in pair), 1)[0]["scales"] == [0.7, 1.0]
