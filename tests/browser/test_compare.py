"""Compare in a browser: both models agree with the library, under one pointer."""

from typing import Any

import numpy as np
import pytest

from dino_model.predictor import AttentionPredictor

READY = "#compare-right .lab-view[data-token]"
LEFT, RIGHT = "lab('compare-left')", "lab('compare-right')"
RIGHT_MODEL = "random:embedded"


@pytest.fixture(scope="module")
def predictors(lab) -> list[AttentionPredictor]:
    """The library with both models, looking at the example."""
    return [lab.library(), lab.library(RIGHT_MODEL)]


@pytest.fixture(scope="module")
def opened(open_shared: Any) -> Any:
    return open_shared(query="?tab=compare", ready=READY)


@pytest.fixture
def tab(opened: Any) -> Any:
    """The tab with the attention of [CLS] by both models."""
    opened.mouse.move(0, 0)
    _choose_other(opened, RIGHT_MODEL)
    opened.locator("#compare-quantity label:has(input[value=attention])").click()
    for side in ("left", "right"):
        opened.wait_for_selector(f"#compare-{side} .lab-view[data-quantity=attention]")
    return opened


def _choose_other(page: Any, model: str) -> None:
    if page.evaluate(f"{RIGHT}.encoding.value.model") == model:
        return
    page.locator("#other input").click()
    page.get_by_role("option").filter(has_text=model).first.click()
    page.wait_for_function(f"(model) => {RIGHT}.encoding.value.model === model", arg=model, timeout=60_000)


def test_maps_of_both_models_are_the_librarys(tab, lab, predictors):
    for view, predictor in zip((LEFT, RIGHT), predictors, strict=True):
        np.testing.assert_allclose(lab.maps(tab, f"{view}", "null"), predictor.cls_attention(), atol=1e-3)
    assert tab.locator("#compare h3").all_inner_texts() == [lab.MODEL, RIGHT_MODEL]
    lab.screenshot(tab, "compare")


@pytest.mark.parametrize("side", ["left", "right"])
def test_pointer_asks_the_same_place_of_both_models(tab, lab, predictors, side):
    stage = tab.locator(f"#compare-{side} .lab-stage")
    stage.hover(position=lab.place(tab, f"#compare-{side} .lab-stage", 0.62, 0.41))
    tab.wait_for_function(f"() => {LEFT}.hovered && {RIGHT}.hovered")
    for view, predictor in zip((LEFT, RIGHT), predictors, strict=True):
        (rows, columns), (height, width) = predictor.grid, predictor.image_size
        patch = tab.evaluate(f"{view}.hovered")
        assert abs(patch["row"] + 0.5 - 0.41 * rows) <= 1
        assert abs(patch["column"] + 0.5 - 0.62 * columns) <= 1
        y, x = (
            (2 * patch["row"] + 1) * height // (2 * rows),
            (2 * patch["column"] + 1) * width // (2 * columns),
        )
        expected = predictor.point_attention(y, x)
        np.testing.assert_allclose(lab.maps(tab, f"{view}"), expected, atol=1e-3)
    tab.locator("h1").hover()
    tab.wait_for_function(f"() => !{LEFT}.hovered && !{RIGHT}.hovered")
    stage.focus()
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate(f"[{LEFT}, {RIGHT}].every((view) => view.hovered)")


def test_other_model_can_be_the_same_and_another_image_is_shown_by_both(tab, lab):
    _choose_other(tab, lab.MODEL)
    assert tab.evaluate(f"{LEFT}.encoding.token === {RIGHT}.encoding.token")
    for photo in ("sheep", "kitten"):
        tab.locator(f"#strip button:has(img[src*='{photo}'])").click()
        both = f"(photo) => [{LEFT}, {RIGHT}].every((view) => view.encoding.photo === photo)"
        tab.wait_for_function(both, arg=photo, timeout=60_000)
