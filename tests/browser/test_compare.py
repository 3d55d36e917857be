"""Compare in a real browser: two models under one cursor and one drawn mask, each as the library sees it."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dino_model.predictor import AttentionPredictor
from segmentation.masks import best_head, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard

TAB = "document.querySelector('.compare').tab"
RIGHT_MODEL = "random:embedded"  # with patches of 8 pixels; the left model's have 16


@pytest.fixture(scope="module")
def predictors(lab) -> list[AttentionPredictor]:
    """The library with both models, looking at the example that the page opens with."""
    from dino_model import photographs

    both = [
        AttentionPredictor(model, size=lab.size, precision="fp32", device="cpu")
        for model in (lab.model, RIGHT_MODEL)
    ]
    for one in both:
        one.set_image(photographs.picture("kitten"))
    return both


@pytest.fixture
def tab(page: Any) -> Any:
    """The page at this tab, with the example on both stages."""
    return _open_tab(page)


def _open_tab(page: Any) -> Any:
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector(".compare[data-token]", timeout=60_000)
    return page


def _stage(page: Any, side: int) -> Any:
    return page.locator("#compare .lab-stage").nth(side)


def _maps(page: Any, side: int) -> np.ndarray:
    """What every head of a side shows: [heads, rows, columns]."""
    heads, rows, columns = page.evaluate(
        f"""(side) => {{
          const {{ viewer }} = {TAB}.sides[side];
          const {{ rows, columns }} = viewer.encoding;
          return [viewer.maps.heads.map((map) => [...map]), rows, columns];
        }}""",
        side,
    )
    return np.array(heads, np.float32).reshape(-1, rows, columns)


def _drawn(page: Any, side: int) -> np.ndarray:
    """The mask that lies on a side: [height, width]."""
    values, rows, columns = page.evaluate(
        f"""(side) => {{
          const {{ values, width, height }} = {TAB}.sides[side].brush.painting;
          return [[...values], height, width];
        }}""",
        side,
    )
    return np.array(values, bool).reshape(rows, columns)


def _stroke(page: Any, side: int) -> None:
    """Draw a stroke on one side."""
    page.locator("#compare").get_by_text("Draw", exact=True).click()
    stage = _stage(page, side)
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.6 * box["height"], steps=4)
    page.mouse.up()


def _choose_model(page: Any, side: str, name: str) -> None:
    page.locator("#model" if side == "left" else "#other").select_option(name)


def test_both_models_see_the_photograph_as_in_the_library(tab, lab, predictors):
    for side, predictor in enumerate(predictors):
        np.testing.assert_allclose(_maps(tab, side), predictor.cls_attention(), atol=1e-3)
    assert tab.locator("#compare h2").first.inner_text() == lab.model
    assert tab.locator("#other").input_value() == RIGHT_MODEL
    assert tab.locator("#compare .lab-banner").first.is_visible()
    lab.screenshot(tab, "compare")


@pytest.mark.parametrize("side", [0, 1])
def test_cursor_asks_the_same_place_of_both_models(tab, predictors, side):
    box = _stage(tab, side).bounding_box()
    x, y = 0.62, 0.41  # shares of the picture; inside a patch of either grid
    _stage(tab, side).hover(position={"x": x * box["width"], "y": y * box["height"]})
    tab.wait_for_function(f"() => {TAB}.place !== null")
    place = tab.evaluate(f"{TAB}.place")
    for index, predictor in enumerate(predictors):
        height, width = predictor.image_size
        expected = predictor.point_attention(int(place["y"] * height), int(place["x"] * width))
        np.testing.assert_allclose(_maps(tab, index), expected, atol=1e-3)
        rows, columns = predictor.grid
        where = tab.locator("#compare .lab-where").nth(index).inner_text()
        assert (
            f"Row {int(place['y'] * rows)}, column {int(place['x'] * columns)} of {rows} × {columns}" in where
        )
    tab.locator("h1").hover()
    tab.wait_for_function(f"() => {TAB}.place === null")


def test_mask_drawn_on_one_side_lies_on_both_and_chooses_the_best_heads(tab, lab, predictors):
    _stroke(tab, 1)
    truth = _drawn(tab, 1)
    assert truth.any()
    np.testing.assert_array_equal(_drawn(tab, 0), truth)
    tab.locator("#compare input[name=mass]").fill("30")
    tab.get_by_role("button", name="Best heads at 60 %").click()
    masks = []
    for side, predictor in enumerate(predictors):
        kept = keep_mass_of_maps(predictor.cls_attention(), 0.6)
        head, score = best_head(enlarge(kept, truth.shape), truth)
        told = tab.locator("#compare .lab-what").nth(side).inner_text()
        assert told.startswith(f"Head {head}: 60 % of the attention")
        assert told.endswith(f"Jaccard with your mask {score:.3f}")
        masks.append(enlarge(kept[head], truth.shape))
    agreement = tab.locator("#compare .compare-agreement").inner_text()
    assert f"{float(jaccard(*masks)):.3f}" in agreement
    lab.screenshot(tab, "compare-drawn")
    tab.locator("#compare .lab-undo").click()
    assert not _drawn(tab, 0).any()
    assert not _drawn(tab, 1).any()


def test_figure_is_a_picture_of_what_is_compared(tab):
    with tab.expect_download() as download:
        tab.locator("#compare [data-download]").click()
    assert download.value.suggested_filename == "kitten-compared.png"
    figure = Image.open(io.BytesIO(Path(download.value.path()).read_bytes()))
    assert figure.width > 3 * figure.height  # the photograph and two masks, side by side
    assert len(np.unique(np.array(figure).reshape(-1, 3), axis=0)) > 1000


def test_models_switched_quickly_end_on_the_last(tab, lab):
    for name in ("embedded", "random:embedded", "embedded", lab.model):
        _choose_model(tab, "right", name)
    tab.wait_for_function(
        f"(model) => {TAB}.sides[1].viewer.encoding.model === model", arg=lab.model, timeout=120_000
    )
    np.testing.assert_array_equal(_maps(tab, 0), _maps(tab, 1))
    assert "1.000" in tab.locator("#compare .compare-agreement").inner_text()


def test_keyboard_moves_both_cursors_and_draws(tab):
    _stage(tab, 0).focus()
    for key in ("ArrowUp", "ArrowLeft"):
        tab.keyboard.press(key)
    assert tab.evaluate(f"{TAB}.place") is not None
    assert all("Row" in text for text in tab.locator("#compare .lab-where").all_inner_texts())
    tab.keyboard.press("Escape")
    assert tab.evaluate(f"{TAB}.place") is None
    tab.locator("#compare input[name=tool]:checked").press("ArrowRight")  # from pointing to drawing
    _stage(tab, 1).focus()
    for key in ("ArrowUp", "Enter"):
        tab.keyboard.press(key)
    assert _drawn(tab, 0).any()


def test_tab_is_right_on_a_phone(open_page, lab):
    page = _open_tab(open_page(390, 844, has_touch=True, is_mobile=True, color_scheme="dark"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for side, share in enumerate((0.3, 0.7)):
        stage = _stage(page, side)
        width = stage.bounding_box()["width"]
        stage.tap(position={"x": share * width, "y": 50})
        page.wait_for_function(f"(share) => Math.abs({TAB}.place?.x - share) < 0.05", arg=share)
    lab.screenshot(page, "compare-phone-dark")
