import io
import json

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from app.errors import LabError
from app.view import FILES, View, maps_of, shown_map, shown_mask
from dino_model import quantities
from dino_model.predictor import AttentionPredictor
from segmentation.masks import enlarge, keep_mass_of_maps
from tests.app.conftest import MODEL

RELATIONS = ("likeness", "attention", "logits", "key-cosine", "token-cosine")
SIZE = (60, 90)


@pytest.fixture(scope="module")
def seen(encode, photo, pixels):
    """An encoding, a function that computes the maps of a view of it, and the photograph."""
    encoding = encode(photo)
    return encoding, lambda view: maps_of(encoding, view), pixels


def _file(seen, name: str, view: View) -> bytes:
    encoding, _, picture = seen
    return FILES[name](encoding, view, picture)


def _picture(content: bytes) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(content)))


def _expected(predictor: AttentionPredictor, quantity: str, token: int, block: int) -> np.ndarray:
    """The library's maps: [heads, rows, columns]."""
    queries, keys = predictor.queries_keys(block)
    values = {
        "likeness": lambda: quantities.likeness(keys, predictor.prefix_tokens, token)[None],
        "attention": lambda: quantities.attention(queries, keys, token),
        "logits": lambda: quantities.logits(queries, keys, token),
        "key-cosine": lambda: quantities.cosines(keys, token),
        "token-cosine": lambda: quantities.cosines(predictor.tokens(block)[None], token),
    }[quantity]()
    return values[:, predictor.prefix_tokens :].reshape(-1, *predictor.grid)


@pytest.mark.parametrize("quantity", RELATIONS)
@pytest.mark.parametrize(("query", "token"), [("cls", 0), ("1,2", 1 + 6 + 2)])
def test_every_quantity_is_the_librarys(seen, predictor, quantity, query, token):
    for block in (0, 11):
        view = View(block=block, query=query, quantity=quantity)
        expected = _expected(predictor, quantity, token, block)
        assert np.ptp(expected) > 0
        np.testing.assert_allclose(seen[1](view), expected, atol=1e-3)


def test_norms_are_the_librarys_and_mark_outliers(seen, predictor):
    view = View(block=11, quantity="token-norm")
    expected = predictor.token_norms(11)
    np.testing.assert_allclose(seen[1](view), expected[None], rtol=1e-3)
    arrays = np.load(io.BytesIO(_file(seen, "maps.npz", view)), allow_pickle=False)
    np.testing.assert_array_equal(arrays["outliers"], quantities.outlier_patches(arrays["maps"][0]))


def test_principal_components_are_the_librarys_colors(seen, predictor):
    of_tokens = quantities.principal_colors(predictor.token_features(5))
    keys = predictor.queries_keys(5)[1][:, 1:].transpose(1, 0, 2).reshape(*predictor.grid, -1)
    for quantity, expected in (("token-pca", of_tokens), ("key-pca", quantities.principal_colors(keys))):
        found = seen[1](View(block=5, quantity=quantity))
        np.testing.assert_allclose(np.moveaxis(found, 0, -1), expected, atol=5e-3)


def test_mask_files_are_the_kept_mask_at_the_photographs_size(seen):
    view = View(block=11, query="1,2", mass=0.4)
    maps = seen[1](view)
    for show, expected in (("0", maps[0]), ("mean", maps.mean(axis=0)), ("max", maps.max(axis=0))):
        shown = view.model_copy(update={"show": show})
        mask = enlarge(keep_mass_of_maps(expected, 0.4), SIZE)
        np.testing.assert_array_equal(_picture(_file(seen, "mask.png", shown)), 255 * mask)
        run_lengths = json.loads(_file(seen, "mask.json", shown))
        np.testing.assert_array_equal(coco_mask.decode(run_lengths), mask)


@pytest.mark.parametrize("quantity", ["logits", "key-cosine", "token-cosine"])
def test_mask_of_a_signed_quantity_keeps_mass_above_the_least(seen, quantity):
    view = View(block=3, quantity=quantity, query="0,1", show="mean", mass=0.5)
    maps = seen[1](view)
    shown = shown_map(maps, view)
    kept = shown_mask(maps, view)
    assert kept.any()
    assert not kept.all()
    assert shown[kept].min() >= shown[~kept].max()
    above = shown - shown.min()
    assert above[kept].sum() >= 0.5 * above.sum() > above[kept].sum() - above[kept].min()


def test_raw_maps_carry_what_they_are_of(seen):
    view = View(block=7, query="1,2", quantity="key-cosine", mass=0.45)
    arrays = np.load(io.BytesIO(_file(seen, "maps.npz", view)), allow_pickle=False)
    np.testing.assert_array_equal(arrays["maps"], seen[1](view))
    assert arrays["maps"].dtype == np.float32
    assert arrays["mask"].shape == arrays["maps"].shape
    told = {name: arrays[name].tolist() for name in ("quantity", "query", "block", "model", "grid", "mass")}
    assert told == {
        "quantity": "key-cosine", "query": "1,2", "block": 7, "model": MODEL, "grid": [4, 6], "mass": 0.45,
    }  # fmt: skip


def test_principal_components_have_colors_but_no_mask(seen):
    view = View(block=7, quantity="token-pca", opacity=1)
    arrays = np.load(io.BytesIO(_file(seen, "maps.npz", view)), allow_pickle=False)
    assert "mask" not in arrays
    colors = np.moveaxis(enlarge(arrays["maps"], SIZE, "bilinear"), 0, -1)
    np.testing.assert_array_equal(_picture(_file(seen, "overlay.png", view)), np.rint(255 * colors))
    for name in ("mask.png", "mask.json"):
        with pytest.raises(LabError, match="no mask"):
            _file(seen, name, view)


@pytest.mark.parametrize("quantity", ["attention", "logits"])
@pytest.mark.parametrize("layer", ["light", "heat", "mask"])
@pytest.mark.parametrize("show", ["heads", "mean", "max", "2"])
def test_overlay_has_the_photographs_size_and_follows_the_opacity(seen, quantity, layer, show):
    encoding, *_ = seen
    clear = View(block=11, quantity=quantity, show=show, layer=layer, opacity=0)
    faint, strong = (
        _picture(_file(seen, "overlay.png", view))
        for view in (clear, clear.model_copy(update={"opacity": 0.9}))
    )
    height, width = encoding.predictor.image_size
    assert faint.shape == strong.shape
    assert faint.shape[1] == width
    assert (faint.shape[0] > height) == (show != "heads" and layer != "mask")  # below, what colours stand for
    assert not np.array_equal(faint[:height], strong[:height])
    np.testing.assert_array_equal(faint[height:], strong[height:])
    if show != "heads" and layer != "heat":  # colours lie on a grey picture
        np.testing.assert_array_equal(faint[:height], seen[2])


def test_diverging_colors_have_zero_in_the_middle(seen):
    view = View(block=11, quantity="logits", show="1", layer="heat", colormap="coolwarm", opacity=1)
    values = enlarge(shown_map(seen[1](view), view), SIZE, "bilinear")
    assert values.min() < 0 < values.max()
    drawn = _picture(_file(seen, "overlay.png", view))[: SIZE[0]]
    red, _, blue = np.moveaxis(drawn.astype(int), -1, 0)
    near_zero = np.abs(values) < 0.1 * np.abs(values).max()  # where the grey picture shows through
    np.testing.assert_array_equal((red > blue)[~near_zero], (values > 0)[~near_zero])


def test_heads_patches_and_blocks_that_are_not_there_are_refused(seen):
    with pytest.raises(LabError, match="4 rows and 6 columns"):
        _file(seen, "mask.png", View(block=11, query="4,0"))
    with pytest.raises(LabError, match="heads 0 to 2"):
        _file(seen, "overlay.png", View(block=11, show="3"))
    for quantity in ("attention", "token-cosine", "key-pca"):
        with pytest.raises(LabError, match="blocks 0 to 11"):
            _file(seen, "maps.npz", View(block=12, quantity=quantity))
