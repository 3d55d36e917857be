"""Object discovery: the algorithms and metrics, compared with plain versions."""

import sys

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from skimage import data

from dino_model.inference.predictor import AttentionPredictor
from segmentation import discovery, discovery_eval, edges
from segmentation.discovery import Placement, second_eigenvector
from segmentation.masks import Box


def scene(rows: int, columns: int, objects: list[tuple[slice, slice]], seed: int = 0) -> np.ndarray:
    """Features of a noisy background and of objects, each similar within itself: [rows, columns, 16]."""
    rng = np.random.default_rng(seed)
    background, *directions = np.linalg.qr(rng.standard_normal((16, 16)))[0]
    features = np.tile(background, (rows, columns, 1))
    for direction, place in zip(directions, objects, strict=False):
        features[place] = direction - 0.4 * background
    return features + 0.05 * rng.standard_normal(features.shape)


def box_mask(rows: int, columns: int, place: tuple[slice, slice]) -> np.ndarray:
    mask = np.zeros((rows, columns), dtype=bool)
    mask[place] = True
    return mask


def lost_in_full(features: np.ndarray, candidates: int) -> tuple[np.ndarray, tuple[int, int]]:
    """LOST with the whole matrix of similarities, as its paper states it."""
    from scipy.ndimage import label

    rows, columns, _ = features.shape
    flat = features.reshape(rows * columns, -1)
    similar = flat @ flat.T
    degree = np.array([sum(similar[p, q] > 0 for q in range(len(flat)) if q != p) for p in range(len(flat))])
    order = sorted(range(len(flat)), key=lambda patch: (degree[patch], patch))[:candidates]
    joined = [patch for patch in order if similar[patch, order[0]] > 0]
    parts, _ = label((similar[joined].sum(axis=0) > 0).reshape(rows, columns))
    return parts == parts[divmod(order[0], columns)], divmod(order[0], columns)


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 9), st.integers(3, 9), st.integers(1, 30), st.integers(0, 1000))
def test_lost_equals_reference(rows, columns, candidates, seed):
    features = np.random.default_rng(seed).standard_normal((rows, columns, 4))
    found, (mask, seed_patch) = discovery.lost(features, candidates), lost_in_full(features, candidates)
    np.testing.assert_array_equal(found.mask, mask)
    assert found.seed == seed_patch


def test_lost_grows_from_100_candidates():
    features = np.random.default_rng(140).standard_normal((9, 13, 6))  # 99 and 101 give others
    np.testing.assert_array_equal(discovery.lost(features).mask, lost_in_full(features, 100)[0])


def tokencut_in_full(features: np.ndarray, tau: float) -> np.ndarray:
    """TokenCut with a dense eigenproblem: the component of the largest element on its side of the mean."""
    from scipy.linalg import eigh
    from scipy.ndimage import label

    rows, columns, _ = features.shape
    flat = features.reshape(rows * columns, -1)
    unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    weights = np.where(unit @ unit.T > tau, 1.0, 1e-5)
    degrees = np.diag(weights.sum(axis=1))
    vector = eigh(degrees - weights, degrees, subset_by_index=[1, 1])[1][:, 0]
    second, largest = np.sort(np.abs(vector))[-2:]
    assume(largest - second > 1e-9)  # rounding decides between equal elements
    seed = int(np.abs(vector).argmax())
    above = vector > vector.mean()
    parts, _ = label((above == above[seed]).reshape(rows, columns))
    return parts == parts[divmod(seed, columns)]


@settings(max_examples=25, deadline=None)
@example(272, 4)  # the element of largest magnitude is not the farthest from the mean
@given(st.integers(0, 399), st.sampled_from([4, 15]))  # from 15 × 15 patches on by Lanczos
def test_tokencut_equals_dense_reference(seed, least):
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(least, 14 if least == 4 else 20, 2)
    noise = rng.standard_normal((rows, columns, 3))
    features = noise + 2 * rng.integers(0, 2, (rows, columns, 1)) * rng.standard_normal(3)
    np.testing.assert_array_equal(discovery.tokencut(features).mask, tokencut_in_full(features, 0.2))


def test_patches_that_are_not_similar_have_edges_of_1e_5(monkeypatch):
    graphs: list[np.ndarray] = []
    monkeypatch.setattr(discovery, "second_eigenvector", lambda graph: graphs.append(graph) or graph[0])
    cosine, other = np.array([1, 0]), np.array([0.1, 0.99**0.5])
    discovery.tokencut(np.array([[cosine, other, cosine]]))
    assert graphs[0].tolist() == [[1, 1e-5, 1], [1e-5, 1, 1e-5], [1, 1e-5, 1]]


@pytest.mark.parametrize("nodes", [20, 250])
def test_second_eigenvector_has_length_1_and_a_positive_extreme(nodes):
    weights = np.random.default_rng(0).random((nodes, nodes))
    weights += weights.T
    weights[: nodes // 3, nodes // 3 :] /= 9
    weights[nodes // 3 :, : nodes // 3] /= 9
    root = np.sqrt(weights.sum(1))
    expected = np.linalg.eigh(weights / np.outer(root, root))[1][:, -2] / root
    expected *= np.sign(expected[abs(expected).argmax()]) / np.sqrt((expected**2).sum())
    np.testing.assert_allclose(second_eigenvector(weights), expected, atol=1e-6)


def test_attention_is_kept_whole_or_in_its_largest_part_with_the_brightest_patch_as_seed():
    attention = np.full((4, 7), 0.01)
    attention[0, 5], attention[2:4, 1:4] = 0.3, 0.1
    attention[3, 3] = 0.12
    kept = attention > 0.05
    (whole,), (part,) = discovery.keep_attention(attention, 0.8), discovery.keep_largest_part(attention, 0.8)
    np.testing.assert_array_equal(whole.mask, kept)
    np.testing.assert_array_equal(part.mask, kept & (np.arange(7) < 5))
    assert (whole.seed, part.seed, whole.confidence) == ((0, 5), (3, 3), 1.0)


def test_maskcut_finds_several_objects_of_some_size():
    places = [(slice(2, 7), slice(2, 8)), (slice(3, 9), slice(15, 20))]
    found = discovery.maskcut(scene(16, 24, places), count=3)
    for place in places:
        assert any(np.array_equal(piece.mask, box_mask(16, 24, place)) for piece in found)
    assert np.sum([piece.mask for piece in found], axis=0).max() == 1
    blank = np.ones((6, 7, 8))
    assert not discovery.tokencut(blank).mask.any()
    assert discovery.maskcut(blank, count=3) == []


@pytest.mark.parametrize("patches", [1, 2])
def test_maskcut_leaves_out_pieces_of_at_most_one_percent(patches):
    place = (slice(5, 6), slice(5, 5 + patches))  # of 100 patches
    found = discovery.maskcut(scene(10, 10, [place]), count=1)
    assert [piece.mask.tolist() for piece in found] == [box_mask(10, 10, place).tolist()] * (patches - 1)


@pytest.mark.parametrize(("cosine", "count"), [(0.14, 1), (0.16, 0)])
def test_maskcut_connects_patches_with_a_cosine_above_015(cosine, count):
    features, place = np.zeros((6, 6, 2)), (slice(2, 4), slice(2, 5))
    features[..., 0] = 1
    features[place] = cosine, (1 - cosine**2) ** 0.5
    found = discovery.maskcut(features, count=1)
    assert [piece.mask.tolist() for piece in found] == [box_mask(6, 6, place).tolist()] * count


@pytest.mark.parametrize("corners", [2, 3])
def test_maskcut_takes_the_side_with_three_corners_as_background(corners):
    side = np.zeros((10, 10), dtype=bool)
    side[-1] = True
    side[:, 0] |= corners == 3
    (piece,) = discovery.maskcut(scene(10, 10, [side]), count=1)
    np.testing.assert_array_equal(piece.mask, side if corners == 2 else ~side)


def test_padding_has_mean_color_and_stays_outside_of_image(monkeypatch):
    place = Placement(image=(20, 30), covered=(24, 32))
    assert place.box(box_mask(3, 4, (slice(1, 3), slice(2, 4)))) == Box(16, 8, 30, 20)
    assert place.box(np.zeros((3, 4), dtype=bool)) is None
    predictor = AttentionPredictor("random:vit_tiny/16", resize="native", precision="fp32")
    image, given = data.cat()[:50, :70], []
    monkeypatch.setattr(predictor, "set_image", given.append)
    assert discovery.set_padded(predictor, image) == Placement((50, 70), (64, 80))
    np.testing.assert_array_equal(given[0][:50, :70], image)
    assert (given[0][50:] == np.rint(255 * np.array(predictor.model.mean))).all()


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
    np.testing.assert_allclose(edges.refine_edges(masks, image, radius=5), expected, atol=1e-6)
    monkeypatch.setattr(edges, "_PIXELS_AT_A_TIME", 11 * 40)
    np.testing.assert_allclose(edges.refine_edges(masks[0], image, radius=5), expected[0], atol=1e-6)


def test_localized_needs_jaccard_of_one_half(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools", None)  # lesson B has none
    half, less = [Box(9, 9, 10, 10), Box(0, 0, 4, 8)], [Box(0, 0, 4, 9)]
    assert discovery_eval.is_localized(Box(0, 0, 4, 4), half)
    assert not discovery_eval.is_localized(Box(0, 0, 4, 4), less)
    assert not discovery_eval.is_localized(None, [Box(0, 0, 4, 4)])
    assert not discovery_eval.is_localized(Box(0, 0, 1, 9), [Box(3, 0, 4, 9)])  # side by side


@pytest.mark.parametrize(("convention", "weight", "best"), [("tokencut", 0.3, 0.4), ("found", 0.09, 0.7)])
def test_f_curve_and_max_f_equal_reference(convention, weight, best):
    rng = np.random.default_rng(3)
    truth, score = rng.random((12, 9)) > 0.6, rng.random((12, 9))
    expected = []
    for threshold in np.linspace(0, 1 - 1e-10, 255):
        inside = score >= threshold
        correct = (inside & truth).sum()
        precision, recall = correct / max(inside.sum(), 1), correct / truth.sum()
        expected.append((1 + weight) * precision * recall / max(weight * precision + recall, 1e-20))
    np.testing.assert_allclose(discovery_eval.f_curve(score, truth, convention), expected, atol=1e-12)
    assert (discovery_eval.f_curve(np.ones((4, 4)), np.zeros((4, 4), dtype=bool), convention) == 0).all()
    curves = np.zeros((2, 255))
    curves[0, 10], curves[1, 200] = 0.8, 0.6
    assert discovery_eval.max_f(curves, convention) == pytest.approx(best)


def test_cut_confidence_is_one_minus_the_normalized_cut(monkeypatch):
    two, mask = np.zeros((4, 6, 2), dtype=np.float32), box_mask(4, 6, (slice(1, 3), slice(1, 4)))
    two[mask, 0], two[~mask, 1] = 1, 1  # orthogonal features: no edge between them
    assert discovery.cut_confidence(two, mask) == 1
    assert discovery.cut_confidence(np.ones_like(two), mask) == pytest.approx(0)
    assert discovery.cut_confidence(two, np.zeros_like(mask)) == 0
    bridge = two.copy()
    bridge[0, 0] = (1, 1)  # one patch outside is similar to all
    expected = 1 - 6 / (18 * 18 + 6) - 6 / (6 * 6 + 6)
    monkeypatch.setattr(discovery, "CHUNK", 5)
    assert discovery.cut_confidence(bridge, mask) == pytest.approx(expected)
