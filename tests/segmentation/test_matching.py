"""Matching of two images, compared with plain versions; the command `match`."""

import json

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from dino_model.inference.quantities import principal_colors
from segmentation import drawing, matching
from segmentation.commands.match import Match
from segmentation.masks import enlarge
from segmentation.matching import Matches, MatchFeatures

MODEL = "random:vit_tiny/8"


def features(rows: int, columns: int, width: int = 12, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(rows, columns, width)).astype(np.float32)


def plain_cosine(u: NDArray, v: NDArray) -> float:
    return float(u @ v / np.linalg.norm(u) / np.linalg.norm(v))


def plain_nearest(a: NDArray, b: NDArray) -> list[tuple[int, float, float]]:
    """Compute index, cosine and ratio of every patch of A, one patch after the other."""
    found = []
    for u in a.reshape(-1, a.shape[-1]):
        cosines = np.array([[plain_cosine(u, v) for v in row] for row in b])
        row, column = np.unravel_index(cosines.argmax(), cosines.shape)
        far = np.ones(cosines.shape, bool)
        far[max(0, row - 2) : row + 3, max(0, column - 2) : column + 3] = False
        rival = cosines[far].max() if far.any() else -1.0
        found.append((row * b.shape[1] + column, cosines.max(), (1 - cosines.max()) / (1 - rival)))
    return found


@pytest.mark.parametrize(("ratio", "chunk"), [(0.8, 2048), (1.0, 7)])
def test_mutual_matches_equal_reference(ratio, chunk, monkeypatch):
    monkeypatch.setattr(matching, "CHUNK", chunk)
    a, b = features(6, 8), features(6, 8)[::-1] + 1.5 * features(6, 8, seed=2)
    to_b, to_a = plain_nearest(a, b), plain_nearest(b, a)
    expected = {
        (i, j): (cosine, max(sure, to_a[j][2]))
        for i, (j, cosine, sure) in enumerate(to_b)
        if to_a[j][0] == i and max(sure, to_a[j][2]) <= ratio
    }
    found = matching.mutual_matches(a, b, ratio)
    pairs = zip((found.a @ [8, 1]).tolist(), (found.b @ [8, 1]).astype(int).tolist(), strict=True)
    measured = dict(zip(pairs, zip(found.cosine, found.ratio, strict=True), strict=True))
    assert measured.keys() == expected.keys() != set()
    for pair, values in expected.items():
        assert measured[pair] == pytest.approx(values, abs=1e-5)
    assert list(found.ratio) == sorted(found.ratio), "the surest first"
    equal = np.ones((6, 6, 2))
    assert matching.nearest_patches(equal, equal).ratio.tolist() == [1.0] * 36
    assert [len(matching.mutual_matches(equal, equal, most)) for most in (0.99, 1.0)] == [0, 1]


def test_prepared_averages_neighbors_and_subtracts_joint_mean():
    a, b = features(4, 5), features(3, 6, seed=1)
    found_a, found_b = matching.prepare_pair(a, b)
    padded = np.pad(a, ((1, 1), (1, 1), (0, 0)), mode="edge")
    means = [[padded[r : r + 3, c : c + 3].mean((0, 1)) for c in range(5)] for r in range(4)]
    shift = np.array(means) - found_a
    np.testing.assert_allclose(shift, np.broadcast_to(shift[0, 0], shift.shape), atol=1e-5)
    np.testing.assert_allclose(found_a.mean((0, 1)) + found_b.mean((0, 1)), 0, atol=1e-5)


def seen(features: NDArray[np.float32]) -> MatchFeatures:
    return MatchFeatures(features, np.ones(features.shape[:2], bool))


def test_best_scale_has_most_matches():
    a = features(6, 6)
    near = a + 0.1 * features(6, 6, seed=3)
    others = {0.7: seen(features(4, 4, seed=5)), 1.0: seen(near), 1.4: seen(features(9, 9, seed=4))}
    scale, found = matching.best_scale(seen(a), others, 1.0)
    assert scale == 1.0
    assert len(found) > 10
    ties = dict.fromkeys((0.7, 1.4, 1.0), seen(a))
    assert matching.best_scale(seen(a), ties, 1.0)[0] == 1.0  # the nearest to 1


def plain_expectation(matches: Matches, sources: list[int], enough: int) -> tuple[NDArray, list[bool]]:
    """Fit the weighted affine map of the eight nearest sources of each match, one after the other."""
    places, agreeing = [], []
    for number, (here, there) in enumerate(zip(matches.a, matches.b, strict=True)):
        far = {other: np.linalg.norm(matches.a[other] - here) for other in sources if other != number}
        near = sorted(far, key=far.__getitem__)[:8]
        steps, went = matches.a[near] - here, matches.b[near] - there
        design = np.column_stack([steps, np.ones(8)])
        off = np.linalg.norm(went - steps - np.median(went - steps, axis=0), axis=1)
        weights = 1 / (1 + off**2)
        for _ in range(5):
            penalty = 1e-3 * np.eye(3)
            fit = np.linalg.solve(
                design.T @ (weights[:, None] * design) + penalty, design.T @ (weights[:, None] * went)
            )
            off = np.linalg.norm(design @ fit - went, axis=1)
            weights = 1 / (1 + 4 * off**2) ** 2
        places.append(there + fit[2])
        agreeing.append(bool(np.abs(fit[2]).max() <= 1 and (off <= 1).sum() >= enough))
    return np.array(places), agreeing


def test_coherent_matches_equal_the_plain_computation():
    rng = np.random.default_rng(1)
    a = rng.uniform(0, 20, (120, 2))
    b = np.where(rng.random((120, 1)) < 0.4, rng.uniform(0, 20, (120, 2)), a + rng.normal(0, 0.7, (120, 2)))
    matches = Matches(a, b, *np.ones((2, 120), np.float32))
    _, agreeing = plain_expectation(matches, list(range(120)), enough=4)
    places, kept = plain_expectation(matches, np.flatnonzero(agreeing).tolist(), enough=6)
    found = matching.keep_coherent(matches)
    np.testing.assert_allclose(found.a, a[kept])
    np.testing.assert_allclose(found.b, places[kept], atol=1e-9)
    assert 20 < sum(kept) < 110
    for count, expected in ((8, 0), (9, 9)):  # eight neighbors of each
        places = np.stack(np.divmod(np.arange(count), 3), axis=-1)
        few = Matches(places, places + 5.0, *np.ones((2, count), np.float32))
        assert len(matching.keep_coherent(few)) == expected


def test_features_are_tokens_of_the_last_four_blocks_with_equal_spread():
    predictor = AttentionPredictor("random:vit_tiny/16", size=64, precision="fp32", device="cpu")
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    predictor.set_image(pixels)
    found = matching.match_features(predictor, pixels).features
    parts = [predictor.token_features(block) for block in range(-4, 0)]
    spreads = [np.linalg.norm(part - part.mean((0, 1)), axis=-1).mean() for part in parts]
    expected = np.concatenate([part / spread for part, spread in zip(parts, spreads, strict=True)], axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    predictor.blocks = 3
    assert matching.match_features(predictor, pixels).features.shape == (*expected.shape[:2], 3 * 192)


def test_flat_patches_are_not_matched():
    pixels = np.full((40, 60, 3), 200, np.uint8)
    pixels[:, 30:] = np.random.default_rng(0).integers(0, 256, (40, 30, 3))
    textured = matching.textured_patches(pixels, (4, 6))
    np.testing.assert_array_equal(textured, np.arange(6)[None] >= 3 + np.zeros((4, 1)))
    stripes = np.outer(np.tile([1, -1], 10), np.array([4, 3]).repeat(10)) + 128  # deviations of 4 and 3
    found = matching.textured_patches(np.repeat(stripes[..., None], 3, axis=-1).astype(np.uint8), (2, 2))
    assert found.tolist() == [[True, False]] * 2
    wide, half = features(12, 20), np.arange(20)[None] >= 10 + np.zeros((12, 1))
    for pair in ((MatchFeatures(wide, half), seen(wide)), (seen(wide), MatchFeatures(wide, half))):
        found = matching.matches_between(*pair, 1.0)
        assert len(found) > 50
        assert found.a[:, 1].min() >= 10


@pytest.mark.parametrize("sign", [1, -1])
def test_joint_colors_of_foreground_are_black_outside(sign):
    a, b = 0.1 * features(8, 8), 0.1 * features(8, 8, seed=1)
    a[2:5, 2:6, 0] += sign * 5
    b[3:7, 1:4, 0] += sign * 5
    same_a, same_b = matching.joint_colors(a, a[:, ::-1])  # the same features have the same colors
    np.testing.assert_allclose(same_a, same_b[:, ::-1], atol=1e-6)
    assert (same_a.min(), same_a.max()) == (0, 1)
    parts = matching.joint_colors(a, b, "foreground")
    objects = [np.zeros((8, 8), bool), np.zeros((8, 8), bool)]
    objects[0][2:5, 2:6] = objects[1][3:7, 1:4] = True
    expected = principal_colors(np.concatenate([a[objects[0]], b[objects[1]]])[None])[0]
    np.testing.assert_allclose(
        np.concatenate([parts[0][objects[0]], parts[1][objects[1]]]), expected, atol=1e-5
    )
    assert not any(part[~inside].any() for part, inside in zip(parts, objects, strict=True))


def test_foreground_has_the_smaller_share_of_the_edges_and_three_patches_or_more():
    """A frame of one kind of patches around another, and an image with two patches of a kind."""
    frame = np.ones((5, 7, 3)) + 1e-3 * features(5, 7, 3)
    frame[1:-1, 1:-1, 0] = -1
    for part in matching.joint_colors(frame, frame[::-1], "foreground"):
        assert part[1:-1, 1:-1].any(axis=-1).mean() > 0.8
        assert not part[[0, -1]].any()
        assert not part[:, [0, -1]].any()
    for count, most in ((2, 25), (3, 3)):
        few = 1e-3 * features(5, 5, 3)
        few[1 : 1 + count, 1] += 9
        colored = matching.joint_colors(few, few[:1], "foreground")[0].any(axis=-1)
        assert most - 2 < colored.sum() <= most
        assert colored.sum() > 3 or not colored[few[..., 0] < 8].any()


def test_similarities_are_cosines_with_every_patch():
    a, b = features(6, 7), features(6, 7, seed=1)
    expected = [[plain_cosine(a[1, 2], v) for v in row] for row in b]
    np.testing.assert_allclose(matching.similarities(a, b, (1, 2)), expected, atol=1e-6)


def test_centers_are_in_the_middle_of_patches():
    cells = np.array([[0, 0], [1, 1]])
    np.testing.assert_allclose(matching.centers(cells, (2, 2), (16, 8)), [[3.5, 1.5], [11.5, 5.5]])
    matches = Matches(cells, cells + 0.25, *np.array([[1 / 3, 0.25], [0.12344, 0.75]], np.float32))
    thirds = matching.matches_as_json(matches, ((3, 3), (3, 3)), ((100, 100), (100, 100)))
    assert (thirds[0]["a"], thirds[1]["b"]) == ([16.2, 16.2], [57.8, 57.8])
    places = matching.matches_as_json(matches, ((2, 2), (4, 5)), ((16, 8), (40, 100)))
    assert places == [
        {"a": [3.5, 1.5], "b": [7.0, 14.5], "cosine": 0.3333, "ratio": 0.1234},
        {"a": [11.5, 5.5], "b": [17.0, 34.5], "cosine": 0.25, "ratio": 0.75},
    ]


def test_image_matches_its_own_crop(tmp_path, capsys):
    pixels, a, b = photographs.image("owl"), tmp_path / "a.png", tmp_path / "b.png"
    Image.fromarray(pixels).save(a)
    Image.fromarray(pixels[40:, 60:]).save(b)
    y, x = (side // 2 for side in pixels.shape[:2])
    Match(a=a, b=b, output=tmp_path / "out", point=f"{y},{x}", size=128, model="embedded-dino").run()
    found = json.loads((tmp_path / "out" / "matches.json").read_text())
    assert len(found["matches"]) >= 20
    off = [np.subtract(match["a"], match["b"]) - (40, 60) for match in found["matches"]]
    patch = 8 * min(pixels.shape[:2]) / 128
    assert np.mean(np.abs(off).max(axis=1) <= patch) > 0.9
    assert np.abs(np.subtract(found["point"]["a"], found["point"]["b"]) - (40, 60)).max() <= 2 * patch
    assert found["scale"] == 1.0
    pair, predictor = (pixels, pixels[40:, 60:]), AttentionPredictor("embedded-dino", size=128)
    encoded = []
    for image in pair[::-1]:  # that of the point last
        predictor.set_image(image)
        encoded.insert(0, matching.match_features(predictor, image))
    matches, (in_a, in_b) = (
        matching.matches_between(*encoded, 1.0),
        (encoded[0].features, encoded[1].features),
    )
    sides = (in_a.shape[:2], in_b.shape[:2]), tuple(image.shape[:2] for image in pair)
    assert found["matches"] == matching.matches_as_json(matches, *sides)
    lines = (places[:100] for places in matching.in_pixels(matches, *sides))
    cosines = matching.similarities(*matching.prepare_pair(in_a, in_b), predictor.patch_at(y, x))
    heat, (there_y, there_x) = drawing.overlay_heat(pair[1], cosines), found["point"]["b"]
    marked = drawing.draw_point(pixels, y, x), drawing.draw_point(heat, there_y, there_x)
    drawn = {"lines": drawing.match_lines(*pair, *lines), "point": drawing.side_by_side(*marked)}
    for name, part in {"colors": "all", "foreground": "foreground"}.items():
        enlarged = (
            enlarge(255 * colors.transpose(2, 0, 1), image.shape[:2]).transpose(1, 2, 0)
            for colors, image in zip(matching.joint_colors(in_a, in_b, part), pair, strict=True)
        )
        drawn[name] = drawing.side_by_side(*(each.round().astype(np.uint8) for each in enlarged))
    for name, expected in drawn.items():
        np.testing.assert_array_equal(np.array(Image.open(tmp_path / "out" / f"{name}.png")), expected)
    assert "mutual matches; image B was resized to 1 of its size" in capsys.readouterr().out


def test_three_scales_are_tried_and_the_100_surest_matches_are_drawn(tmp_path, monkeypatch):
    Image.fromarray(photographs.image("owl")).save(tmp_path / "a.png")
    tried, drawn, sizes = [], [], []
    places = np.arange(300).reshape(150, 2) % 4

    def best_scale(a, scaled, ratio):
        tried.extend(scaled)
        sizes.extend(each.features.shape[0] for each in scaled.values())
        return 1.0, Matches(places, places + 0.0, *np.ones((2, 150), np.float32))

    monkeypatch.setattr(matching, "best_scale", best_scale)
    monkeypatch.setattr(drawing, "match_lines", lambda a, b, *found: drawn.append(list(map(len, found))) or a)
    Match(a=tmp_path / "a.png", b=tmp_path / "a.png", output=tmp_path / "out", size=80, model=MODEL).run()
    assert (tried, sizes, drawn) == ([0.7, 1.0, 1.4], [7, 10, 14], [[100, 100]])


def test_wrong_input_is_named_and_nothing_written(tmp_path):
    a, flat = tmp_path / "a.png", tmp_path / "flat.png"
    Image.fromarray(photographs.image("owl")).save(a)
    Image.new("RGB", (50, 40), "red").save(flat)
    wrong = {"flat.png has no texture": {"b": flat}, "--ratio is 2.0": {"ratio": 2.0}}
    wrong |= {"--point is '9'": {"point": "9"}, "the point y=5000, x=3 is outside": {"point": "5000,3"}}
    for message, options in wrong.items():
        with pytest.raises(ValueError, match=message):
            Match(**{"a": a, "b": a, "size": 64} | options, output=tmp_path / "out").run()
    assert not (tmp_path / "out").exists()
