import numpy as np
import pytest
from numpy.typing import NDArray

from segmentation import matching
from segmentation.matching import (
    best_scale,
    centres,
    joint_colors,
    mutual_matches,
    nearest,
    patch_of,
    prepared,
    similarities,
    transfer,
)


def features(rows: int, columns: int, width: int = 12, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(rows, columns, width)).astype(np.float32)


def plain_cosine(u: NDArray, v: NDArray) -> float:
    return float(u @ v / np.linalg.norm(u) / np.linalg.norm(v))


def plain_nearest(a: NDArray, b: NDArray) -> list[tuple[int, float, float]]:
    """Index, cosine and ratio of every patch of A, one patch after the other."""
    found = []
    for u in a.reshape(-1, a.shape[-1]):
        cosines = np.array([[plain_cosine(u, v) for v in row] for row in b])
        row, column = np.unravel_index(cosines.argmax(), cosines.shape)
        far = np.ones(cosines.shape, bool)
        far[max(0, row - 2) : row + 3, max(0, column - 2) : column + 3] = False
        rival = cosines[far].max() if far.any() else -1.0
        found.append((row * b.shape[1] + column, cosines.max(), (1 - cosines.max()) / (1 - rival)))
    return found


@pytest.mark.parametrize("chunk", [2048, 7])
def test_the_nearest_are_those_of_every_pair_compared_plainly(chunk: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(matching, "CHUNK", chunk)
    a, b = features(4, 6), features(7, 5, seed=1)
    found = nearest(a, b)
    index, cosine, ratio = map(np.array, zip(*plain_nearest(a, b), strict=True))
    np.testing.assert_array_equal(found.patch, index)
    np.testing.assert_allclose(found.cosine, cosine, atol=1e-6)
    np.testing.assert_allclose(found.ratio, ratio, atol=1e-5)


@pytest.mark.parametrize("ratio", [0.5, 0.8, 1.0])
def test_mutual_matches_are_each_others_nearest_and_beat_their_rivals_both_ways(ratio: float):
    a, b = features(6, 8), features(6, 8)[::-1] + 1.5 * features(6, 8, seed=2)
    to_b, to_a = plain_nearest(a, b), plain_nearest(b, a)
    expected = {
        (i, j) for i, (j, _, sure) in enumerate(to_b) if to_a[j][0] == i and max(sure, to_a[j][2]) <= ratio
    }
    found = mutual_matches(a, b, ratio)
    pairs = zip(found.a @ [8, 1], found.b @ [8, 1], strict=True)
    assert {(int(i), int(j)) for i, j in pairs} == expected
    assert list(found.ratio) == sorted(found.ratio), "the surest first"
    assert len(found) == len(expected) > 0


def test_a_picture_matches_itself_everywhere():
    a = features(5, 9)
    found = mutual_matches(a, a)
    assert len(found) == 45
    np.testing.assert_array_equal(found.a, found.b)
    np.testing.assert_allclose(found.cosine, 1, atol=1e-6)


def test_equal_patches_everywhere_match_nothing():
    a = np.ones((6, 6, 4), np.float32)
    assert len(mutual_matches(a, a, ratio=0.99)) == 0
    assert len(mutual_matches(*prepared(a, a), ratio=0.99)) == 0


def test_a_shifted_picture_matches_by_its_shift():
    whole = features(10, 14)
    a, b = whole[:, :10], whole[:, 3:13]
    found = mutual_matches(a, b, 0.9)
    inside = found.a[:, 1] >= 3
    assert inside.sum() == 70
    np.testing.assert_array_equal(found.b[inside], found.a[inside] - [0, 3])


@pytest.mark.parametrize("around", [0, 1])
def test_preparing_averages_neighbours_and_takes_the_mean_of_both_pictures_away(around: int):
    a, b = features(4, 5), features(3, 6, seed=1)
    found_a, found_b = prepared(a, b, around)
    padded = np.pad(a, ((around, around), (around, around), (0, 0)), mode="edge")
    side = 2 * around + 1
    means = [[padded[r : r + side, c : c + side].mean((0, 1)) for c in range(5)] for r in range(4)]
    shift = np.array(means) - found_a
    np.testing.assert_allclose(shift, np.broadcast_to(shift[0, 0], shift.shape), atol=1e-5)
    np.testing.assert_allclose(found_a.mean((0, 1)) + found_b.mean((0, 1)), 0, atol=1e-5)


def test_the_scale_with_most_matches_is_taken():
    a = features(6, 6)
    near = a + 0.1 * features(6, 6, seed=3)
    scale, found = best_scale(a, {0.7: features(4, 4, seed=5), 1.0: near, 1.4: features(9, 9, seed=4)}, 0.9)
    assert scale == 1.0
    assert len(found) > 10
    with pytest.raises(ValueError, match="no scale"):
        best_scale(a, {})


def test_a_point_is_found_again():
    a = features(6, 7)
    b = a[::-1, ::-1]
    assert transfer(a, b, (1, 2)) == ((4, 4), pytest.approx(1, abs=1e-6))
    cosines = similarities(a, b, (1, 2))
    assert cosines.shape == (6, 7)
    assert cosines[0, 3] == pytest.approx(plain_cosine(a[1, 2], b[0, 3]), abs=1e-6)


def test_the_same_features_have_the_same_colours_in_both_pictures():
    a = features(5, 6)
    in_a, in_b = joint_colors(a, a[:, ::-1])
    np.testing.assert_allclose(in_a, in_b[:, ::-1], atol=1e-6)
    assert (in_a.min(), in_a.max()) == (0, 1)
    assert in_a.dtype == np.float32
    assert in_a.reshape(-1, 3).std(axis=0).min() > 0.05


@pytest.mark.parametrize("sign", [1, -1])
def test_the_foreground_is_what_touches_the_edges_less_and_the_rest_is_black(sign: int):
    a, b = 0.1 * features(8, 8), 0.1 * features(8, 8, seed=1)
    a[2:5, 2:6, 0] += sign * 5
    b[3:7, 1:4, 0] += sign * 5
    in_a, in_b = joint_colors(a, b, "foreground")
    inside = np.zeros((8, 8), bool)
    inside[2:5, 2:6] = True
    assert (in_a[~inside] == 0).all()
    assert (in_a[inside].sum(-1) > 0).mean() > 0.9
    assert (in_b.sum(-1) > 0).sum() in range(10, 13)


def test_centres_and_patches_go_back_and_forth():
    cells = np.stack(np.divmod(np.arange(12), 4), -1)
    for place, cell in zip(centres(cells, (3, 4), (31, 50)).round().astype(int), cells, strict=True):
        assert patch_of((int(place[0]), int(place[1])), (3, 4), (31, 50)) == tuple(cell)
    np.testing.assert_allclose(centres(np.array([0, 0]), (2, 2), (16, 8)), [3.5, 1.5])
    assert patch_of((15, 7), (2, 2), (16, 8)) == (1, 1)


@pytest.mark.parametrize("ratio", [0, -1, 1.01, float("nan")])
def test_a_ratio_that_cannot_be_is_refused(ratio: float):
    with pytest.raises(ValueError, match="expected above 0 and up to 1"):
        mutual_matches(features(2, 2), features(2, 2), ratio)


def test_other_impossible_things_are_told():
    with pytest.raises(ValueError, match="the point has y=16, but the picture ends at y=15"):
        patch_of((16, 0), (2, 2), (16, 8))
    with pytest.raises(ValueError, match="2 dimensions, expected at least 3"):
        joint_colors(features(2, 2, width=2), features(2, 2, width=2))
