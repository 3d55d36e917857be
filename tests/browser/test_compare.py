"""Compare in a browser: the maps of two models, under one pointer."""

import numpy as np
import pytest

from dino_model.inference.predictor import AttentionPredictor
from tests.browser import actions

LEFT, RIGHT = "viewOf('compare-left')", "viewOf('compare-right')"
OTHER = "random:embedded"


@pytest.fixture(scope="module")
def predictors() -> list[AttentionPredictor]:
    """Predictors of both models, with the example."""
    return [actions.reference(), actions.reference(OTHER)]


@pytest.fixture
def tab(open_shared):
    """The tab with the attention of [CLS] by both models."""
    page = open_shared(query="?tab=compare", ready="#compare-right .lab-view[data-token]")
    page.mouse.move(0, 0)
    _choose_other(page, OTHER)
    page.locator("#compare-quantity label:has(input[value=attention])").click()
    for side in ("left", "right"):
        page.wait_for_selector(f"#compare-{side} .lab-view[data-quantity=attention]")
    return page


def _choose_other(page, model: str) -> None:
    if page.evaluate(f"{RIGHT}.encoding.value.model") != model:
        page.locator("#other input").click()
        page.get_by_role("option").filter(has_text=model).first.click()
        actions.wait(page, f"{RIGHT}.encoding.value.model === '{model}'")


def test_maps_of_both_models_equal_the_package(tab, predictors):
    for view, predictor in zip((LEFT, RIGHT), predictors, strict=True):
        np.testing.assert_allclose(actions.maps(tab, view, "null"), predictor.cls_attention(), atol=1e-3)
    assert tab.locator("#compare h3").all_inner_texts() == [actions.MODEL, OTHER]


@pytest.mark.parametrize("side", ["left", "right"])
def test_pointer_shows_the_same_place_in_both_models(tab, predictors, side):
    stage = tab.locator(f"#compare-{side} .lab-stage")
    stage.hover(position=actions.place(tab, f"#compare-{side} .lab-stage", 0.62, 0.41))
    actions.wait(tab, f"{LEFT}.hovered && {RIGHT}.hovered")
    for view, predictor in zip((LEFT, RIGHT), predictors, strict=True):
        patch = tab.evaluate(f"{view}.hovered")
        # The other model's patches are half as large: a whole one to the center, and half a one to the patch.
        assert abs(patch["row"] + 0.5 - 0.41 * predictor.grid[0]) <= 1.5
        assert abs(patch["column"] + 0.5 - 0.62 * predictor.grid[1]) <= 1.5
        expected = actions.point_attention(predictor, patch["row"], patch["column"])
        np.testing.assert_allclose(actions.maps(tab, view), expected, atol=1e-3)
    tab.locator("h1").hover()
    actions.wait(tab, f"!{LEFT}.hovered && !{RIGHT}.hovered")
    stage.focus()
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate(f"[{LEFT}, {RIGHT}].every((view) => view.hovered)")


def test_other_model_can_be_the_same_and_another_image_is_shown_by_both(tab):
    _choose_other(tab, actions.MODEL)
    assert tab.evaluate(f"{LEFT}.encoding.token === {RIGHT}.encoding.token")
    for photo in ("sheep", "kitten"):
        tab.locator(f"#images button:has(img[src*='{photo}'])").click()
        actions.wait(tab, f"[{LEFT}, {RIGHT}].every((view) => view.encoding.source === '{photo}')")


def test_link_opens_the_tab_with_its_second_model(open_page):
    query = f"?tab=compare&other={actions.MODEL}&second=nothing"
    page = open_page(query=query, ready="#compare-right .lab-view[data-token]")
    actions.wait(page, f"{RIGHT}.encoding.value.model === '{actions.MODEL}'")
    _choose_other(page, "embedded-dino")
    actions.wait(page, "location.search === '?tab=compare&other=embedded-dino'")


def test_opens_with_attention_on_an_image_where_random_weights_fail(open_page):
    page = open_page(query="?tab=compare", ready="#compare-right .lab-view[data-token]")
    shown = page.evaluate(f"[{LEFT}, {RIGHT}].map(({{ encoding, quantity }}) => [encoding.source, quantity])")
    assert shown == [["sheep", "attention"]] * 2
