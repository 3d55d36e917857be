"""Maps, masks and files of a view against the library's."""

import io
import re
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from app import STATIC
from app.handlers.attention_maps import MapSettings, Quantity, file_of, map_of_head, maps_of, shown_mask
from app.limits.errors import LabError
from app.tabs import explore
from dino_model.inference import quantities
from segmentation import figures
from segmentation.masks import enlarge, keep_mass_of_maps
from tests.app.conftest import MODEL, library_maps

SIZE = (60, 90)
QUANTITIES = get_args(Quantity)


@pytest.fixture(scope="module")
def file(encoding, pixels):
    """`file(name, view)`: a download of a view, decoded."""

    def decoded(name, view):
        content = file_of(name, encoding, view, pixels)
        if name.endswith(".png"):
            return np.array(Image.open(io.BytesIO(content)))
        return np.load(io.BytesIO(content))

    return decoded


def test_page_and_its_scripts_have_the_same_quantities():
    script = (STATIC / "maths" / "quantities.js").read_text()
    table = script.partition("export const QUANTITIES = {")[2].partition("\n};")[0]
    in_script = re.findall(r'^  "?([a-z-]+)"?: \{', table, re.MULTILINE)
    offered = [name for variants in explore.MODES.values() for _, name in variants]
    assert sorted(in_script) == sorted(offered) == sorted(QUANTITIES)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_every_quantity_is_the_librarys(encoding, predictor, quantity):
    for block, query, token in ((0, "cls", 0), (11, "cls", 0), (5, "1,2", 1 + 6 + 2)):
        found = maps_of(encoding, MapSettings(block=block, query=query, quantity=quantity))
        expected = library_maps(predictor, quantity, token, block)
        assert np.ptp(expected) > 0
        if quantity.endswith("pca"):
            np.testing.assert_allclose(np.moveaxis(found, 0, -1), expected, atol=5e-3)
        else:
            np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("quantity", ["logits", "key-cosine", "token-cosine"])
def test_mask_of_a_signed_quantity_keeps_mass_above_the_least(encoding, quantity):
    view = MapSettings(block=3, quantity=quantity, query="0,1", show="mean", mass=0.5)
    maps = maps_of(encoding, view)
    above, kept = map_of_head(maps, "mean") - map_of_head(maps, "mean").min(), shown_mask(maps, view)
    assert above[kept].min() >= above[~kept].max()
    assert above[kept].sum() >= 0.5 * above.sum() > above[kept].sum() - above[kept].min()


def test_mask_file_is_the_kept_mask_at_the_size_of_the_image(encoding, file):
    view = MapSettings(block=11, query="1,2", mass=0.4)
    maps = maps_of(encoding, view)
    for show, expected in (("0", maps[0]), ("mean", maps.mean(axis=0)), ("max", maps.max(axis=0))):
        shown = view.model_copy(update={"show": show})
        mask = enlarge(keep_mass_of_maps(expected, 0.4), SIZE)
        np.testing.assert_array_equal(file("mask.png", shown), 255 * mask)


def test_raw_maps_carry_their_settings_masks_and_outliers(encoding, file):
    view = MapSettings(block=7, query="1,2", quantity="key-cosine", mass=0.45)
    arrays = file("maps.npz", view)
    np.testing.assert_array_equal(arrays["maps"], maps_of(encoding, view))
    assert (arrays["maps"].dtype, arrays["mask"].shape) == (np.float32, arrays["maps"].shape)
    settings = {"quantity": "key-cosine", "query": "1,2", "block": 7, "mass": 0.45, "model": MODEL}
    settings |= {"grid": [4, 6]}
    assert {name: arrays[name].tolist() for name in settings} == settings
    colors = file("maps.npz", MapSettings(block=7, quantity="token-pca"))
    assert (colors["maps"].shape, "mask" in colors) == ((3, 4, 6), False)
    norms = file("maps.npz", MapSettings(block=11, quantity="token-norm"))
    np.testing.assert_array_equal(norms["outliers"], quantities.outlier_patches(norms["maps"][0]))


def test_figure_is_for_print_and_has_a_panel_for_every_head(encoding, pixels):
    view = MapSettings(block=11, query="1,2", quantity="logits")
    found = {kind: file_of(f"figure.{kind}", encoding, view, pixels) for kind in ("png", "pdf", "svg")}
    drawn = Image.open(io.BytesIO(found["png"]))
    assert (drawn.width, round(drawn.info["dpi"][0])) == (2100, 300)
    assert found["pdf"].startswith(b"%PDF")
    figure = figures.map_figure(pixels, maps_of(encoding, view), label="q", caption="c", point=(20, 30))
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles == ["image", "head 0", "head 1", "head 2", "mean"]
    images = [axis.images[0] for axis in figure.axes if axis.images and axis.get_title() != "image"]
    assert len({image.get_clim() for image in images}) == 1  # one scale
    for name in ("figure.png", "mask.png"):
        with pytest.raises(LabError, match="PCA"):
            file_of(name, encoding, view.model_copy(update={"quantity": "key-pca"}), pixels)


def test_heads_patches_and_blocks_that_do_not_exist_are_refused(file):
    cases = [({"query": "4,0"}, "4 rows and 6 columns"), ({"show": "3"}, "heads 0 to 2")]
    for quantity in ("attention", "token-cosine"):
        cases.append(({"block": 12, "quantity": quantity}, "blocks 0 to 11"))
    for settings, sentence in cases:
        with pytest.raises(LabError, match=sentence):
            file("mask.png", MapSettings.of({"block": 11} | settings))
