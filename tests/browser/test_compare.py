"""Compare in a browser: both models agree with the library, under one pointer and one mask."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dino_model import photographs
from dino_model.predictor import AttentionPredictor
from segmentation.masks import best_head, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard

READY = "#compare .lab-view[data-token]"
VIEW = "lab('compare')"
RIGHT_MODEL = "random:embedded"


@pytest.fixture(scope="module")
def predictors(lab) -> list[AttentionPredictor]:
    """The library with both models, looking at the example."""
    found = []
    for model in (lab.model, RIGHT_MODEL):
        predictor = AttentionPredictor(model, size=lab.size, precision="fp32", device="cpu")
        predictor.set_image(photographs.picture("kitten"))
        found.append(predictor)
    return found


@pytest.fixture(scope="module")
def opened(open_shared: Any) -> Any:
    return open_shared(query="?tab=compare", ready=READY)


@pytest.fixture
def tab(opened: Any) -> Any:
    """The tab with the attention of [CLS] by both models, and no mask."""
    if opened.evaluate(f"{VIEW}.other") != RIGHT_MODEL:
        _choose_other(opened, RIGHT_MODEL)
    opened.mouse.move(0, 0)
    opened.locator("#compare-quantity label:has(input[value=attention])").click()
    opened.wait_for_selector("#compare .lab-view[data-quantity=attention]")
    opened.locator("#compare .lab-clear").click()
    opened.locator("#compare").get_by_text("Point", exact=True).click()
    opened.evaluate(
        f"""() => {{
          for (const side of {VIEW}.sides) side.chosen = "best";
          {VIEW}.point(null);
          {VIEW}.render();
        }}"""
    )
    return opened


def _choose_other(page: Any, model: str) -> None:
    page.locator("#other input").click()
    page.get_by_role("option").filter(has_text=model).first.click()
    page.wait_for_function(f"(model) => {VIEW}.other === model", arg=model, timeout=60_000)


def _stage(page: Any, side: int) -> Any:
    return page.locator("#compare .lab-stage").nth(side)


def _stroke(page: Any, side: int) -> None:
    page.locator("#compare").get_by_text("Draw", exact=True).click()
    stage = _stage(page, side)
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.6 * box["height"], steps=4)
    page.mouse.up()


def _maps(lab: Any, page: Any, side: int) -> np.ndarray:
    return lab.maps(page, f"{VIEW}.sides[{side}].viewer")


def _by_hand(lab: Any, page: Any, side: int) -> np.ndarray:
    painting = f"{VIEW}.sides[{side}].brush.painting"
    return lab.array(
        page, f"{{ array: {painting}.values, shape: [{painting}.height, {painting}.width] }}"
    ).astype(bool)


def test_maps_of_both_models_are_the_librarys(tab, lab, predictors):
    for side, predictor in enumerate(predictors):
        np.testing.assert_allclose(_maps(lab, tab, side), predictor.cls_attention(), atol=1e-3)
    assert tab.locator("#compare .lab-model").all_inner_texts() == [lab.model, RIGHT_MODEL]
    lab.screenshot(tab, "compare")


@pytest.mark.parametrize("side", [0, 1])
def test_pointer_asks_the_same_place_of_both_models(tab, lab, predictors, side):
    box = _stage(tab, side).bounding_box()
    _stage(tab, side).hover(position={"x": 0.62 * box["width"], "y": 0.41 * box["height"]})
    tab.wait_for_function(f"() => {VIEW}.place !== null")
    place = tab.evaluate(f"{VIEW}.place")
    for index, predictor in enumerate(predictors):
        height, width = predictor.image_size
        expected = predictor.point_attention(int(place["y"] * height), int(place["x"] * width))
        np.testing.assert_allclose(_maps(lab, tab, index), expected, atol=1e-3)
        rows, columns = predictor.grid
        where = tab.locator("#compare .lab-where").nth(index).inner_text()
        assert (
            f"Row {int(place['y'] * rows)}, column {int(place['x'] * columns)} of {rows} × {columns}" in where
        )
    tab.locator("h1").hover()
    tab.wait_for_function(f"() => {VIEW}.place === null")


def test_mask_of_one_side_lies_on_both_and_chooses_the_best_heads(tab, lab, predictors):
    _stroke(tab, 1)
    truth = _by_hand(lab, tab, 1)
    assert truth.any()
    np.testing.assert_array_equal(_by_hand(lab, tab, 0), truth)
    tab.get_by_role("button", name="Best heads at 60 %").click()
    masks = []
    for side, predictor in enumerate(predictors):
        kept = keep_mass_of_maps(predictor.cls_attention(), 0.6)
        head, score = best_head(enlarge(kept, truth.shape), truth)
        told = tab.locator("#compare .lab-what").nth(side)
        told.filter(has_text=f"Head {head}: 60 % of the attention").wait_for()
        assert told.inner_text().endswith(f"Jaccard with your mask {score:.3f}")
        masks.append(enlarge(kept[head], truth.shape))
    agreement = tab.locator("#compare .lab-agreement").inner_text()
    assert f"{float(jaccard(*masks)):.3f}" in agreement
    tab.locator("#compare .lab-undo").click()
    assert not _by_hand(lab, tab, 0).any()


def test_figure_shows_what_is_compared(tab):
    with tab.expect_download(timeout=60_000) as download:
        tab.get_by_role("button", name="Figure (PNG)").click()
    assert download.value.suggested_filename == "kitten-compared.png"
    figure = Image.open(io.BytesIO(Path(download.value.path()).read_bytes()))
    assert figure.width > 3 * figure.height  # the image and two masks, side by side


def test_other_model_can_be_the_same(tab, lab):
    _choose_other(tab, lab.model)
    tab.wait_for_function(
        f"() => {VIEW}.element.dataset.token.split(' ')[0] === {VIEW}.element.dataset.token.split(' ')[1]"
    )
    assert "1.000" in tab.locator("#compare .lab-agreement").inner_text()


def test_keyboard_moves_both_cursors_and_draws(tab, lab):
    _stage(tab, 0).focus()
    for key in ("ArrowUp", "ArrowLeft"):
        tab.keyboard.press(key)
    assert tab.evaluate(f"{VIEW}.place") is not None
    tab.keyboard.press("Escape")
    assert tab.evaluate(f"{VIEW}.place") is None
    tab.locator("#compare").get_by_text("Draw", exact=True).click()
    _stage(tab, 1).focus()
    for key in ("ArrowUp", "Enter"):
        tab.keyboard.press(key)
    assert _by_hand(lab, tab, 0).any()
