import base64
import io
import json

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from pycocotools import mask as coco

from app import objects
from app.engine import LabError
from app.figure import Figure
from app.objects import FILES, METHODS, Recipe
from app.security import host_names
from app.server import create_app
from segmentation import discovery
from segmentation.masks import enlarge, keep_mass_of_maps

MODEL = "random:vit_tiny/16"


@pytest.fixture(scope="module")
def token(engine, photo) -> str:
    return engine.encode(photo, MODEL, 64)


@pytest.fixture(scope="module")
def encoding(engine, token):
    return engine.encoding(token)


@pytest.fixture(scope="module")
def queries_keys(engine, encoding):
    return engine.queries_keys(encoding, encoding.blocks - 1)


@pytest.fixture(scope="module")
def client(engine, start):
    with TestClient(create_app(engine, start, host_names("127.0.0.1")), base_url="http://localhost") as one:
        yield one


def test_kept_attention_is_one_object_of_the_head_asked_for(encoding, queries_keys):
    maps = objects.attention(encoding, queries_keys, None)
    for head, values in (("mean", maps.mean(axis=0)), ("2", maps[2])):
        (found,) = objects.find(encoding, queries_keys, Recipe(head=head, mass=0.3))
        np.testing.assert_array_equal(found.mask, keep_mass_of_maps(values, 0.3))
        assert values[found.seed] == values.max()


def test_discovered_objects_are_the_librarys(encoding, queries_keys):
    features = discovery.key_features(queries_keys[1], encoding.prefix_tokens, encoding.grid)
    expected = {
        "lost": [discovery.lost(features)],
        "tokencut": [discovery.tokencut(features)],
        "several": discovery.several(features, 4),
    }
    for method, ones in expected.items():
        found = objects.find(encoding, queries_keys, Recipe(method, count=4))
        assert [one.seed for one in found] == [one.seed for one in ones if one.mask.any()]
        labels = objects.labels_of(found, encoding.grid)
        assert set(np.unique(labels)) <= set(range(len(found) + 1))
        for number, one in enumerate(found, 1):
            np.testing.assert_array_equal(labels == number, one.mask)


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "magic"},
        {"head": "best"},
        {"head": "-1"},
        {"mass": 0.0},
        {"mass": 1.1},
        {"mass": float("nan")},
        {"count": 0},
        {"count": 7},
    ],
)
def test_impossible_recipes_are_refused_in_words(wrong):
    with pytest.raises(LabError, match=r"^The .*\.$"):
        Recipe(**wrong)


def test_head_beyond_the_last_is_named(encoding, queries_keys):
    with pytest.raises(LabError, match="heads 0 to 2"):
        objects.find(encoding, queries_keys, Recipe(head="3"))


def test_picture_of_one_patch_is_not_cut(engine, encoding, queries_keys):
    token = engine.encode(
        type(encoding.photo)("dot", "dot", lambda: np.zeros((4, 4, 3), np.uint8)), MODEL, 16
    )
    dot = engine.encoding(token)
    with pytest.raises(LabError, match="single patch"):
        objects.find(dot, engine.queries_keys(dot, 11), Recipe("tokencut"))


# --- pixels

some_labels = st.tuples(st.integers(1, 6), st.integers(1, 6)).flatmap(
    lambda grid: arrays(np.uint8, grid, elements=st.integers(0, 3))
)


@given(some_labels)
def test_masks_and_labels_say_the_same(labels):
    masks = objects.masks_of(labels, 3)
    assert masks.shape == (3, *labels.shape)
    np.testing.assert_array_equal((masks * np.array([1, 2, 3])[:, None, None]).sum(axis=0), labels)


@given(some_labels)
def test_every_file_decodes_to_the_labels(labels):
    labels = enlarge(labels, (12, 18))
    picture = np.full((12, 18, 3), 90, np.uint8)
    files = {name: make(picture, labels) for name, (_, make) in FILES.items()}
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(files["labels.png"]))), labels)
    decoded = [coco.decode(record["segmentation"]) for record in json.loads(files["masks.json"])]
    assert len(decoded) == labels.max()
    for number, mask in enumerate(decoded, 1):
        np.testing.assert_array_equal(mask, labels == number)
    overlay = np.array(Image.open(io.BytesIO(files["overlay.png"])))
    assert overlay.shape == picture.shape
    if not labels.any():
        np.testing.assert_array_equal(overlay, picture)


def test_refined_edges_follow_the_picture():
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
def test_refined_labels_have_the_size_asked_for(size):
    picture = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    labels = np.array([[0, 1], [2, 2]], np.uint8)
    assert objects.in_pixels(labels, picture, True).shape == size
    assert max(objects.refined_size(picture)) <= objects.REFINED_SIDE


# --- addresses


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("refined", [False, True])
def test_what_is_shown_and_what_is_downloaded_are_one(client, token, encoding, method, refined):
    """The photograph is smaller than where refining shrinks it, so both have its size."""
    query = f"method={method}&refined={refined}"
    found = client.get(f"/lab/encodings/{token}/objects/found?{query}").json()
    labels = np.frombuffer(base64.b64decode(found["labels"]), np.uint8)
    labels = enlarge(labels.reshape(found["rows"], found["columns"]), encoding.picture.shape[:2])
    answer = client.get(f"/lab/encodings/{token}/objects/labels.png?{query}")
    assert f'filename="noise-{method}-labels.png"' in answer.headers["content-disposition"]
    assert "no-store" in answer.headers["cache-control"]
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(answer.content))), labels)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("found?mass=nan", 422),
        ("found?mass=x", 422),
        ("found?method=../x", 422),
        ("found?count=1000000", 422),
        ("found?head=99", 422),
        ("labels.png?method=<b>", 422),
        ("secret.png", 404),
    ],
)
def test_impossible_requests_get_one_sentence(client, token, path, status):
    answer = client.get(f"/lab/encodings/{token}/objects/{path}")
    assert answer.status_code == status
    assert answer.json()["detail"].endswith(".")
    assert "<" not in answer.text


def test_objects_are_behind_the_token(client):
    for path in ("objects/found", "objects/labels.png"):
        answer = client.get(f"/lab/encodings/guessed/{path}")
        assert answer.status_code == 422
        assert answer.json()["detail"].endswith("open it again.")


# --- the figure


def test_figure_shows_both_models_side_by_side(client, token):
    answer = client.get(f"/lab/compare/figure.png?left={token}&right={token}&left_head=0&right_head=mean")
    width, height = Image.open(io.BytesIO(answer.content)).size
    assert width > 3 * height / 2 * 1.3
    assert 'filename="noise-compared.png"' in answer.headers["content-disposition"]


@pytest.mark.parametrize("wrong", ["left_head=99", "right_head=x", "mass=nan", "left=guessed", "mass=2"])
def test_impossible_figures_get_one_sentence(client, token, wrong):
    query = dict(pair.split("=") for pair in f"left={token}&right={token}&{wrong}".split("&"))
    answer = client.get("/lab/compare/figure.png", params=query)
    assert answer.status_code == 422
    assert answer.json()["detail"].endswith(".")


def test_figure_needs_heads_and_shares_that_can_be():
    with pytest.raises(LabError):
        Figure("a", "b", left_head="best")
