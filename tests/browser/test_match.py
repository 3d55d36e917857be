"""Match in a browser: similar patches of two images, as the package finds them."""

import numpy as np
import pytest
from PIL import Image

from dino_model import photographs
from segmentation import matching
from tests.browser import actions

READY = "#match .lab-view[data-token]"
VIEW = "viewOf('match')"
QUERY = "?tab=match&model=embedded"
OWN = "#seconds input[type=file]"


@pytest.fixture
def tab(open_shared):
    """The tab with the example and its turned copy."""
    page = open_shared(query=QUERY, ready=READY)
    page.mouse.move(0, 0)
    if not page.evaluate(f"{VIEW}.shown.b.name").endswith("turned"):
        _choose_second(page, "The first image", "sheep turned")
    return page


def _choose_second(page, option: str, name: str) -> None:
    page.locator(f"#seconds button[title^='{option}']").click()
    actions.wait(page, f"{VIEW}.shown.b.name === '{name}'")


def _lines(page) -> int:
    return page.locator("#match .lab-lines .lab-mutual").count()


def test_image_matches_its_turned_copy(tab):
    matches = tab.evaluate(f"{VIEW}.shown.matches")
    found = tab.locator("#match .lab-found").inner_text()
    assert found.startswith(f"{len(matches)} mutual nearest neighbors")
    assert _lines(tab) == min(100, len(matches)) >= 10


def test_pointer_shows_the_cosines_of_the_package(tab):
    _choose_second(tab, "Owl on a branch", "owl")
    tab.locator("#match .lab-stage").first.hover(position=actions.place(tab, "#match .lab-stage", 0.62, 0.41))
    actions.wait(tab, f"{VIEW}.hovered !== null")
    patch = tab.evaluate(f"{VIEW}.hovered")
    size, features = round(tab.evaluate(f"{VIEW}.shown.scale") * actions.SIZE), []
    for name, pixels in (("sheep", actions.SIZE), ("owl", size)):
        predictor = actions.reference("embedded", name, pixels)
        features.append(matching.image_features(predictor, photographs.image(name)).features)
    expected = matching.similarities(*matching.prepare_pair(*features), (patch["row"], patch["column"]))
    shape = list(expected.shape)
    cosines = actions.array(tab, f"{{ array: {VIEW}.counterpart({VIEW}.hovered).map, shape: {shape} }}")
    np.testing.assert_allclose(cosines, expected, atol=3e-3)
    best = tab.evaluate(f"{VIEW}.counterpart({VIEW}.hovered).patch")
    where = tab.locator("#match .lab-where").all_inner_texts()
    for one, text in zip((patch, best), where, strict=True):
        assert f"Row {one['row']}, column {one['column']}" in text
    assert expected[best["row"], best["column"]] == pytest.approx(expected.max(), abs=3e-3)
    assert f"{expected.max():.2f}" in tab.locator("#match .lab-what").inner_text()


def test_smaller_ratio_keeps_fewer_matches(tab):
    before = tab.evaluate(f"{VIEW}.shown.matches.length")
    for percent, fewer in ((80, True), (100, False)):
        tab.get_by_label("number input for Ratio to the next best (%)").fill(str(percent))
        tab.keyboard.press("Enter")
        tab.keyboard.press("Tab")
        actions.wait(tab, f"{VIEW}.shown.ratio === {percent / 100}")
        matches = tab.evaluate(f"{VIEW}.shown.matches")
        assert (len(matches) < before) is fewer
        assert all(match["ratio"] <= percent / 100 for match in matches)


def test_own_second_image_is_matched_and_one_without_texture_refused(tab, image_file, tmp_path):
    tab.set_input_files(OWN, image_file("mine.png"))
    actions.wait(tab, f"{VIEW}.shown.b.name === 'mine.png'")
    Image.new("RGB", (80, 60), (90, 90, 90)).save(tmp_path / "flat.png")
    tab.set_input_files(OWN, tmp_path / "flat.png")
    tab.get_by_text("no texture").first.wait_for()
    assert tab.evaluate(f"{VIEW}.shown.b.name") == "mine.png"


def test_link_opens_the_second_image(open_page):
    page = open_page(query=f"{QUERY}&second=owl", ready=READY)
    assert page.evaluate(f"{VIEW}.shown.b.name") == "owl"
    _choose_second(page, "Kitten", "kitten")
    actions.wait(page, "location.search.includes('second=kitten')")


def test_phone_has_both_images_in_one_row(open_page):
    page = open_page(query=QUERY, ready=READY, width=390, height=844)
    left, right = (page.locator("#match .lab-stage").nth(side).bounding_box() for side in (0, 1))
    assert left["y"] == right["y"]
    assert right["x"] + right["width"] <= 390
    assert _lines(page) <= 50
