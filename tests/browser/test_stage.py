"""The stage of Explore in a browser: size, zoom, contour, history, and maps that follow the pointer."""

import numpy as np
import pytest

from app.store.images import EXAMPLES
from app.values import attention_value
from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from tests.browser import actions

VIEW = actions.EXPLORER
STAGE = "#explore .lab-stage"
INSIDE = """(selector) => {
  const { top, bottom, left, right, width } = document.querySelector(selector).getBoundingClientRect();
  return width > 20 && top >= 0 && left >= 0 && bottom <= innerHeight && right <= innerWidth;
}"""
TILE = "#explore .lab-tiles .lab-tile:has(:checked) canvas"
CORRELATION = """async (value) => {
  const explore = viewOf("explore");
  explore.props.value = value;
  await explore.reload();
  const { rows, columns } = explore.encoding;
  let state = 1;
  const random = (count) => (state = (state * 48271) % 2147483647) % count;
  const levels = () => {
    const maps = explore.mapsOf({ row: random(rows), column: random(columns) });
    const [low, high] = maps.scale(explore.shown);
    const level = (value) => Math.min(1, Math.max(0, (value - low) / (high - low)));
    return Array.from(maps.map(explore.shown), level);
  };
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const centered = (values, middle = mean(values)) => values.map((value) => value - middle);
  const product = (one, other) => one.reduce((sum, value, at) => sum + value * other[at], 0);
  return mean(Array.from({ length: 100 }, () => {
    const [one, other] = [centered(levels()), centered(levels())];
    return product(one, other) / Math.sqrt(product(one, one) * product(other, other));
  }));
}"""


@pytest.fixture
def page(open_shared):
    """Explore with the whole image and no pins."""
    page = open_shared(query="")
    page.mouse.move(0, 0)
    page.evaluate(f"{VIEW}.pins.read({{}}, {VIEW}.encoding); {VIEW}.activate(null); {VIEW}.stage.zoomAt(0)")
    return page


def test_two_places_show_different_maps_at_the_default_settings(open_page):
    page = open_page(query="")
    predictor = AttentionPredictor("embedded")
    values = (attention_value(predictor, photographs.image(name)) for name in EXAMPLES)
    correlations = [page.evaluate(CORRELATION, value) for value in values]
    assert np.mean(correlations) <= 0.4, correlations


@pytest.mark.parametrize(("width", "height"), [(640, 480), (300, 600), (1200, 150), (400, 400)])
def test_image_of_every_shape_is_visible_with_its_tiles(open_shared, image_file, width, height):
    file = image_file(f"{width}x{height}.png", width, height)
    for screen in ((1280, 800), (390, 844)):
        page = open_shared(query="", width=screen[0], height=screen[1])
        actions.send_images(page, file)
        actions.wait(page, f"{VIEW}.encoding.name === '{file.name}'")
        assert page.evaluate(INSIDE, STAGE)
        assert page.evaluate(INSIDE, TILE)
        box, cell = (page.locator(selector).bounding_box() for selector in (STAGE, "#explore .lab-cell"))
        spare = [cell[side] - box[side] for side in ("width", "height")]
        assert min(spare) == pytest.approx(0, abs=1), "the image touches two opposite edges"
        assert cell["height"] >= 500 or screen[0] < 500
        assert cell["y"] <= 120
        assert box["width"] / box["height"] == pytest.approx(width / height, rel=0.03)
        assert page.evaluate(actions.WIDER) <= 0


def _patch(page) -> list[int]:
    return page.evaluate(f"Object.values({VIEW}.hovered)")


def test_wheel_drag_and_keys_zoom_and_the_pointer_stays_right(page):
    box = page.locator(STAGE).bounding_box()
    at = (box["x"] + 0.8 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.move(*at)
    actions.wait(page, f"{VIEW}.hovered")
    patch = _patch(page)
    for _ in range(10):
        page.mouse.wheel(0, -100)
    actions.wait(page, f"{VIEW}.stage.window.zoom > 4")
    page.mouse.move(at[0] + 1, at[1])
    assert _patch(page) == patch
    page.mouse.click(*at)
    assert actions.state(page)["pins"] == [patch]
    marker = page.locator("#explore .lab-marker").first.bounding_box()
    columns, zoom = page.evaluate(f"[{VIEW}.encoding.columns, {VIEW}.stage.window.zoom]")
    half_patch = box["width"] * zoom / columns / 2
    assert abs(marker["x"] + marker["width"] / 2 - at[0]) <= half_patch + 1
    assert marker["width"] == pytest.approx(20, abs=1)
    page.mouse.down()
    page.mouse.move(at[0] - 120, at[1], steps=4)
    page.mouse.up()
    assert actions.state(page)["pins"] == [patch]  # a drag is no click
    page.mouse.move(at[0] - 120, at[1])
    actions.wait(page, f"{VIEW}.hovered")
    assert _patch(page) == patch  # the image moved with the pointer
    page.locator(STAGE).focus()
    zoom = page.evaluate(f"{VIEW}.stage.window.zoom")
    page.keyboard.press("+")
    assert page.evaluate(f"{VIEW}.stage.window.zoom") == pytest.approx(2 * zoom)
    for _ in range(30):  # the chosen patch stays visible
        page.keyboard.press("ArrowLeft")
    x, start, zoom = page.evaluate(
        f"(({{ cursor, window }}) => [cursor.x, window.x, window.zoom])({VIEW}.stage)"
    )
    assert start <= x <= start + 1 / zoom
    page.keyboard.press("0")
    assert page.evaluate(f"{VIEW}.stage.window.zoom") == 1


def test_double_click_zooms_and_leaves_no_pin(page):
    page.locator(STAGE).dblclick(position=actions.center(page, 3, 4))
    assert page.evaluate(f"{VIEW}.stage.window.zoom") == 2
    assert actions.state(page)["pins"] == []
    page.get_by_role("button", name="Show the whole image").click()
    assert page.evaluate(f"{VIEW}.stage.window.zoom") == 1
    assert actions.state(page)["pins"] == []


def test_pinch_zooms_the_stage_and_not_the_page(open_page):
    page = open_page(query="", width=390, height=844, has_touch=True, is_mobile=True)
    box = page.locator(STAGE).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    fingers = page.context.new_cdp_session(page)
    for kind, reach in (("touchStart", 20), *(("touchMove", 20 + 10 * step) for step in range(1, 5))):
        points = [{"x": x - reach, "y": y, "id": 0}, {"x": x + reach, "y": y, "id": 1}]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    fingers.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert page.evaluate(f"{VIEW}.stage.window.zoom") == pytest.approx(3, rel=0.2)
    assert page.evaluate("visualViewport.scale") == 1
    assert actions.state(page)["pins"] == []


@pytest.mark.parametrize("layer", ["light", "heat"])
def test_mass_moves_the_contour_of_the_mask(page, layer):
    page.locator(f"#layer label:has(input[value={layer}])").click()
    page.wait_for_selector(f"#explore [data-layer={layer}]")
    page.evaluate(f"{VIEW}.set({{ outline: true }})")
    paths = []
    for mass in (30, 80):
        actions.slide(page, "mass", mass)
        actions.wait(page, f"{VIEW}.settings.mass === {mass}")
        paths.append(page.locator(f"{STAGE} svg path").first.get_attribute("d"))
    assert paths[0] != paths[1]
    assert all(paths)


def test_back_returns_to_the_tab_before_and_keeps_the_settings(open_page):
    page = open_page(query="?tab=explore")
    page.get_by_role("tab", name="Segment").click()
    page.wait_for_selector("#segment .lab-view[data-token]")
    page.get_by_role("tab", name="Match").click()
    page.wait_for_selector("#match .lab-view[data-token]")
    page.go_back()
    page.wait_for_selector("#tabs [role=tab][aria-selected=true]:has-text('Segment')")
    page.go_back()
    page.wait_for_selector("#tabs [role=tab][aria-selected=true]:has-text('Explore')")
    actions.slide(page, "mass", 35)
    actions.wait(page, "location.search.includes('mass=35')")
    page.go_forward()
    page.wait_for_selector("#tabs [role=tab][aria-selected=true]:has-text('Segment')")
    actions.wait(page, "location.search.includes('tab=segment') && location.search.includes('mass=35')")
