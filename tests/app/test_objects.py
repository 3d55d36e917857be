"""Objects: algorithms, files, and handlers that any client may call."""

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from pycocotools import mask as coco

from app.handlers import objects
from app.handlers.objects import FILES, ObjectSettings
from app.limits.bounds import Limits
from app.limits.errors import LabError
from app.store.clips import from_runs
from app.store.engine import Key, encode
from app.tabs import segment
from segmentation import discovery
from segmentation.masks import enlarge, keep_mass_of_maps
from tests.app.conftest import MODEL


def test_find_by_attention_keeps_the_mass_of_the_head(encoding, predictor):
    maps = predictor.cls_attention()
    for head, values in (("mean", maps.mean(axis=0)), ("2", maps[2])):
        (found,) = objects.find(encoding, ObjectSettings(head=head, mass=0.3))
        np.testing.assert_array_equal(found.mask, keep_mass_of_maps(values, 0.3))
        assert values[found.seed] == values.max()


def test_find_by_discovery_matches_library(encoding):
    keys = encoding.queries_keys(11)[1]
    features = discovery.key_features(keys, encoding.predictor.prefix_tokens, encoding.predictor.grid)
    for method in ("lost", "tokencut", "maskcut"):
        expected = np.zeros(encoding.predictor.grid)
        for number, one in enumerate(discovery.find_objects(method, {"keys": features, "count": 4}), 1):
            expected[one.mask] = number
        found = objects.find(encoding, ObjectSettings(method=method, count=4))
        np.testing.assert_array_equal(objects.labels_of(found, encoding.predictor.grid), expected)


def test_find_in_image_of_one_patch_is_refused(backend):
    encoding = encode(
        Key("black", MODEL, 16), backend.models.ready(MODEL), np.zeros((4, 4, 3), np.uint8), Limits()
    )
    with pytest.raises(LabError, match="single patch"):
        objects.find(encoding, ObjectSettings(method="tokencut"))


some_labels = st.tuples(st.integers(1, 6), st.integers(1, 6)).flatmap(
    lambda grid: arrays(np.uint8, grid, elements=st.integers(0, 3))
)


@given(some_labels)
def test_every_file_decodes_to_the_labels(labels):
    labels = enlarge(labels, (12, 18))
    files = {name: make(labels) for name, make in FILES.items()}
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(files["labels.png"]))), labels)
    records = json.loads(files["masks.json"])
    decoded = [coco.decode(record["segmentation"]) for record in records]
    assert [record["score"] for record in records] == ([1.0] * labels.max() or [0.0])  # as COCO.loadRes needs
    for number, mask in enumerate(decoded, 1):
        np.testing.assert_array_equal(mask, labels == number)


def test_refined_edges_follow_the_image_at_its_size():
    image = np.zeros((60, 90, 3), np.uint8)
    image[:, 37:] = 255  # an edge that lies between those of patches of 10 pixels
    labels = np.zeros((6, 9), np.uint8)
    labels[:, 4:] = 1
    np.testing.assert_array_equal(objects.in_pixels(labels, image, True), image[..., 0] > 0)
    tall = np.random.default_rng(0).integers(0, 256, (2000, 40, 3), dtype=np.uint8)
    assert objects.in_pixels(labels, tall, True).shape == (2000, 40)
    assert objects.refine(labels, tall).shape == (640, 13)


def test_pixel_belongs_to_the_object_with_the_largest_share_above_a_half(monkeypatch):
    """Shares of three objects in five pixels, refined with the radius of the larger side of a patch."""
    soft = np.array([[0.6, 0.4, 0.7, 0.5, 0.1], [0.3, 0.55, 0.8, 0.5, 0.1], [0.1, 0.6, 0.75, 0, 0.1]])
    radii = []
    monkeypatch.setattr(
        objects.edges,
        "refine_edges",
        lambda masks, image, radius: radii.append(radius) or soft[:, None].astype("f"),
    )
    labels = np.array([[1, 2, 3]], np.uint8)
    found = objects.refine(labels, np.zeros((1, 5, 3), np.uint8))
    assert found.tolist() == [[1, 3, 2, 0, 0]]
    objects.refine(labels, np.zeros((21, 30, 3), np.uint8), (1, 5))
    assert radii == [2, 21]  # of 1.67 and 1 pixels, and of 21 and 10


@pytest.mark.parametrize("method", list(discovery.METHODS))
@pytest.mark.parametrize("refined", [False, True])
def test_segment_download_has_the_labels_of_the_view(backend, encoding, method, refined):
    """The image is smaller than the size at which edges are refined, so view and file have one size."""
    token = encoding.key.token
    wanted = {"token": token, "method": method, "refined": refined, "name": "noise.png"}
    shown = segment.find_objects(backend, wanted | {"key": "x" * 200})
    assert (shown["token"], shown["key"]) == (token, "x" * 200)
    labels = from_runs(shown["runs"], (shown["rows"], shown["columns"]))
    name, content = segment.objects_file(backend, wanted | {"file": "labels.png"})
    assert name == f"noise-{method}-labels.png"
    expected = enlarge(labels, encoding.predictor.image_size)
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(content))), expected)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [({"count": 7}, "count"), ({"method": "lots"}, "Unknown discovery method 'lots'"),
     ({"key": "x" * 201}, "key"), ({"token": "guessed"}, "nothing behind"),
     ({"head": "99"}, "no head 99: this model has heads 0 to 2")],
)  # fmt: skip
def test_segment_with_invalid_request_is_refused(backend, encoding, wrong, sentence):
    with pytest.raises(LabError, match=sentence):
        segment.find_objects(backend, {"token": encoding.key.token} | wrong)
    with pytest.raises(LabError, match=sentence):
        segment.objects_file(backend, {"token": encoding.key.token, "file": "labels.png"} | wrong)
