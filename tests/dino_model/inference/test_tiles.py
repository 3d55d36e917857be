"""Large images in tiles: close to one pass inside, without seams where tiles overlap."""

import numpy as np
import pytest

from dino_model.inference.predictor import AttentionPredictor
from dino_model.inference.tiles import TiledPredictor
from dino_model.models.weights import LoadedModel, load_model
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
        TiledPredictor(model(family), tile=96, **COMPUTE),
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


def test_tiles_cover_the_input_and_sum_to_less_than_one():
    predictor = TiledPredictor(model(), tile=40, overlap=0.25, **COMPUTE)
    predictor.set_image(photo(64, 150))
    assert predictor.describe().endswith("; 2 × 5 tiles of 40, overlap 25%")
    maps = predictor.cls_attention()
    assert maps.shape == (3, 8, 19)
    assert (maps > 0).all()
    assert (maps.sum((1, 2)) < 1).all()
    point = predictor.point_attention(60, 149)
    assert np.isfinite(point).all()
    assert (point[:, :, -5:] > 0).any()
    assert (point[:, :, :-5] == 0).all(), "other tiles have no attention of the point"
    with pytest.raises(ValueError, match="tiles have no common queries and keys"):
        predictor.queries_keys()


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
    predictor, tiles = TiledPredictor(model(), tile=64, overlap=0.5, **COMPUTE), iter((0, 1))
    predictor.set_image(photo(64, 96))
    mixed = predictor._blend(lambda part: np.full(part.grid, next(tiles), np.float32))
    assert (mixed[:, :4] == 0).all()
    assert (mixed[:, 8:] == 1).all()
    assert (np.diff(mixed[:, 3:9]) > 0).all(), "from one tile to the next without a step"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"overlap": 0.6}, "overlap is 0.6, expected 0 to 0.5"),
        ({"tile": 7}, "tile is 7 pixels, expected at least one patch of 8"),
        ({"resize": "davis"}, "choose another resize"),
    ],
)
def test_invalid_tiles_are_refused(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        TiledPredictor(model(), **COMPUTE | options)


def test_memory_limit_is_that_of_the_patches_of_all_tiles(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TiledPredictor, "max_patches", 100)
    with pytest.raises(ValueError, match="8 × 19 patches, more than 100: choose a smaller size"):
        TiledPredictor(load_model("random:vit_tiny/16"), tile=40, **COMPUTE | {"size": 128}).set_image(
            photo(64, 150)
        )
