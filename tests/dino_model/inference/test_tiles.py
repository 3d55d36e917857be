"""Large images in tiles: close to one pass inside, without seams where tiles overlap."""

import numpy as np
import pytest

from dino_model.inference import tiles
from dino_model.inference.predictor import AttentionPredictor
from dino_model.inference.resize import resample_nearest, sample
from dino_model.inference.tiles import TiledPredictor
from dino_model.models.load import LoadedModel, load_model
from tests.dino_model.small_models import made

STATISTICS = (0.5,) * 3, (0.25,) * 3
COMPUTE = {"size": 64, "precision": "fp32", "device": "cpu"}


def model(family: str = "ViT, no bias") -> LoadedModel:
    return LoadedModel("tiny", made(family), *STATISTICS, "made here", None)


def photo(height: int, width: int) -> np.ndarray:
    """A smooth image, as large ones are."""
    y, x = np.mgrid[:height, :width] / 40
    return (127 + 127 * np.stack([np.sin(x), np.cos(y), np.sin(x + y)], axis=-1)).astype(np.uint8)


@pytest.mark.parametrize("family", ["ViT, no bias", "ViT, registers"])
def test_one_tile_equals_the_predictor(family: str):
    plain, tiled = (
        AttentionPredictor(model(family), **COMPUTE),
        TiledPredictor(model(family), tile=96, overlap=0.25, **COMPUTE),
    )
    for predictor in (plain, tiled):
        predictor.set_image(photo(64, 96))
    assert tiled.grid == plain.grid == (8, 12)
    for name, arguments in (
        ("cls_attention", (1,)), ("point_attention", (20, 30, -1)), ("keys", ()), ("tokens", ()),
        ("token_features", (0,)), ("token_norms", ()),
    ):  # fmt: skip
        found, expected = (getattr(predictor, name)(*arguments) for predictor in (tiled, plain))
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)
        assert found.dtype == expected.dtype
    np.testing.assert_allclose(tiled.features([photo(64, 96)]), plain.features([photo(64, 96)]), atol=1e-5)


def plain_join(overview: np.ndarray, parts: dict[tuple[int, int], np.ndarray], side: int, ramp: int):
    """Distribute the mass of each tile of an overview [heads, rows, columns] by the tile's own map."""
    heads, rows, columns = overview.shape
    falling = np.array([min(place + 1, side - place, ramp) for place in range(side)], float)
    weights = dict.fromkeys(parts, np.outer(falling, falling))
    total = np.zeros((rows, columns))
    for (top, left), weight in weights.items():
        total[top : top + side, left : left + side] += weight
    joined = np.zeros_like(overview)
    for (top, left), own in parts.items():
        place = slice(top, top + side), slice(left, left + side)
        share = weights[top, left] / total[place]
        for head in range(heads):
            mass = (share * overview[head][place]).sum()
            inside = share * own[head]
            joined[head][place] += mass * inside / inside.sum()
    return joined


def test_tiles_have_their_own_maps_with_the_masses_of_the_overview():
    predictor, plain = (
        TiledPredictor(model(), tile=40, overlap=0.25, **COMPUTE),
        AttentionPredictor(model(), **COMPUTE | {"resize": "native"}),
    )
    image = photo(64, 152)
    predictor.set_image(image)
    assert predictor.grid == (8, 19)
    assert predictor.describe().endswith(
        "; 2 × 5 tiles of 40, overlap 25%, their mass from the whole image at 24 × 64"
    )
    plain.set_image(sample(image, 24, 64, "short-side"))
    for block in (-1, 0):
        plain.set_image(sample(image, 24, 64, "short-side"))
        small = plain.cls_attention(block)
        overview = resample_nearest(small, (8, 19)).astype(float)
        overview *= (small.sum((1, 2)) / overview.sum((1, 2)))[:, None, None]
        parts, prefixes = {}, []
        for top in (0, 3):
            for left in (0, 4, 7, 10, 14):
                plain.set_image(np.ascontiguousarray(image[8 * top : 8 * top + 40, 8 * left : 8 * left + 40]))
                parts[top, left] = plain.cls_attention(block)
                prefixes.append(plain.tokens(block)[0])
        np.testing.assert_allclose(predictor.tokens(block)[0], np.mean(prefixes, axis=0), atol=1e-5)
        maps = predictor.cls_attention(block)
        np.testing.assert_allclose(maps, plain_join(overview, parts, 5, 2), atol=1e-6)
        np.testing.assert_allclose(maps.sum((1, 2)), small.sum((1, 2)), atol=1e-5)
    assert (predictor.cls_attention() == predictor.cls_attention(-1)).all()
    with pytest.raises(ValueError, match="tiles have no common queries and keys"):
        predictor.queries_keys()


def test_point_has_the_map_of_its_tile_and_that_of_the_overview_elsewhere():
    predictor, plain = (
        TiledPredictor(model(), tile=40, overlap=0.25, **COMPUTE),
        AttentionPredictor(model(), **COMPUTE | {"resize": "native"}),
    )
    image = photo(64, 152)
    predictor.set_image(image)
    for point, coarse, top, left, inside in (
        ((60, 149), (22, 62), 3, 14, (36, 37)),  # row 7, column 18: 4, 4 of its tile
        ((10, 60), (4, 28), 0, 4, (12, 28)),  # row 1, column 7: 1, 3 of the nearer of two tiles
    ):
        plain.set_image(sample(image, 24, 64, "short-side"))
        small = plain.point_attention(*coarse)
        expected = resample_nearest(small, (8, 19)).astype(float)
        expected *= (small.sum((1, 2)) / expected.sum((1, 2)))[:, None, None]
        plain.set_image(np.ascontiguousarray(image[8 * top : 8 * top + 40, 8 * left : 8 * left + 40]))
        own, place = plain.point_attention(*inside), np.s_[:, top : top + 5, left : left + 5]
        expected[place] = own * (expected[place].sum((1, 2)) / own.sum((1, 2)))[:, None, None]
        np.testing.assert_allclose(predictor.point_attention(*point), expected, atol=1e-6)


@pytest.mark.parametrize("limit", [tiles.KEPT_BYTES, 0])
def test_tiles_are_encoded_once_unless_memory_is_short(limit: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tiles, "KEPT_BYTES", limit)
    monkeypatch.setattr(tiles, "TOKENS_AT_ONCE", 100)  # four tiles of 25 patches
    predictor, encoded = TiledPredictor(model(), tile=40, overlap=0.25, **COMPUTE), []
    encode = AttentionPredictor._encode_batch
    monkeypatch.setattr(
        AttentionPredictor,
        "_encode_batch",
        lambda self, images: encoded.append(len(images)) or encode(self, images),
    )
    maps = {}
    for _ in range(2):
        predictor.set_image(photo(64, 152))
        maps = {block: predictor.cls_attention(block) for block in (0, 1, 2)}
        predictor.point_attention(10, 10)
        predictor.token_features()
    assert encoded[:4] == [1, 4, 4, 2]
    assert (len(encoded) == 4) == bool(limit)
    monkeypatch.setattr(tiles, "KEPT_BYTES", 1 << 40)
    monkeypatch.setattr(tiles, "TOKENS_AT_ONCE", 1)
    alone = TiledPredictor(model(), tile=40, overlap=0.25, **COMPUTE)
    alone.set_image(photo(64, 152))
    np.testing.assert_allclose(alone.cls_attention(1), maps[1], atol=1e-6)


def seam_ratio(features: np.ndarray, places: list[int]) -> float:
    """Mean distance of horizontal neighbors across the borders of tiles, over that of all others."""
    steps = np.linalg.norm(np.diff(features, axis=1), axis=-1).mean(axis=0)
    is_seam = np.isin(np.arange(len(steps)) + 1, places)
    return float(steps[is_seam].mean() / steps[~is_seam].mean())


def test_overlap_removes_the_seams():
    image, ratios = photo(48, 192), {}
    for overlap in (0.0, 0.25, 0.5):
        predictor = TiledPredictor(model(), tile=48, overlap=overlap, **COMPUTE | {"resize": "native"})
        predictor.set_image(image)
        starts = predictor._starts(24)
        places = sorted({*starts, *(start + 6 for start in starts)} - {0, 24})
        ratios[overlap] = seam_ratio(predictor.token_features(), places)
    assert ratios[0.0] > 1.5, "the plain grid of tiles has seams"
    assert ratios[0.25] < 0.7 * ratios[0.0]


def test_weights_fall_to_the_borders_of_a_tile():
    weights = tiles.tile_weights(12, 8, 0.5)
    np.testing.assert_allclose(weights.sum(axis=0), 1)
    assert (weights[0, :4] == 1).all()
    assert (weights[1, 8:] == 1).all()
    assert (np.diff(weights[1, 3:9]) > 0).all(), "from one tile to the next without a step"


def test_tile_without_attention_to_patches_gets_its_mass_evenly():
    coarse, weights = np.full((2, 2, 3), 0.1), np.array([[1.0, 1, 1], [1, 0, 0]])
    own = np.zeros((2, 2, 3), np.float32)
    own[1, 0] = 1, 2, 1
    found = tiles.tile_share(coarse, own, weights)
    np.testing.assert_allclose(found[0], 0.1 * weights)
    np.testing.assert_allclose(found[1], [[0.1, 0.2, 0.1], [0, 0, 0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"overlap": 0.51}, "overlap is 0.51, expected 0 to 0.5"),
        ({"overlap": -0.01}, "overlap is -0.01, expected 0 to 0.5"),
        ({"tile": 7}, "tile is 7 pixels, expected at least one patch of 8"),
        ({"resize": "davis"}, "choose another resize"),
    ],
)
def test_invalid_tiles_are_refused(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        TiledPredictor(model(), **COMPUTE | {"tile": 40, "overlap": 0.25} | options)


def test_tile_of_one_patch_has_a_token_of_its_own():
    predictor = TiledPredictor(model(), tile=8, overlap=0.5, **COMPUTE | {"size": 32})
    predictor.set_image(photo(32, 40))
    assert "; 4 × 5 tiles of 8, overlap 50%" in predictor.describe()
    assert predictor.token_features().shape == (4, 5, 48)


@pytest.mark.parametrize(
    ("count", "side", "overlap", "starts"),
    [
        (7, 7, 0.25, [0]),
        (8, 7, 0.25, [0, 1]),
        (12, 7, 0.25, [0, 5]),
        (13, 7, 0.25, [0, 3, 6]),
        (4, 1, 0.5, [0, 1, 2, 3]),
    ],
)
def test_tiles_are_spread_evenly_with_the_overlap_at_least(count, side, overlap, starts):
    assert tiles.tile_starts(count, side, overlap) == starts


def test_memory_limit_is_that_of_the_patches_of_all_tiles(monkeypatch: pytest.MonkeyPatch):
    predictor = TiledPredictor(model(), tile=40, overlap=0, **COMPUTE | {"resize": "native"})
    predictor.check_patches(np.broadcast_to(np.uint8(0), (8000, 8000, 3)))
    with pytest.raises(ValueError, match="1000 × 1001 patches, more than 1,000,000"):
        predictor.check_patches(np.broadcast_to(np.uint8(0), (8000, 8004, 3)))
    monkeypatch.setattr(TiledPredictor, "max_patches", 100)
    with pytest.raises(ValueError, match="8 × 19 patches, more than 100: choose a smaller size"):
        TiledPredictor(
            load_model("random:vit_tiny/16"), tile=40, overlap=0.25, **COMPUTE | {"size": 128}
        ).set_image(photo(64, 150))
