import io

import numpy as np
import pytest
from PIL import Image

from app.engine import LabError
from app.view import FILES, View, attention, shown_mask
from dino_model.predictor import AttentionPredictor
from segmentation.masks import enlarge, keep_mass_of_maps

MODEL = "random:vit_tiny/16"


@pytest.fixture(scope="module")
def seen(engine, photo):
    """An encoding with the queries and keys of its last block."""
    encoding = engine.encoding(engine.encode(photo, MODEL, 64))
    return encoding, engine.queries_keys(encoding, 11)


@pytest.fixture(scope="module")
def predictor(photo) -> AttentionPredictor:
    library = AttentionPredictor(MODEL, size=64, precision="fp32", device="cpu")
    library.set_image(photo.read())
    return library


def _file(seen, name: str, view: View) -> bytes:
    return FILES[name][1](*seen, view)


def test_attention_equals_the_predictors(seen, predictor):
    encoding, queries_keys = seen
    np.testing.assert_allclose(attention(encoding, queries_keys, None), predictor.cls_attention(), atol=1e-3)
    y, x = 25, 70
    of_point = attention(encoding, queries_keys, predictor.patch_at(y, x))
    np.testing.assert_allclose(of_point, predictor.point_attention(y, x), atol=1e-3)


def test_mask_file_is_the_kept_mask_at_the_photographs_size(seen):
    maps = attention(*seen, (1, 2))
    for show, expected in (("0", maps[0]), ("mean", maps.mean(axis=0)), ("max", maps.max(axis=0))):
        view = View(block=11, query="1,2", show=show, mass=0.4)
        mask = np.array(Image.open(io.BytesIO(_file(seen, "mask.png", view))))
        np.testing.assert_array_equal(mask == 255, enlarge(keep_mass_of_maps(expected, 0.4), (60, 90)))


def test_mask_of_all_heads_is_their_union(seen):
    maps = attention(*seen, None)
    union = keep_mass_of_maps(maps, 0.3).any(axis=0)
    np.testing.assert_array_equal(shown_mask(maps, View(block=11, mass=0.3)), union)
    assert union.sum() > keep_mass_of_maps(maps, 0.3)[0].sum()


def test_raw_maps_carry_the_names_of_the_command(seen, predictor):
    arrays = np.load(io.BytesIO(_file(seen, "maps.npz", View(block=11, query="1,2"))), allow_pickle=False)
    np.testing.assert_allclose(arrays["attention"], predictor.cls_attention(), atol=1e-3)
    assert arrays["attention"].dtype == np.float32
    np.testing.assert_array_equal(arrays["mask"], keep_mass_of_maps(arrays["attention"], 0.6))
    assert arrays["point_attention"].shape == arrays["attention"].shape
    assert (arrays["grid"].tolist(), str(arrays["model"])) == ([4, 6], MODEL)


@pytest.mark.parametrize("layer", ["heat", "mask"])
@pytest.mark.parametrize("show", ["heads", "mean", "max", "2"])
def test_overlay_has_the_photographs_size_and_follows_the_opacity(seen, layer, show):
    encoding, _ = seen
    clear = View(block=11, show=show, layer=layer, opacity=0, outline=False)
    faint, strong = (
        np.array(Image.open(io.BytesIO(_file(seen, "overlay.png", view))))
        for view in (clear, View(block=11, show=show, layer=layer, opacity=0.9))
    )
    assert faint.shape == strong.shape == encoding.picture.shape
    assert not np.array_equal(faint, strong)
    if show != "heads":  # coloured heads lie on a grey picture
        np.testing.assert_array_equal(faint, encoding.picture)


@pytest.mark.parametrize(
    "settings",
    [
        {"query": "1"},
        {"query": "-1,2"},
        {"query": "cls; rm"},
        {"show": "9999"},
        {"show": "nobody"},
        {"colormap": "../secret"},
        {"mass": 0},
        {"mass": 1.01},
        {"mass": float("nan")},
        {"opacity": float("nan")},
        {"opacity": float("inf")},
    ],
)
def test_impossible_settings_are_refused_in_words(settings):
    with pytest.raises(LabError, match=r"must .*\.$"):
        View(block=0, **settings)


def test_heads_and_patches_that_are_not_there_are_refused(seen):
    with pytest.raises(LabError, match="4 rows and 6 columns"):
        _file(seen, "mask.png", View(block=11, query="4,0"))
    with pytest.raises(LabError, match="heads 0 to 2"):
        _file(seen, "overlay.png", View(block=11, show="3"))
