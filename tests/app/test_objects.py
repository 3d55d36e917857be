"""Objects: algorithms, files, and handlers that anybody may call."""

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from pycocotools import mask as coco

from app import objects
from app.clips import from_runs
from app.engine import Key, look
from app.errors import LabError
from app.limits import Limits
from app.objects import FILES, Recipe
from app.tabs import segment
from segmentation import discovery
from segmentation.masks import enlarge, keep_mass_of_maps
from tests.app.conftest import MODEL


@pytest.fixture(scope="module")
def encoding(encode, photo):
    return encode(photo)


@pytest.mark.parametrize("head", ["mean", "2"])
def test_find_by_attention_keeps_the_mass_of_the_head(encoding, head):
    maps = objects.attention(encoding)
    values = maps.mean(axis=0) if head == "mean" else maps[2]
    (found,) = objects.find(encoding, Recipe(head=head, mass=0.3))
    np.testing.assert_array_equal(found.mask, keep_mass_of_maps(values, 0.3))
    assert values[found.seed] == values.max()


def test_find_by_discovery_matches_library(encoding):
    keys = encoding.queries_keys(11)[1]
    features = discovery.key_features(keys, encoding.predictor.prefix_tokens, encoding.predictor.grid)
    expected = {
        "lost": [discovery.lost(features)],
        "tokencut": [discovery.tokencut(features)],
        "maskcut": discovery.maskcut(features, 4),
    }
    for method, ones in expected.items():
        found = objects.find(encoding, Recipe(method=method, count=4))
        labels = objects.labels_of(found, encoding.predictor.grid)
        assert len(found) == sum(one.mask.any() for one in ones)
        for number, one in enumerate(found, 1):
            np.testing.assert_array_equal(labels == number, one.mask)


def test_find_in_image_of_one_patch_is_refused(lab):
    encoding = look(Key("black", MODEL, 16), lab.models.ready(MODEL), np.zeros((4, 4, 3), np.uint8), Limits())
    with pytest.raises(LabError, match="single patch"):
        objects.find(encoding, Recipe(method="tokencut"))


# --- pixels

some_labels = st.tuples(st.integers(1, 6), st.integers(1, 6)).flatmap(
    lambda grid: arrays(np.uint8, grid, elements=st.integers(0, 3))
)


@given(some_labels)
def test_every_file_decodes_to_the_labels(labels):
    labels = enlarge(labels, (12, 18))
    picture = np.full((12, 18, 3), 90, np.uint8)
    files = {name: make(picture, labels) for name, make in FILES.items()}
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(files["labels.png"]))), labels)
    decoded = [coco.decode(record["segmentation"]) for record in json.loads(files["masks.json"])]
    assert len(decoded) == labels.max()
    for number, mask in enumerate(decoded, 1):
        np.testing.assert_array_equal(mask, labels == number)
    overlay = np.array(Image.open(io.BytesIO(files["overlay.png"])))
    assert overlay.shape == picture.shape
    assert labels.any() or (overlay == picture).all()


def test_refined_edges_follow_the_image():
    picture = np.zeros((60, 90, 3), np.uint8)
    picture[:, 37:] = 255  # an edge that lies between those of patches of 10 pixels
    labels = np.zeros((6, 9), np.uint8)
    labels[:, 4:] = 1
    expected = np.zeros((60, 90), np.uint8)
    expected[:, 37:] = 1
    coarse, refined = (objects.in_pixels(labels, picture, choice) for choice in (False, True))
    assert (coarse != expected).sum() == 3 * 60
    assert (refined != expected).sum() == 0


@pytest.mark.parametrize("size", [(60, 90), (2000, 40), (7, 5)])
def test_refined_labels_have_the_size_of_the_image(size):
    picture = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    labels = np.array([[0, 1], [2, 2]], np.uint8)
    assert objects.in_pixels(labels, picture, True).shape == size
    assert max(objects.refine(labels, picture).shape) <= objects.REFINED_SIDE


# --- handlers of the tab Segment


@pytest.mark.parametrize("method", ["attention", "lost", "tokencut", "maskcut"])
@pytest.mark.parametrize("refined", [False, True])
def test_segment_download_has_the_labels_of_the_view(lab, encoding, method, refined):
    """The image is smaller than the size at which edges are refined, so view and file have one size."""
    token = encoding.key.token
    wanted = {"token": token, "method": method, "refined": refined, "name": "noise.png"}
    shown = segment.found(lab, wanted | {"key": "x" * 200})
    assert (shown["token"], shown["key"]) == (token, "x" * 200)
    labels = from_runs(shown["runs"], (shown["rows"], shown["columns"]))
    name, content = segment.drawn(lab, "labels.png", wanted)
    assert name == f"noise-{method}-labels.png"
    expected = enlarge(labels, encoding.predictor.image_size)
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(content))), expected)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [({"mass": 0.0}, "mass"), ({"method": "<b>"}, "method: input should be"), ({"count": 7}, "count"),
     ({"key": "x" * 201}, "key"), ({"head": "99"}, "no head 99: this model has heads 0 to 2"),
     ({"head": "-1"}, "head"), ({"token": "guessed"}, "nothing behind this token")],
)  # fmt: skip
def test_segment_with_invalid_question_is_refused(lab, encoding, wrong, sentence):
    for answer in (segment.found, lambda lab, wanted: segment.drawn(lab, "labels.png", wanted)):
        with pytest.raises(LabError, match=sentence):
            answer(lab, {"token": encoding.key.token} | wrong)
