"""Compare in a browser: the maps of two models, under one pointer."""

import io

import numpy as np

from tests.browser import actions

LEFT, RIGHT = "viewOf('compare-left')", "viewOf('compare-right')"
OTHER = "random:embedded"
READY = "#compare-right .lab-view[data-token]"


def test_pointer_shows_the_same_place_in_both_models(open_page):
    page = open_page(query="?tab=compare", ready=READY)
    predictors = [actions.reference(), actions.reference(OTHER)]
    assert page.locator("#compare h3").all_inner_texts() == [actions.MODEL, OTHER]
    for view, predictor in zip((LEFT, RIGHT), predictors, strict=True):
        np.testing.assert_allclose(actions.maps(page, view, "null"), predictor.cls_attention(), atol=1e-3)
    stage = page.locator("#compare-right .lab-stage")
    stage.hover(position=actions.place(page, "#compare-right .lab-stage", 0.62, 0.41))
    actions.wait(page, f"{LEFT}.hovered && {RIGHT}.hovered")
    for view, predictor in zip((LEFT, RIGHT), predictors, strict=True):
        patch = page.evaluate(f"{view}.hovered")
        # The other model's patches are half as large: a whole one to the center, and half a one to the patch.
        assert abs(patch["row"] + 0.5 - 0.41 * predictor.grid[0]) <= 1.5
        assert abs(patch["column"] + 0.5 - 0.62 * predictor.grid[1]) <= 1.5
        expected = actions.point_attention(predictor, patch["row"], patch["column"])
        np.testing.assert_allclose(actions.maps(page, view), expected, atol=1e-3)
    page.locator("h1").hover()
    actions.wait(page, f"!{LEFT}.hovered && !{RIGHT}.hovered")
    shown = actions.image(actions.export(page, "compare-left", "shown.png")[1])
    assert shown.shape[1] > 2.5 * shown.shape[0]  # both images in one row
    content = actions.export(page, "compare-left", "maps.npz", last=True)[1]
    with np.load(io.BytesIO(content)) as archive:
        np.testing.assert_allclose(archive["maps"], predictors[1].cls_attention(), atol=1e-3)
