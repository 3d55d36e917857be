"""Class map in a real browser: every way to move, find, choose and place."""

import pytest
from playwright.sync_api import expect

from app.class_maps import SHIPPED
from dino_model.class_map import files as class_map_files

NAME = "caltech101"
VIEW = "lab('class-map')"
READY = "#class-map .lab-view[data-token=kitten]"


@pytest.fixture(scope="module")
def drawn():
    """The map that the page shows first."""
    return class_map_files.read(SHIPPED / NAME)


@pytest.fixture(scope="module")
def tab(open_shared):
    """The tab with the example placed."""
    return open_shared(query="?tab=class-map", ready=READY)


@pytest.fixture
def board(tab):
    """The tab, which shows all classes without a selection."""
    tab.locator("#strip .gallery-item").first.click()
    tab.wait_for_selector(READY, timeout=60_000)
    tab.evaluate(f"() => {{ const view = {VIEW}; view.hover(null); view.choose(null); view.fit(); }}")
    return tab


def state(page, what: str):
    """Something of the view, as plain data."""
    return page.evaluate(f"() => {{ const view = {VIEW}; return {what}; }}")


def place_of(page, index: int) -> dict[str, float]:
    return state(page, f"view.at(view.points[{index}])")


def index_of(drawn, key: str) -> int:
    return [point.key for point in drawn.classes].index(key)


def neighbors(page) -> list[str]:
    return page.locator(".map-chosen li button > span:not(.lab-soft)").all_inner_texts()


def expected_neighbors(drawn, index: int) -> list[str]:
    return [drawn.classes[other].name for other, _ in drawn.classes[index].neighbors]


def test_map_shows_all_classes_and_its_quality(board, drawn, lab):
    assert state(board, "view.points.length") == len(drawn.classes)
    assert str(drawn.overlap) in board.locator("#tabs .prose.facts").locator("visible=true").inner_text()
    places = [place_of(board, index) for index in range(len(drawn.classes))]
    box = board.locator("#class-map .map-plot").bounding_box()
    assert all(0 < place["x"] < box["width"] and 0 < place["y"] < box["height"] for place in places)
    lab.screenshot(board, "class-map")


def test_pointing_names_a_class_and_a_click_lists_its_neighbors(board, drawn):
    index = index_of(drawn, "accordion")
    canvas = board.locator("#class-map .map-plot")
    canvas.hover(position=place_of(board, index))
    expect(board.locator(".map-readout")).to_have_text("accordion: tool, device, 55 images")
    canvas.click(position=place_of(board, index))
    assert neighbors(board) == expected_neighbors(drawn, index)
    distance = board.locator(".map-chosen li button .lab-soft").first.inner_text()
    assert distance == f"{drawn.classes[index].neighbors[0][1]:.3f}"
    board.locator(".map-chosen li button").first.click()
    nearest = drawn.classes[index].neighbors[0][0]
    assert board.locator(".map-chosen h3").inner_text() == drawn.classes[nearest].name
    board.locator("#class-map").get_by_role("button", name="Close").click()
    assert board.locator(".map-chosen").is_hidden()


def test_search_finds_classes_by_part_of_a_name_or_group(board):
    search = board.get_by_label("Find a class or group")
    search.click()
    search.press_sequentially("CROCO")
    options = board.get_by_role("option")
    expect(options).to_contain_text(
        ["crocodile · fish, reptile, amphibian", "crocodile, head · fish, reptile, amphibian"]
    )
    options.first.click()
    expect(board.locator(".map-chosen h3")).to_have_text("crocodile")


def test_wheel_and_buttons_zoom_and_dragging_pans(board):
    box = board.locator("#class-map .map-plot").bounding_box()
    before = state(board, "view.view")
    fixed = {"x": 200, "y": 150}
    point = [(fixed["x"] - before["left"]) / before["scale"], (before["top"] - fixed["y"]) / before["scale"]]
    board.mouse.move(box["x"] + fixed["x"], box["y"] + fixed["y"])
    board.mouse.wheel(0, -400)
    board.wait_for_function(f"(scale) => {VIEW}.view.scale > scale", arg=before["scale"])
    assert state(board, f"view.at({{x: {point[0]}, y: {point[1]}}})") == pytest.approx(fixed, abs=0.5)
    zoomed = state(board, "view.view")
    board.mouse.down()
    board.mouse.move(box["x"] + 260, box["y"] + 190, steps=4)
    board.mouse.up()
    moved = state(board, "view.view")
    assert (moved["left"] - zoomed["left"], moved["top"] - zoomed["top"]) == pytest.approx((60, 40), abs=1)
    assert board.locator(".map-chosen").is_hidden()  # a drag selects nothing
    board.get_by_role("button", name="Show all").locator("visible=true").first.click()
    assert state(board, "view.view.scale") == pytest.approx(before["scale"])


def test_keyboard_moves_selects_zooms_and_clears(board, drawn):
    board.locator("#class-map .map-plot").focus()
    board.keyboard.press("ArrowRight")
    first = state(board, "view.hovered")
    board.keyboard.press("ArrowRight")
    second = state(board, "view.hovered")
    assert place_of(board, second)["x"] > place_of(board, first)["x"]
    assert drawn.classes[second].name in board.locator("#class-map .lab-spoken").inner_text()
    board.keyboard.press("Enter")
    assert neighbors(board) == expected_neighbors(drawn, second)
    scale = state(board, "view.view.scale")
    board.keyboard.press("+")
    assert state(board, "view.view.scale") > scale
    board.keyboard.press("0")
    assert state(board, "view.view.scale") == pytest.approx(scale)
    board.keyboard.press("Escape")
    assert board.locator(".map-chosen").is_hidden()


def test_image_of_the_start_is_placed_without_a_selection(open_page):
    page = open_page(query="?tab=class-map", ready=READY)
    assert page.locator(".map-chosen").is_hidden()
    assert not any(state(page, "view.points.map((_, index) => view.faint(index))"))  # nobody chose kitten


def test_chosen_image_is_placed_at_the_mean_of_its_neighbors(board, lab):
    page = board
    page.locator("#strip .gallery-item").nth(2).click()
    page.wait_for_selector("#class-map .lab-view[data-token=komodo]", timeout=60_000)
    assert "At the mean position of its 10 nearest classes" in page.locator(".map-chosen p").inner_text()
    assert sum(state(page, "view.points.map((_, index) => view.faint(index))")) == 101 - 10
    placed = state(page, "view.placed")
    for axis in ("x", "y"):
        values = state(page, f"view.neighbors.map((index) => view.points[index].{axis})")
        assert placed[axis] == pytest.approx(sum(values) / 10)
    lab.screenshot(page, "class-map-placed")
