"""Class map in a browser: every way to move, find, choose and place."""

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser import actions

VIEW = "viewOf('class-map')"
READY = "#class-map .lab-view[data-token=sheep]"
PLOT = "#class-map .map-plot"
COVERED = f"""() => {{
  const box = (one) => new DOMRect(...["x", "y", "width", "height"].map((name) => one.getAttribute(name)));
  const pictures = [...document.querySelectorAll("{PLOT} > svg[opacity='1']")].map(box);
  const covers = ({{ x, y, width, height }}) => pictures.some((one) =>
    x < one.right && x + width > one.left && y < one.bottom && y + height > one.top);
  const names = [...document.querySelectorAll("{PLOT} text")].slice(1); // after that of the image
  return names.filter((name) => covers(name.getBBox())).map((name) => name.textContent);
}}"""


@pytest.fixture
def tab(open_shared):
    """The tab with the map of Caltech-101, which shows all classes without a selection."""
    page = open_shared(query="?tab=class-map", ready=READY)
    if page.evaluate(f"{VIEW}.opened") != "caltech101":
        actions.pick(page, "map", "caltech101 · 101 classes")
        page.wait_for_selector("#class-map [data-map=caltech101]")
    page.locator("#images .rail-list:last-of-type .rail-tile > button").first.click()
    page.wait_for_selector(READY)
    page.evaluate(f"{VIEW}.hover(null); {VIEW}.choose(null); {VIEW}.fit()")
    return page


def _state(page, name: str):
    return page.evaluate(f"{VIEW}.{name}")


def _neighbors(page) -> list[str]:
    return page.locator(".map-chosen li button > span:not(.lab-soft)").all_inner_texts()


def test_first_map_has_pictures_and_places_images_at_the_mean_of_their_neighbors(open_page):
    page = open_page(query="?tab=class-map", ready=READY)
    assert _state(page, "opened") == "photographs"
    actions.wait(page, f"document.querySelectorAll('{PLOT} svg image').length > 15")
    shown = page.locator(f"{PLOT} svg image").count()
    assert shown <= len(_state(page, "points"))
    assert _neighbors(page)[0] == "sheep"  # the start image is one of the map
    assert page.evaluate(COVERED) == []
    reason = "getComputedStyle(document.querySelector('#model-facts'), '::before').content"
    assert "models of its own" in page.evaluate(reason)
    page.locator("#images button:has(img[src*=kitten])").click()
    page.wait_for_selector("#class-map .lab-view[data-token=kitten]")
    assert _state(page, "visited.size") == 2
    placed = _state(page, "placed")
    places = np.array([_state(page, f"points[{index}]") for index, _ in placed["neighbors"]])
    weights = np.array([distance**-2 for _, distance in placed["neighbors"]])
    for axis in "xy":
        mean = np.average([place[axis] for place in places], weights=weights)
        assert placed[axis] == pytest.approx(mean, rel=1e-3)


def test_search_finds_classes_by_part_of_a_name_or_group(tab):
    search = tab.get_by_label("Find a class or group")
    search.click()
    search.press_sequentially("CROCO")
    options = tab.get_by_role("option")
    group = "fish, reptile, amphibian"
    expect(options).to_contain_text([f"crocodile · {group}", f"crocodile, head · {group}"])
    options.first.click()
    expect(tab.locator(".map-chosen h3")).to_have_text("crocodile")
