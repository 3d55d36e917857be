import numpy as np
import pytest
from numpy.typing import NDArray

from segmentation import matching
from segmentation.matching import ImageFeatures, Matches


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
def test_nearest_equals_reference(chunk: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(matching, "CHUNK", chunk)
    a, b = features(4, 6), features(7, 5, seed=1)
    found = matching.nearest(a, b)
    index, cosine, ratio = map(np.array, zip(*plain_nearest(a, b), strict=True))
    np.testing.assert_array_equal(found.patch, index)
    np.testing.assert_allclose(found.cosine, cosine, atol=1e-6)
    np.testing.assert_allclose(found.ratio, ratio, atol=1e-5)


@pytest.mark.parametrize("ratio", [0.8, 1.0])
def test_mutual_matches_equal_reference(ratio: float):
    a, b = features(6, 8), features(6, 8)[::-1] + 1.5 * features(6, 8, seed=2)
    to_b, to_a = plain_nearest(a, b), plain_nearest(b, a)
    expected = {
        (i, j) for i, (j, _, sure) in enumerate(to_b) if to_a[j][0] == i and max(sure, to_a[j][2]) <= ratio
    }
    found = matching.mutual_matches(a, b, ratio)
    pairs = zip(found.a @ [8, 1], found.b @ [8, 1], strict=True)
    assert {(int(i), int(j)) for i, j in pairs} == expected
    assert list(found.ratio) == sorted(found.ratio), "the surest first"
    assert len(found) == len(expected) > 0


def test_prepared_averages_neighbors_and_subtracts_joint_mean():
    a, b = features(4, 5), features(3, 6, seed=1)
    found_a, found_b = matching.prepared(a, b)
    padded = np.pad(a, ((1, 1), (1, 1), (0, 0)), mode="edge")
    means = [[padded[r : r + 3, c : c + 3].mean((0, 1)) for c in range(5)] for r in range(4)]
    shift = np.array(means) - found_a
    np.testing.assert_allclose(shift, np.broadcast_to(shift[0, 0], shift.shape), atol=1e-5)
    np.testing.assert_allclose(found_a.mean((0, 1)) + found_b.mean((0, 1)), 0, atol=1e-5)


def seen(features: NDArray[np.float32]) -> ImageFeatures:
    return ImageFeatures(features, np.ones(features.shape[:2], bool))


def test_best_scale_has_most_matches():
    a = features(6, 6)
    near = a + 0.1 * features(6, 6, seed=3)
    others = {0.7: seen(features(4, 4, seed=5)), 1.0: seen(near), 1.4: seen(features(9, 9, seed=4))}
    scale, found = matching.best_scale(seen(a), others)
    assert scale == 1.0
    assert len(found) > 10
    assert (
        matching.best_scale(seen(a), dict.fromkeys((0.7, 1.4, 1.0), seen(a)))[0] == 1.0
    )  # ties: nearest to 1


def turned_grid(degrees: float, scale: float, share_wrong: float) -> tuple[Matches, NDArray, NDArray]:
    """Matches of a turned picture, to the nearest patch, some of them wrong; the truth, and which are."""
    rng = np.random.default_rng(0)
    a = np.stack(np.divmod(np.arange(900), 30), axis=-1)
    angle = np.deg2rad(degrees)
    turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    truth = (a - 14.5) @ turn.T + 14.5
    b, wrong = truth.round(), rng.random(900) < share_wrong
    b[wrong] = rng.integers(0, 30, (int(wrong.sum()), 2))
    wrong = np.abs(b - truth).max(axis=1) > 1
    order = rng.permutation(900)
    ones = np.ones(900, np.float32)
    return Matches(a[order], b[order], ones, ones), truth[order], wrong[order]


@pytest.mark.parametrize(("degrees", "scale"), [(30, 1), (10, 0.85)])
def test_coherent_drops_wrong_matches_and_refines_others(degrees: float, scale: float):
    matches, truth, wrong = turned_grid(degrees, scale, 0.4)
    kept = matching.coherent(matches)
    of = {tuple(cell): (place, bad) for cell, place, bad in zip(matches.a, truth, wrong, strict=True)}
    places, bad = zip(*(of[tuple(cell)] for cell in kept.a), strict=True)
    assert len(kept) - sum(bad) > 0.9 * (~wrong).sum()
    assert sum(bad) < 0.02 * wrong.sum()
    off = np.linalg.norm(kept.b - np.array(places), axis=1)
    plain = np.linalg.norm((matches.b - truth)[~wrong], axis=1)
    assert off.mean() < 0.8 * plain.mean() or plain.mean() == 0


def test_flat_patches_are_not_matched():
    picture = np.full((40, 60, 3), 200, np.uint8)
    picture[:, 30:] = np.random.default_rng(0).integers(0, 256, (40, 30, 3))
    textured = matching.textured_patches(picture, (4, 6))
    np.testing.assert_array_equal(textured, np.arange(6)[None] >= 3 + np.zeros((4, 1)))
    wide = features(12, 20)
    half = np.arange(20)[None] >= 10 + np.zeros((12, 1))
    found = matching.matches_between(ImageFeatures(wide, half), seen(wide))
    assert len(found) > 50
    assert found.a[:, 1].min() >= 10
    assert matching.matches_between(seen(wide), ImageFeatures(wide, half)).a[:, 1].min() >= 10


@pytest.mark.parametrize("sign", [1, -1])
def test_joint_colors_of_foreground_are_black_outside(sign: int):
    a, b = 0.1 * features(8, 8), 0.1 * features(8, 8, seed=1)
    a[2:5, 2:6, 0] += sign * 5
    b[3:7, 1:4, 0] += sign * 5
    same_a, same_b = matching.joint_colors(a, a[:, ::-1])  # the same features have the same colors
    np.testing.assert_allclose(same_a, same_b[:, ::-1], atol=1e-6)
    assert (same_a.min(), same_a.max()) == (0, 1)
    in_a, in_b = matching.joint_colors(a, b, "foreground")
    inside = np.zeros((8, 8), bool)
    inside[2:5, 2:6] = True
    assert (in_a[~inside] == 0).all()
    assert (in_a[inside].sum(-1) > 0).mean() > 0.9
    assert (in_b.sum(-1) > 0).sum() in range(10, 13)


def test_similarities_are_cosines_with_every_patch():
    a = features(6, 7)
    b = a[::-1, ::-1]
    found = matching.similarities(a, b, (1, 2))
    assert found.argmax() == 4 * 7 + 4
    assert found[0, 3] == pytest.approx(plain_cosine(a[1, 2], b[0, 3]), abs=1e-6)


def test_centers_are_in_the_middle_of_patches():
    np.testing.assert_allclose(
        matching.centers(np.array([[0, 0], [1, 1]]), (2, 2), (16, 8)), [[3.5, 1.5], [11.5, 5.5]]
    )
