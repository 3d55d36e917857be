"""Objects and the figure of two models: algorithms, files, and handlers that anybody may call."""

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
from app.engine import Key
from app.errors import LabError
from app.figure import Side
from app.following import from_runs
from app.objects import FILES, METHODS, Recipe
from app.tabs import compare, segment
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


def test_image_of_one_patch_is_not_cut(lab, as_file):
    name, _ = lab.pictures.keep(as_file(np.zeros((4, 4, 3), np.uint8)))
    weights = lab.models.ready(MODEL)
    dot = lab.engine.look(Key(name, MODEL, 16), weights, lab.pictures.read(name))
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


# --- handlers of the tabs Segment and Compare


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("refined", [False, True])
def test_segment_download_has_the_labels_of_the_view(lab, token, encoding, method, refined):
    """The image is smaller than the size at which edges are refined, so view and file have one size."""
    wanted = {"token": token, "method": method, "refined": refined, "name": "noise.png"}
    shown = segment.found(lab, wanted)
    labels = from_runs(shown["runs"], (shown["rows"], shown["columns"]))
    name, content = segment._drawing(lab, "labels.png")(wanted)
    assert name == f"noise-{method}-labels.png"
    expected = enlarge(labels, encoding.picture_size)
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(content))), expected)


def test_segment_answer_repeats_token_and_key_of_the_question(lab, token):
    shown = segment.found(lab, {"token": token, "method": "maskcut", "count": 2, "key": "x" * 999})
    assert (shown["token"], shown["key"]) == (token, "x" * 200)
    assert 1 <= len(shown["seeds"]) <= 2


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"mass": float("nan")}, "between 0.01 and 1"),
        ({"mass": "x"}, "wrong type"),
        ({"method": "../x"}, "must be one of"),
        ({"method": "<b>"}, "must be one of"),
        ({"count": 1_000_000}, "between 1 and 6"),
        ({"count": True}, "wrong type"),
        ({"head": "99"}, "no head 99"),
        ({"head": None}, "wrong type"),
        ({"refined": 1}, "wrong type"),
        ({"token": "guessed"}, "nothing behind this token"),
        ({"token": None}, "Choose an image"),
    ],
)
def test_segment_with_invalid_question_is_refused(lab, token, wrong, sentence):
    for answer in (segment.found, lambda lab, wanted: segment._drawing(lab, "labels.png")(wanted)):
        with pytest.raises(LabError, match=sentence):
            answer(lab, {"token": token} | wrong)


@pytest.mark.parametrize("wanted", [None, [], "kitten", 3])
def test_segment_with_no_object_as_question_is_refused(lab, wanted):
    with pytest.raises(LabError, match="Choose an image"):
        segment.found(lab, wanted)


# --- the figure


@pytest.fixture
def figure_of(lab, token):
    """`figure_of(**changed)`: name and bytes of the figure of the tab Compare."""
    request = {"left": token, "right": token, "left_head": "0", "right_head": "mean", "name": "noise.png"}
    return lambda **changed: compare.drawn(lab, request | changed)


def test_figure_shows_both_models_side_by_side(figure_of):
    name, content = figure_of()
    width, height = Image.open(io.BytesIO(content)).size
    assert width > 3 * height / 2 * 1.3
    assert name == "noise-compared.png"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"left_head": "99"}, "no head 99"),
        ({"right_head": "x"}, "head must be"),
        ({"left_head": 0}, "tokens and heads"),
        ({"mass": 2}, "between 0.01 and 1"),
        ({"mass": True}, "number"),
        ({"left": "guessed"}, "nothing behind this token"),
        ({"drawn": "all"}, "runs of whole numbers"),
        ({"drawn": {"size": [2.0, 2], "runs": [0, 4]}}, "runs of whole numbers"),
        ({"drawn": {"size": [10**6, 10**6], "runs": []}}, "million pixels"),
        ({"drawn": {"size": [2, 2], "runs": [0, 3]}}, "does not fit"),
        ({"drawn": {"size": [2, 2], "runs": [2, 4]}}, "does not fit"),
        ({"drawn": {"size": [2, 2], "runs": [0, -4]}}, "does not fit"),
    ],
)
def test_figure_with_invalid_request_is_refused(figure_of, wrong, sentence):
    with pytest.raises(LabError, match=sentence):
        figure_of(**wrong)


def test_figure_of_two_images_is_refused(figure_of, encode):
    with pytest.raises(LabError, match="different images"):
        figure_of(right=encode("kitten").key.token)


@pytest.mark.parametrize("request_", [None, [], "figure"])
def test_figure_with_no_object_as_request_is_refused(lab, request_):
    with pytest.raises(LabError, match="second model"):
        compare.drawn(lab, request_)


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
