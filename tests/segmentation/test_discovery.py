"""Objects without labels: the algorithms against plain versions, the eigenproblem, the measures."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh
from scipy.ndimage import label
from skimage import data

from dino_model.predictor import AttentionPredictor
from segmentation import discovery
from segmentation.discovery import Placement, second_eigenvector
from segmentation.masks import Box


def scene(rows: int, columns: int, objects: list[tuple[slice, slice]], seed: int = 0) -> np.ndarray:
    """Features of a noisy background and of objects, each similar within itself: [rows, columns, 16]."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.standard_normal((16, 16)))[0]
    features = np.tile(directions[0], (rows, columns, 1))
    for number, place in enumerate(objects, start=1):
        features[place] = directions[number] - 0.4 * directions[0]
    return features + 0.05 * rng.standard_normal(features.shape)


def box_mask(rows: int, columns: int, place: tuple[slice, slice]) -> np.ndarray:
    mask = np.zeros((rows, columns), dtype=bool)
    mask[place] = True
    return mask


def lost_in_full(features: np.ndarray, candidates: int) -> np.ndarray:
    """LOST with the whole matrix of similarities, as its paper states it."""
    rows, columns, _ = features.shape
    flat = features.reshape(rows * columns, -1)
    similar = flat @ flat.T
    degree = np.array([sum(similar[p, q] > 0 for q in range(len(flat)) if q != p) for p in range(len(flat))])
    order = sorted(range(len(flat)), key=lambda patch: (degree[patch], patch))[:candidates]
    joined = [patch for patch in order if similar[patch, order[0]] > 0]
    parts, _ = label((similar[joined].sum(axis=0) > 0).reshape(rows, columns))
    return parts == parts[divmod(order[0], columns)]


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 9), st.integers(3, 9), st.integers(1, 30), st.integers(0, 1000))
def test_lost_equals_reference(rows, columns, candidates, seed):
    features = np.random.default_rng(seed).standard_normal((rows, columns, 4))
    expected = lost_in_full(features, candidates)
    np.testing.assert_array_equal(discovery.lost(features, candidates).mask, expected)


def tokencut_in_full(features: np.ndarray, tau: float) -> np.ndarray:
    """TokenCut as its published code computes it: a dense eigenproblem, the patch with the largest element by
    size, its side of the mean, and of that the part that hangs together with it."""
    rows, columns, _ = features.shape
    flat = features.reshape(rows * columns, -1)
    unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    weights = np.where(unit @ unit.T > tau, 1.0, 1e-5)
    degrees = np.diag(weights.sum(axis=1))
    vector = eigh(degrees - weights, degrees, subset_by_index=[1, 1])[1][:, 0]
    seed = int(np.abs(vector).argmax())
    above = vector > vector.mean()
    parts, _ = label((above == above[seed]).reshape(rows, columns))
    return parts == parts[divmod(seed, columns)]


def clustered(seed: int) -> np.ndarray:
    """Features of two clusters, strewn over a small grid."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(4, 14, 2)
    noise = rng.standard_normal((rows, columns, 3))
    return noise + 2 * rng.integers(0, 2, (rows, columns, 1)) * rng.standard_normal(3)


@settings(max_examples=25, deadline=None)
@example(272)  # whose largest element by size is not the farthest from the mean
@given(st.integers(0, 399))
def test_tokencut_equals_dense_reference(seed):
    features = clustered(seed)
    np.testing.assert_array_equal(discovery.tokencut(features).mask, tokencut_in_full(features, 0.2))


def test_maskcut_finds_several_objects():
    places = [(slice(2, 7), slice(2, 8)), (slice(3, 9), slice(15, 20))]
    found = discovery.maskcut(scene(16, 24, places), count=3)
    assert len(found) >= 2
    for place in places:
        expected = box_mask(16, 24, place)
        assert any(np.array_equal(piece.mask, expected) for piece in found)
    for number, piece in enumerate(found):
        assert not any((piece.mask & earlier.mask).any() for earlier in found[:number])


def test_blank_or_tiny_features_give_no_object():
    blank = np.ones((6, 7, 8))
    assert not discovery.tokencut(blank).mask.any()
    assert discovery.maskcut(blank) == []
    speck = scene(20, 20, [(slice(5, 6), slice(5, 6))])
    assert not discovery.maskcut(speck, count=1)  # below 1 % of the image


@settings(max_examples=15, deadline=None)
@given(st.integers(200, 400), st.integers(0, 1000))
def test_lanczos_equals_dense_solver(nodes, seed):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((nodes, 5)) + 2 * rng.integers(0, 2, (nodes, 1)) * rng.standard_normal(5)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    weights = np.where(unit @ unit.T > 0.2, 1.0, 1e-5)
    degrees = np.diag(weights.sum(axis=1))
    ours, dense = (
        second_eigenvector(weights),
        eigh(degrees - weights, degrees, subset_by_index=[1, 1])[1][:, 0],
    )
    dense *= np.sign(ours @ dense)
    np.testing.assert_allclose(ours, dense / np.linalg.norm(dense), atol=1e-7)
    np.testing.assert_array_equal(ours > ours.mean(), dense > dense.mean())


def test_placement_of_padded_grid_stays_in_image():
    place = Placement(image=(20, 30), covered=(24, 32))
    on_grid = box_mask(3, 4, (slice(1, 3), slice(2, 4)))
    assert place.mask(on_grid).shape == (20, 30)
    assert place.box(on_grid) == Box(16, 8, 30, 20)
    assert place.box(np.zeros((3, 4), dtype=bool)) is None


def test_padding_keeps_image_and_adds_mean_color(monkeypatch):
    predictor = AttentionPredictor("random:vit_tiny/16", resize="native", precision="fp32")
    given, encode = [], predictor.set_image
    monkeypatch.setattr(predictor, "set_image", lambda image: given.append(image) or encode(image))
    image = data.cat()[:50, :70]
    assert discovery.set_padded(predictor, image) == Placement((50, 70), (64, 80))
    np.testing.assert_array_equal(given[0][:50, :70], image)
    mean = np.rint(255 * np.array(predictor.model.mean))
    assert (given[0][50:] == mean).all()
    assert discovery.image_features(predictor).shape == (4, 5, 192)


def test_refined_edges_move_to_image_edges():
    picture = np.full((60, 60, 3), 40, dtype=np.uint8)
    picture[10:43, 10:43] = (200, 120, 60)
    coarse = box_mask(60, 60, (slice(8, 40), slice(8, 40)))  # of patches of 8, the object straddling them
    truth = box_mask(60, 60, (slice(10, 43), slice(10, 43)))
    soft = discovery.refine_edges(coarse, picture, radius=8)
    assert soft.dtype == np.float32
    assert 0 <= soft.min() <= soft.max() <= 1
    assert ((soft > 0.5) != truth).mean() < 0.2 * (coarse != truth).mean()


def guided_filter(mask: np.ndarray, image: np.ndarray, radius: int) -> np.ndarray:
    """Equations 14 to 16 of He, Sun and Tang, window by window, with a solver at each pixel."""

    def mean(values: np.ndarray) -> np.ndarray:
        places = [(radius, radius)] * 2 + [(0, 0)] * (values.ndim - 2)
        padded = np.pad(values, places, mode="symmetric")
        windows = np.lib.stride_tricks.sliding_window_view(padded, (2 * radius + 1,) * 2, axis=(0, 1))
        return windows.mean(axis=(-2, -1))

    guide, wanted = image / 255, mask.astype(float)
    average = mean(guide)
    covariance = mean(guide[..., :, None] * guide[..., None, :])
    covariance -= average[..., :, None] * average[..., None, :] - 1e-3 * np.eye(3)
    joint = mean(guide * wanted[..., None]) - average * mean(wanted)[..., None]
    slope = np.linalg.solve(covariance, joint[..., None])[..., 0]
    offset = mean(wanted) - (slope * average).sum(axis=-1)
    return ((mean(slope) * guide).sum(axis=-1) + mean(offset)).clip(0, 1)


def test_refine_edges_equals_the_formula_in_strips_and_for_several_masks(monkeypatch):
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (90, 40, 3), dtype=np.uint8)
    masks = rng.random((2, 90, 40)) > 0.5
    expected = [guided_filter(mask, image, 5) for mask in masks]
    np.testing.assert_allclose(discovery.refine_edges(masks, image, radius=5), expected, atol=1e-6)
    monkeypatch.setattr(discovery, "_PIXELS_AT_A_TIME", 11 * 40)
    np.testing.assert_allclose(discovery.refine_edges(masks[0], image, radius=5), expected[0], atol=1e-6)


def test_localized_needs_jaccard_of_one_half():
    assert discovery.localized(Box(0, 0, 4, 4), [Box(9, 9, 10, 10), Box(0, 0, 4, 8)])  # exactly one half
    assert not discovery.localized(Box(0, 0, 4, 4), [Box(0, 0, 4, 9)])
    assert not discovery.localized(None, [Box(0, 0, 4, 4)])


@pytest.mark.parametrize(("convention", "weight"), [("tokencut", 0.3), ("found", 0.09)])
def test_f_curve_equals_reference(convention, weight):
    rng = np.random.default_rng(3)
    truth, score = rng.random((12, 9)) > 0.6, rng.random((12, 9))
    expected = []
    for threshold in np.linspace(0, 1 - 1e-10, 255):
        inside = score >= threshold
        correct = (inside & truth).sum()
        precision, recall = correct / max(inside.sum(), 1), correct / truth.sum()
        expected.append((1 + weight) * precision * recall / max(weight * precision + recall, 1e-20))
    np.testing.assert_allclose(discovery.f_curve(score, truth, convention), expected, atol=1e-12)
    nothing = np.zeros((4, 4), dtype=bool)
    assert (discovery.f_curve(np.ones((4, 4)), nothing, convention) == 0).all()


def test_max_f_takes_common_or_own_threshold():
    curves = np.zeros((2, 255))
    curves[0, 10], curves[1, 200] = 0.8, 0.6
    assert discovery.max_f(curves, "tokencut") == pytest.approx(0.4)
    assert discovery.max_f(curves, "found") == pytest.approx(0.7)


def test_cut_confidence_is_one_minus_the_normalized_cut(monkeypatch):
    two = np.zeros((4, 6, 2), dtype=np.float32)
    mask = np.zeros((4, 6), dtype=bool)
    mask[1:3, 1:4] = True
    two[mask, 0], two[~mask, 1] = 1, 1  # orthogonal features: no edge between them
    assert discovery.cut_confidence(two, mask) == 1
    assert discovery.cut_confidence(np.ones_like(two), mask) == pytest.approx(0)
    assert discovery.cut_confidence(two, np.zeros_like(mask)) == 0
    bridge = two.copy()
    bridge[0, 0] = (1, 1)  # one patch outside is similar to all
    expected = 1 - 6 / (18 * 18 + 6) - 6 / (6 * 6 + 6)
    monkeypatch.setattr(discovery, "CHUNK", 5)
    assert discovery.cut_confidence(bridge, mask) == pytest.approx(expected)
