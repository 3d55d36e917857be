"""The views of a notebook cell follow the pointer, without a server, in light and dark notebooks."""

from pathlib import Path

import numpy as np
import pytest

from app import notebook
from dino_model import photographs

sync_api = pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.browser


SHEEP = photographs.image("sheep")
PHOTOGRAPHS = Path(notebook.__file__).parent / "static" / "maps" / "photographs"
TURNED = np.ascontiguousarray(SHEEP[:, 60:])


@pytest.mark.parametrize(
    ("view", "selector", "expected"),
    [
        (
            lambda: notebook.show(SHEEP, ["embedded", "random:embedded"]),
            ".lab-bottom",
            "attends to the lit places",
        ),
        (lambda: notebook.show(SHEEP, quantity="key-cosine"), ".lab-bottom", "similar to the bright patches"),
        (lambda: notebook.show_mask(SHEEP), ".lab-scores", "Your mask"),
        (lambda: notebook.show_match(SHEEP, TURNED), ".lab-pair", "Most similar: cosine"),
        (lambda: notebook.show_classes(PHOTOGRAPHS), ".map-plot", "sheep"),
    ],
    ids=["attention", "similarity", "mask", "match", "classes"],
)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_view_in_the_output_of_a_cell_follows_the_pointer(browser, tmp_path, view, selector, expected, theme):
    colors = {"light": "color:#111;background:#fff", "dark": "color:#eee;background:#111"}[theme]
    (tmp_path / "cell.html").write_text(
        f"<!doctype html><body style='{colors}'>{view()._repr_html_()}</body>"
    )
    page, errors = browser.new_page(), []
    page.on("pageerror", lambda error: errors.append(error))
    page.goto((tmp_path / "cell.html").as_uri())
    frame = page.frame_locator("iframe")
    place = frame.locator("canvas, .map-plot").first
    place.wait_for()
    frame.locator("[data-token], .map-plot text").last.wait_for()
    box = place.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for text in frame.locator(selector).all():
        sync_api.expect(text).to_contain_text(expected)
    assert frame.locator("html").evaluate("root => getComputedStyle(root).colorScheme") == theme
    page.close()
    assert not errors
