"""The view of a notebook cell follows the pointer, without a server."""

import pytest

from app.notebook import show
from dino_model import photographs

pytestmark = pytest.mark.browser


def test_pointer_in_the_output_of_a_cell_selects_a_patch_in_both_models(browser, tmp_path):
    view = show(photographs.image("sheep"), ["embedded", "random:embedded"])
    (tmp_path / "cell.html").write_text(f"<!doctype html><body>{view._repr_html_()}</body>")
    page, errors = browser.new_page(), []
    page.on("pageerror", lambda error: errors.append(error))
    page.goto((tmp_path / "cell.html").as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("[data-token]").nth(1).wait_for()
    box = frame.locator("canvas").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    frame.get_by_text("This patch attends to the lit places").nth(1).wait_for()
    page.close()
    assert not errors
