"""Match in a browser: similar patches of two images, as the library finds them."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from dino_model import photographs
from segmentation import matching

READY = "#match .lab-view[data-token]"
VIEW = "lab('match')"
QUERY = "?tab=match&model=embedded"
PLACE = (0.62, 0.41)  # across and down, shares of the image
OWN = "[data-testid='Open a second image-upload-button']"


@pytest.fixture(scope="module")
def opened(open_shared: Any) -> Any:
    return open_shared(query=QUERY, ready=READY)


@pytest.fixture
def tab(opened: Any) -> Any:
    """The tab with the example and its turned copy."""
    opened.mouse.move(0, 0)
    if not opened.evaluate(f"{VIEW}.shown.b.name").endswith("turned"):
        _choose_second(opened, "The first image", "kitten turned")
    return opened


def _choose_second(page: Any, option: str, name: str) -> None:
    page.locator("#second input").click()
    page.get_by_role("option").filter(has_text=option).first.click()
    page.wait_for_function(f"(name) => {VIEW}.shown.b.name === name", arg=name, timeout=60_000)


def _stage(page: Any, side: int) -> Any:
    return page.locator("#match .lab-stage").nth(side)


def _lines(page: Any) -> int:
    return page.locator("#match .lab-lines .lab-mutual").count()


def test_image_matches_its_turned_copy(tab, lab):
    matches = tab.evaluate(f"{VIEW}.shown.matches")
    assert (
        tab.locator("#match .lab-found").inner_text().startswith(f"{len(matches)} mutual nearest neighbors")
    )
    assert _lines(tab) == min(100, len(matches)) >= 10
    height, width = photographs.image("kitten").shape[:2]
    here, there = (np.array([one[side] for one in matches]) - [height / 2, width / 2] for side in "ab")
    turn = np.deg2rad(20)  # against the clock, in an image whose y goes down
    moved = here @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    assert (np.abs(moved - there).max(axis=1) <= height / 12).mean() > 0.8
    lab.screenshot(tab, "match")


def test_pointer_shows_similar_patches_as_the_library(tab, lab):
    _choose_second(tab, "Sheep", "sheep")
    _stage(tab, 0).hover(position=lab.place(tab, "#match .lab-stage", *PLACE))
    tab.wait_for_function(f"() => {VIEW}.hovered !== null")
    patch = tab.evaluate(f"{VIEW}.hovered")
    found = tab.evaluate(
        f"(() => {{ const {{ map, patch }} = {VIEW}.counterpart({VIEW}.hovered);"
        " return { map: [...map], patch }; })()"
    )
    size, seen = tab.evaluate(f"{VIEW}.shown.scale") * lab.SIZE, []
    for name, pixels in (("kitten", lab.SIZE), ("sheep", round(size))):
        predictor = lab.library("embedded", name, pixels)
        seen.append(matching.image_features(predictor, photographs.image(name)).features)
    expected = matching.similarities(*matching.prepared(*seen), (patch["row"], patch["column"]))
    np.testing.assert_allclose(np.reshape(found["map"], expected.shape), expected, atol=3e-3)
    where = tab.locator("#match .lab-where")
    assert f"Row {patch['row']}, column {patch['column']}" in where.nth(0).inner_text()
    assert f"{expected.max():.2f}" in tab.locator("#match .lab-what").inner_text()


def test_smaller_ratio_keeps_fewer_matches(tab):
    before = tab.evaluate(f"{VIEW}.shown.matches.length")
    ratio = tab.get_by_label("number input for Ratio to the next best (%)")
    for percent, fewer in (("80", True), ("100", False)):
        ratio.fill(percent)
        tab.keyboard.press("Enter")
        tab.keyboard.press("Tab")
        tab.wait_for_function(
            f"(ratio) => {VIEW}.shown.ratio === ratio", arg=int(percent) / 100, timeout=60_000
        )
        matches = tab.evaluate(f"{VIEW}.shown.matches")
        assert (len(matches) < before) is fewer
        assert all(match["ratio"] <= int(percent) / 100 for match in matches)


def test_own_second_image_is_matched_and_one_without_texture_refused(tab, picture, tmp_path):
    tab.set_input_files(OWN, picture("mine.png"))
    tab.wait_for_function(f"() => {VIEW}.shown.b.name === 'mine.png'", timeout=60_000)
    Image.new("RGB", (80, 60), (90, 90, 90)).save(tmp_path / "flat.png")
    tab.set_input_files(OWN, tmp_path / "flat.png")
    tab.get_by_text("no texture").first.wait_for(timeout=60_000)
    assert tab.evaluate(f"{VIEW}.shown.b.name") == "mine.png"


def test_phone_has_both_images_in_one_row(open_page, lab):
    page = open_page(query=QUERY, ready=READY, width=390, height=844)
    left, right = (_stage(page, side).bounding_box() for side in (0, 1))
    assert left["y"] == right["y"]
    assert right["x"] + right["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert _lines(page) <= 39
    lab.screenshot(page, "match-phone")
