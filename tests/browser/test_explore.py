"""Explore in a real browser: what is seen is what the library computes."""

import io
import json

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from dino_model import photographs, quantities
from segmentation.masks import enlarge, keep_mass_of_maps

VIEW = "lab('explore')"


@pytest.fixture(scope="module")
def opened(open_shared):
    return open_shared()


@pytest.fixture
def page(opened, lab):
    """The page with the attention of the last block, without pins, and nothing under the pointer."""
    opened.mouse.move(0, 0)
    opened.keyboard.press("Escape")
    lab.choose_quantity(opened, "attention")
    opened.evaluate(
        f"() => {{ const view = {VIEW}; view.pins.read({{}}, view.encoding); view.activate(null); }}"
    )
    return opened


def _hover(page, lab, row: int, column: int) -> None:
    page.locator("#explore .lab-stage").hover(position=lab.center(page, row, column))
    page.wait_for_function(
        f"([row, column]) => {VIEW}.patch?.row === row && {VIEW}.patch?.column === column",
        arg=[row, column],
    )


def _download(page, lab, button: str) -> bytes:
    return lab.download(page, page.get_by_role("button", name=button, exact=True))[1]


def test_first_view_shows_the_example_and_the_map_of_every_head(open_page, lab, predictor):
    page = open_page(query="")
    tiles = page.locator("#explore .lab-tiles").first.locator(".lab-tile")
    assert tiles.count() == predictor.heads + 3
    assert tiles.first.inner_text().endswith("Head 0")
    assert tiles.first.is_visible()
    assert lab.state(page)["name"] == "kitten"
    assert page.locator("#explore .lab-banner").is_visible()  # random weights
    np.testing.assert_allclose(lab.maps(page), predictor.cls_attention(), atol=1e-3)
    lab.screenshot(page, "explore")


def test_hover_shows_the_library_maps_without_a_request(page, lab, predictor):
    (rows, columns), (height, width) = predictor.grid, predictor.image_size

    def point():
        for row, column in [(0, 0), (3, 7), (rows - 1, columns - 1), (rows // 2, 2)]:
            _hover(page, lab, row, column)
            y, x = (2 * row + 1) * height // (2 * rows), (2 * column + 1) * width // (2 * columns)
            np.testing.assert_allclose(lab.maps(page), predictor.point_attention(y, x), atol=1e-3)
            assert f"row {row}, column {column}" in page.locator("#explore .lab-where").inner_text()
        page.locator("h1").hover()
        page.wait_for_function(f"() => {VIEW}.patch === null")

    assert lab.requests_during(page, point) == []


def _values(predictor, quantity: str, block: int, token: int) -> np.ndarray:
    """The library's values of one token: [heads, tokens]."""
    if quantity == "token-cosine":
        return quantities.cosines(predictor.tokens(block)[None], token)
    queries, keys = predictor.queries_keys(block)
    return (
        quantities.logits(queries, keys, token) if quantity == "logits" else quantities.cosines(keys, token)
    )


@pytest.mark.parametrize("quantity", ["logits", "key-cosine", "token-cosine"])
def test_every_quantity_equals_the_library(page, lab, predictor, quantity):
    for block, (row, column) in ((11, (4, 6)), (5, (12, 0))):
        lab.choose_quantity(page, quantity, block)
        _hover(page, lab, row, column)
        token = predictor.prefix_tokens + row * predictor.grid[1] + column
        values = _values(predictor, quantity, block, token)
        expected = values[:, predictor.prefix_tokens :].reshape(-1, *predictor.grid)
        assert np.ptp(expected) > 1e-3
        np.testing.assert_allclose(lab.maps(page), expected, atol=1e-3)


def test_token_norms_mark_outliers_and_have_no_pins(page, lab, predictor):
    lab.choose_quantity(page, "token-norm", 11)
    np.testing.assert_allclose(lab.maps(page), predictor.token_norms(11)[None], rtol=1e-3)
    outliers = int(quantities.outlier_patches(predictor.token_norms(11)).sum())
    assert f"{outliers} outlier" in page.locator("#explore .lab-what").inner_text()
    assert page.locator("#explore .lab-pins").is_hidden()
    _hover(page, lab, 4, 6)
    assert "Norm " in page.locator("#explore .lab-what").inner_text()


@pytest.mark.parametrize("quantity", ["key-pca", "token-pca"])
def test_principal_components_are_the_librarys_colors(page, lab, predictor, quantity):
    lab.choose_quantity(page, quantity, 7)
    features = predictor.token_features(7)
    if quantity == "key-pca":
        keys = predictor.queries_keys(7)[1][:, predictor.prefix_tokens :]
        features = keys.transpose(1, 0, 2).reshape(*predictor.grid, -1)
    expected = quantities.principal_colors(features)
    shape = list(expected.shape)
    found = lab.array(page, f"{{ array: {VIEW}.arrays.colors, shape: {shape} }}")
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_rapid_clicks_end_on_the_last(page, lab):
    stage = page.locator("#explore .lab-stage")
    for row, column in [(1, 1), (5, 9), (10, 3), (2, 12), (8, 8)]:
        stage.click(position=lab.center(page, row, column))
    state = lab.state(page)
    assert [(pin["row"], pin["column"]) for pin in state["pins"]][-1] == (8, 8)
    assert len(state["pins"]) == 5
    assert page.locator("#explore .lab-pins .lab-tile").count() == 6
    assert "pins=1,1;5,9;10,3;2,12;8,8" in page.url


def test_keyboard_alone_points_pins_and_removes(page, lab):
    page.locator("#explore .lab-stage").focus()
    for key in ("ArrowRight", "ArrowDown", "Enter", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    assert len(lab.state(page)["pins"]) == 2
    page.keyboard.press("Delete")
    assert len(lab.state(page)["pins"]) == 1
    page.keyboard.press("Escape")
    assert page.evaluate(f"{VIEW}.patch") is None


def test_kept_mask_equals_the_librarys_to_the_patch(page, lab, predictor):
    maps = predictor.cls_attention()
    for mass in (30, 60, 95):
        lab.slide(page, "mass", mass)
        page.wait_for_function(f"(mass) => {VIEW}.settings.mass === mass", arg=mass)
        kept = page.evaluate(f"() => [...{VIEW}.maps.kept('2')]")
        expected = keep_mass_of_maps(maps[2:3], mass / 100)[0]
        assert np.reshape(kept, predictor.grid).astype(bool).tolist() == expected.tolist()


def test_downloads_hold_what_is_shown(page, lab, predictor):
    page.locator("#explore .lab-tile[data-key='1']").first.click()
    page.locator("#layer label:has(input[value=mask])").click()
    lab.slide(page, "mass", 40)
    page.wait_for_function(f"() => {VIEW}.settings.mass === 40 && {VIEW}.settings.layer === 'mask'")
    expected = enlarge(keep_mass_of_maps(predictor.cls_attention()[1:2], 0.4)[0], predictor.image_size)
    mask = np.array(Image.open(io.BytesIO(_download(page, lab, "Mask PNG"))))
    assert np.array_equal(mask > 0, expected)
    run_lengths = json.loads(_download(page, lab, "Mask COCO"))
    assert np.array_equal(coco_mask.decode(run_lengths).astype(bool), expected)
    with np.load(io.BytesIO(_download(page, lab, "Maps NPZ"))) as archive:
        np.testing.assert_allclose(archive["maps"], predictor.cls_attention(), atol=1e-3)


CANVAS = f"""(() => {{
  const {{ context, canvas }} = {VIEW}.stage.canvas;
  const {{ width, height }} = canvas;
  return {{ array: context.getImageData(0, 0, width, height).data, shape: [height, width, 4] }};
}})()"""


@pytest.mark.parametrize(
    "settings",
    [
        {"layer": "light", "head": "mean"},
        {"layer": "heat", "head": "2"},
        {"quantity": "logits", "layer": "heat", "head": "1", "pins": "3,4"},
    ],
    ids=lambda settings: settings.get("quantity", settings["layer"]),
)
def test_overlay_download_is_the_stage_to_the_pixel(page, lab, settings):
    lab.choose_quantity(page, settings.get("quantity", "attention"))
    page.locator(f"#layer label:has(input[value={settings['layer']}])").click()
    page.locator(f"#explore .lab-tile[data-key='{settings['head']}']").first.click()
    if "pins" in settings:
        words = {"pins": settings["pins"], "patch": settings["pins"]}
        page.evaluate(f"(words) => {VIEW}.changePins(() => {VIEW}.pins.read(words, {VIEW}.encoding))", words)
    page.wait_for_selector(f"#explore [data-layer={settings['layer']}][data-show='{settings['head']}']")
    drawn = lab.array(page, CANVAS).astype(np.float64)
    image = photographs.image("kitten").astype(np.float64)
    assert drawn.shape[:2] == image.shape[:2]
    if settings["layer"] == "heat":  # as the style sheet draws the image: gray, at half its brightness
        style = page.locator("#explore .lab-stage img").evaluate("(image) => getComputedStyle(image).filter")
        assert "grayscale(1) brightness(0.5)" in style
        image = np.repeat((image @ [0.299, 0.587, 0.114] * 0.5)[..., None], 3, axis=2)
    opacity = float(page.locator("#explore .lab-map").evaluate("(map) => getComputedStyle(map).opacity"))
    alpha = opacity * drawn[..., 3:] / 255
    seen = image * (1 - alpha) + drawn[..., :3] * alpha
    file = np.array(Image.open(io.BytesIO(_download(page, lab, "Overlay PNG"))))
    assert len(file) > len(seen)  # below the image, the values of its colors
    difference = np.abs(seen - file[: len(seen)])
    assert difference.mean() < 0.6
    assert np.quantile(difference, 0.999) <= 4, difference.max()


def test_grid_of_all_blocks_opens_the_chosen_head(open_page, lab, predictor):
    page = open_page()
    page.get_by_text("Every head of every block").click()
    page.wait_for_selector("#explore .lab-blocks[data-blocks]", timeout=60_000)
    tiles = page.locator("#explore .lab-blocks .lab-tile")
    assert tiles.count() == predictor.blocks * predictor.heads
    tiles.nth(4 * predictor.heads + 1).click()
    page.wait_for_selector("#explore [data-block='4']")
    assert page.locator("#block input[type=range]").input_value() == "5"
    lab.screenshot(page, "explore-blocks")


def test_phone_has_no_sideways_scroll_and_a_tap_pins(open_page, lab):
    page = open_page(width=390, height=844, query="", color_scheme="dark", has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#explore .lab-stage").tap(position=lab.center(page, 4, 5))
    assert lab.state(page)["pins"][0]["row"] == 4
    lab.screenshot(page, "phone-dark")
