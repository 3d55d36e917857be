import base64
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from pycocotools import mask as coco

from app import figure, objects
from app.errors import LabError
from app.figure import Side
from app.objects import FILES, METHODS, Recipe
from segmentation import discovery
from segmentation.masks import enlarge, keep_mass_of_maps

MODEL = "random:vit_tiny/16"


@pytest.fixture(scope="module")
def encoding(encode, photo):
    return encode(photo)


@pytest.fixture(scope="module")
def token(encoding) -> str:
    return encoding.key.token


@pytest.fixture(scope="module")
def queries_keys(encoding):
    return encoding.queries_keys(encoding.blocks - 1)


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
        "maskcut": discovery.maskcut(features, 4),
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


def test_picture_of_one_patch_is_not_cut(lab, encode):
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "PNG")
    dot = encode(lab.pictures.keep(buffer.getvalue())[0], MODEL, 16)
    with pytest.raises(LabError, match="single patch"):
        objects.find(dot, dot.queries_keys(11), Recipe("tokencut"))


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
    found = client.get(f"/api/encodings/{token}/objects?{query}").json()
    labels = np.frombuffer(base64.b64decode(found["labels"]), np.uint8)
    labels = enlarge(labels.reshape(found["rows"], found["columns"]), encoding.picture_size)
    answer = client.get(f"/api/encodings/{token}/objects/labels.png?{query}&name=noise.png")
    assert f'filename="noise-{method}-labels.png"' in answer.headers["content-disposition"]
    assert "no-store" in answer.headers["cache-control"]
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(answer.content))), labels)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("?mass=nan", 422),
        ("?mass=x", 422),
        ("?method=../x", 422),
        ("?count=1000000", 422),
        ("?head=99", 422),
        ("/labels.png?method=<b>", 422),
        ("/secret.png", 404),
    ],
)
def test_impossible_requests_get_one_sentence(client, token, path, status):
    answer = client.get(f"/api/encodings/{token}/objects{path}")
    assert answer.status_code == status
    assert answer.json()["error"].endswith(".")
    assert "<" not in answer.text


def test_objects_are_behind_the_token(client):
    for path in ("objects", "objects/labels.png"):
        answer = client.get(f"/api/encodings/guessed/{path}")
        assert answer.status_code == 404
        assert answer.json() == {
            "error": "There is nothing behind this token: open the picture again.",
            "unknown": "token",
        }


def test_answer_says_what_it_answers(client, token):
    asked = {"method": "maskcut", "head": "2", "mass": 0.4, "count": 2, "refined": False}
    assert asked.items() <= client.get(f"/api/encodings/{token}/objects", params=asked).json().items()


# --- the figure


def _figure(client, token, **asked):
    body = {"left": token, "right": token, "left_head": "0", "right_head": "mean", "name": "noise.png"}
    return client.post("/api/compare/figure.png", json=body | asked)


def test_figure_shows_both_models_side_by_side(client, token):
    answer = _figure(client, token)
    width, height = Image.open(io.BytesIO(answer.content)).size
    assert width > 3 * height / 2 * 1.3
    assert 'filename="noise-compared.png"' in answer.headers["content-disposition"]


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"left_head": "99"}, 422),
        ({"right_head": "x"}, 422),
        ({"mass": 2}, 422),
        ({"left": "guessed"}, 404),
        ({"drawn": {"size": [10**6, 10**6], "runs": []}}, 422),
        ({"drawn": {"size": [2, 2], "runs": [0, 3]}}, 422),
        ({"drawn": {"size": [2, 2], "runs": [2, 4]}}, 422),
        ({"drawn": {"size": [2, 2], "runs": [0, -4]}}, 422),
    ],
)
def test_impossible_figures_get_one_sentence(client, token, wrong, status):
    answer = _figure(client, token, **wrong)
    assert answer.status_code == status
    assert answer.json()["error"].endswith(".")


def test_figure_shows_the_drawn_mask_and_scores_both_by_it(encoding, queries_keys, pixels, monkeypatch):
    words, caption = [], figure.drawing.caption
    monkeypatch.setattr(
        figure.drawing,
        "caption",
        lambda picture, text, **how: words.append(text) or caption(picture, text, **how),
    )
    sides = [Side(encoding, queries_keys, head) for head in ("0", "1")]
    drawn = np.zeros((30, 45), np.uint8)
    drawn[:, :20] = 1
    plain, marked = (figure.png(pixels, sides, 0.5, mask) for mask in (None, drawn))
    truth = enlarge(drawn > 0, (60, 90))
    masks = [enlarge(side.mask(0.5), (60, 90)) for side in sides]
    scores = [(mask & truth).sum() / (mask | truth).sum() for mask in masks]
    said = [text for text in words if "similarity" in text]
    assert said[1].endswith(f"; with the drawn mask: {scores[0]:.3f} and {scores[1]:.3f}")
    assert said[1].startswith(said[0])
    left_third = [np.array(Image.open(io.BytesIO(file)))[:, :700] for file in (plain, marked)]
    assert not np.array_equal(*left_third)


def test_figure_of_two_photographs_is_refused(client, token, encode):
    answer = _figure(client, token, right=encode("kitten").key.token)
    assert "different photographs" in answer.json()["error"]
