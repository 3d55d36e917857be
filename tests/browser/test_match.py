"""Match in a real browser: what is like a patch of one photograph in another, as the library sees it."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from dino_model import photographs
from dino_model.predictor import AttentionPredictor
from segmentation import matching

TAB = "document.querySelector('.match').tab"
READY = ".match[data-token]"
QUERY = "?tab=match&model=embedded&size=96"
PLACE = (0.62, 0.41)  # across and down, shares of the photograph


@pytest.fixture
def tab(open_page) -> Any:
    """The page at this tab: the kitten, and the kitten turned."""
    return open_page(query=QUERY, ready=READY)


def _stage(page: Any, side: int) -> Any:
    return page.locator("#match .lab-stage").nth(side)


def _point(page: Any, *, press: bool = False, at: tuple[float, float] = PLACE) -> None:
    box = _stage(page, 0).bounding_box()
    position = {"x": at[0] * box["width"], "y": at[1] * box["height"]}
    (_stage(page, 0).click if press else _stage(page, 0).hover)(position=position)


def _lines(page: Any, kind: str) -> int:
    return page.locator(f"#match .match-lines .match-{kind}").count()


def _choose(page: Any, second: str) -> None:
    page.evaluate("delete document.querySelector('.match').dataset.token")
    page.locator(f"#match [data-example='{second}']").click()
    page.wait_for_selector(READY, timeout=60_000)


def test_page_opens_on_lines_between_a_photograph_and_itself_turned(tab, lab):
    found = tab.locator("#match .match-found").inner_text()
    matches = tab.evaluate(f"{TAB}.shown.matches")
    assert found.startswith(f"{len(matches)} mutual matches")
    assert _lines(tab, "mutual") == min(100, len(matches)) >= 10
    height, width = photographs.picture("kitten").shape[:2]
    here, there = (np.array([one[side] for one in matches]) - [height / 2, width / 2] for side in "ab")
    turn = np.deg2rad(20)  # against the clock, in a picture whose y goes down
    moved = here @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    right = np.abs(moved - there).max(axis=1) <= height / 12
    assert right.mean() > 0.8
    lab.screenshot(tab, "match")


def test_pointer_lights_up_what_is_like_it_as_in_the_library(tab):
    _choose(tab, "sheep")
    _point(tab)
    tab.wait_for_function(f"() => {TAB}.hovered !== null")
    patch = tab.evaluate(f"{TAB}.hovered")
    found = tab.evaluate(
        f"(() => {{ const {{ map, patch }} = {TAB}.counterpart({TAB}.hovered);"
        " return { map: [...map], patch }; })()"
    )
    size = tab.evaluate(f"{TAB}.shown.scale") * 96
    seen = []
    for name, pixels in (("kitten", 96), ("sheep", round(size))):
        predictor = AttentionPredictor("embedded", size=pixels, precision="fp32", device="cpu")
        predictor.set_image(photographs.picture(name))
        seen.append(matching.patch_features(predictor, photographs.picture(name)).features)
    expected = matching.similarities(*matching.prepared(*seen), (patch["row"], patch["column"]))
    np.testing.assert_allclose(np.reshape(found["map"], expected.shape), expected, atol=3e-3)
    where = tab.locator("#match .lab-where")
    assert f"Row {patch['row']}, column {patch['column']}" in where.nth(0).inner_text()
    row, column = found["patch"]["row"], found["patch"]["column"]
    assert f"Row {row}, column {column}" in where.nth(1).inner_text()
    assert f"{expected.max():.2f}" in tab.locator("#match .lab-what").nth(1).inner_text()


def test_colours_of_what_lights_up_have_numbers(tab):
    _point(tab)
    tab.wait_for_function(f"() => {TAB}.hovered !== null")
    scale = tab.locator("#match .lab-scale")
    assert scale.count() == 1
    assert scale.is_visible()
    values = tab.evaluate(f"[...{TAB}.counterpart({TAB}.hovered).map]")
    low, high = (
        float(end.inner_text().split()[0].replace("\u2212", "-")) for end in scale.locator("span").all()
    )
    dark = np.median(values)  # half of the patches and all below: the map lights up what is more alike
    assert low == pytest.approx(dark, abs=0.01)
    assert low < high <= max(values) + 0.01
    bar = scale.locator("i").bounding_box()
    stage = _stage(tab, 1).bounding_box()
    assert bar["y"] >= stage["y"] + stage["height"]
    assert bar["width"] > stage["width"] / 3


def test_click_pins_a_pair_that_stays_in_the_address_until_it_is_taken_back(tab, lab, open_page, address):
    _point(tab, press=True)
    _point(tab, press=True, at=(0.4, 0.5))
    assert _lines(tab, "pinned") == 2
    assert tab.locator("#match .lab-stage").nth(1).locator(".lab-marker").count() == 2
    again = open_page(query=tab.url.removeprefix(address), ready=READY)
    assert _lines(again, "pinned") == 2
    lab.screenshot(again, "match-pinned")
    _stage(tab, 0).focus()
    tab.keyboard.press("Delete")
    assert _lines(tab, "pinned") == 1
    tab.keyboard.press("Control+z")
    assert _lines(tab, "pinned") == 2
    tab.get_by_role("button", name="Clear the pins").click()
    assert _lines(tab, "pinned") == 0
    assert "pins=" not in tab.url


def test_lines_can_be_hidden_and_the_files_are_what_is_shown(tab):
    _point(tab, press=True)
    sheets = []
    for shown in (True, False):
        tab.get_by_label("Lines between all matches").set_checked(shown)
        assert (_lines(tab, "mutual") > 0) is shown
        assert _lines(tab, "pinned") == 1
        with tab.expect_download() as download:
            tab.locator("#match [data-download='lines.png']").click()
        assert download.value.suggested_filename == "kitten-kitten-turned-lines.png"
        sheets.append(np.array(Image.open(io.BytesIO(Path(download.value.path()).read_bytes()))))
    assert (sheets[0] != sheets[1]).any()
    with tab.expect_download() as download:
        tab.locator("#match [data-download='matches.json']").click()
    told = json.loads(Path(download.value.path()).read_text())
    assert told["matches"] == tab.evaluate(f"{TAB}.shown.matches")
    assert len(told["pins"]) == 1


def test_smaller_ratio_keeps_fewer_and_surer_matches(tab):
    before = tab.evaluate(f"{TAB}.shown.matches")
    tab.locator("#match input[name=ratio]").fill("80")
    tab.wait_for_function(f"(many) => {TAB}.shown.matches.length < many", arg=len(before), timeout=60_000)
    after = tab.evaluate(f"{TAB}.shown.matches")
    assert all(match["ratio"] <= 0.8 for match in after)


def test_directions_of_a_pair_are_fetched_once_whatever_the_ratio(tab):
    asked = []
    tab.on("request", lambda request: "/directions" in request.url and asked.append(request.url))
    pair = tab.locator(".match").get_attribute("data-token").rpartition(" ")[0]
    for ratio in (99, 98):
        tab.locator("#match input[name=ratio]").fill(str(ratio))
        expect(tab.locator(".match")).to_have_attribute("data-token", f"{pair} {ratio / 100}", timeout=60_000)
    assert asked == []


def test_patch_under_the_pointer_is_dropped_where_there_are_fewer(tab):
    _point(tab, at=(0.97, 0.97))
    tab.wait_for_function(f"() => {TAB}.hovered !== null")
    before = tab.evaluate(f"{TAB}.hovered")
    tab.evaluate("page.lab.change({ size: 64 })")
    tab.wait_for_function(f"() => {TAB}.shown.a.rows <= {before['row']}", timeout=60_000)
    row, rows = tab.evaluate(f"[{TAB}.patch?.row ?? 0, {TAB}.shown.a.rows]")
    assert row < rows


def test_second_photograph_of_ones_own_is_opened_and_not_in_the_address(tab, picture):
    tab.set_input_files("#match input[type=file]", picture("mine.png"))
    tab.wait_for_function(f"() => {TAB}.shown.b.name === 'mine.png'", timeout=60_000)
    assert "second=own" in tab.url
    expect(tab.locator("#match [data-example][aria-pressed=true]")).to_have_attribute("title", "mine.png")


def test_photograph_without_texture_is_told_and_the_pair_stays(tab, tmp_path):
    Image.new("RGB", (80, 60), (90, 90, 90)).save(tmp_path / "flat.png")
    tab.set_input_files("#match input[type=file]", tmp_path / "flat.png")
    expect(tab.locator("#messages")).to_contain_text("no texture", timeout=60_000)
    assert tab.evaluate(f"{TAB}.shown.b.name") == "kitten turned"
    expect(tab.locator("#match [data-example='']")).to_have_attribute("aria-pressed", "true")


def test_phone_has_both_photographs_in_one_row_and_not_more_lines_than_let_them_be_seen(open_page, lab):
    page = open_page(query=QUERY, ready=READY, width=390, height=844)
    left, right = (_stage(page, side).bounding_box() for side in (0, 1))
    assert left["y"] == right["y"]
    assert right["x"] + right["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#match .lab-scale i").bounding_box()["width"] > right["width"] * 0.9
    drawn = _lines(page, "mutual")
    assert drawn <= 39
    many = len(page.evaluate(f"{TAB}.shown.matches"))
    found = page.locator("#match .match-found").inner_text()
    assert f"{many} mutual matches" + (f", the surest {drawn} drawn" if drawn < many else "") in found
    lab.screenshot(page, "match-phone")
