"""Class map in a real browser: every way to move, find, choose and place."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from app.class_maps import SHIPPED, content
from dino_model.class_map import files as class_map_files

AXE = Path(__file__).parent / "axe" / "axe.min.js"
NAME = "caltech101"
BOARD = "document.querySelector('.map').tab"


@pytest.fixture(scope="module")
def drawn():
    """The map that the page shows first."""
    return class_map_files.read(SHIPPED / NAME)


def show(page):
    """Class map, with the example placed and let go of."""
    page.get_by_role("tab", name="Class map").click()
    page.wait_for_selector(f".map[data-map={NAME}][data-placed]", timeout=60_000)
    page.get_by_role("button", name="Let go").click()
    return page


@pytest.fixture
def board(page):
    return show(page)


def state(page, what: str):
    """Something of the scatter, as plain data."""
    return page.evaluate(f"() => {{ const {{ scatter }} = {BOARD}; return {what}; }}")


def place_of(page, index: int) -> dict[str, float]:
    """Where a class lies on the canvas, in CSS pixels."""
    return state(page, f"scatter.at(scatter.points[{index}])")


def index_of(drawn, key: str) -> int:
    return [point.key for point in drawn.classes].index(key)


def neighbours(page) -> list[str]:
    return page.locator(".map-neighbours .map-class > span:not(.map-distance)").all_inner_texts()


def expected_neighbours(drawn, index: int) -> list[str]:
    return [drawn.classes[other].name for other, _ in drawn.classes[index].neighbours]


def test_map_opens_with_all_classes_and_its_quality(board, drawn, lab):
    assert state(board, "scatter.points.length") == len(drawn.classes)
    assert str(drawn.overlap) in board.locator(".map .lab-facts").inner_text()
    places = [place_of(board, index) for index in range(len(drawn.classes))]
    box = board.locator(".map canvas").bounding_box()
    assert all(0 < place["x"] < box["width"] and 0 < place["y"] < box["height"] for place in places)
    lab.screenshot(board, "class-map")


def test_pointing_names_a_class_and_a_click_lists_its_neighbours(board, drawn):
    index = index_of(drawn, "accordion")
    canvas = board.locator(".map canvas")
    canvas.hover(position=place_of(board, index))
    tip = board.locator(".map-tip")
    tip.wait_for()
    assert tip.locator("strong").inner_text() == "accordion"
    assert "tool, device, 55 pictures" in tip.inner_text()
    canvas.click(position=place_of(board, index))
    assert neighbours(board) == expected_neighbours(drawn, index)
    distance = board.locator(".map-neighbours .map-distance").first.inner_text()
    assert distance == f"{drawn.classes[index].neighbours[0][1]:.3f}"
    board.get_by_role("button", name="Let go").click()
    assert board.locator(".map-chosen").is_hidden()


def test_thumbnail_of_a_class_is_shown_where_it_is_pointed_at(open_page, drawn, tmp_path):
    colors = [(2 * index, 255 - 2 * index, 90) for index in range(len(drawn.classes))]
    pictures = [np.full((64, 64, 3), color, np.uint8) for color in colors]
    class_map_files.write(tmp_path, drawn, pictures)
    page = open_page()
    page.route("**/api/maps/*/*.*", lambda route: _fulfil(route, tmp_path, drawn))
    show(page)
    for index in (0, 57, len(drawn.classes) - 1):
        page.locator(".map canvas").hover(position=place_of(page, index))
        thumbnail = page.locator(".map-tip .map-thumbnail")
        expect(thumbnail).to_be_visible()
        seen = np.asarray(Image.open(io.BytesIO(thumbnail.screenshot())).convert("RGB"))
        height, width, _ = seen.shape
        middle = seen[height // 2, width // 2].astype(int)
        assert np.abs(middle - colors[index]).max() <= 8  # WebP loses a little


def _fulfil(route, folder: Path, drawn):
    """Answer for the server with the map in a folder."""
    file = folder / route.request.url.rpartition("/")[2]
    if file.name != class_map_files.JSON:
        return route.fulfill(path=file)
    told = json.loads(file.read_text()) | {"features": None, "said": content(drawn)["said"]}
    return route.fulfill(json=told)


def test_neighbours_lead_on(board, drawn):
    board.locator(".map canvas").click(position=place_of(board, index_of(drawn, "accordion")))
    board.locator(".map-neighbours button").first.click()
    nearest = drawn.classes[index_of(drawn, "accordion")].neighbours[0][0]
    assert board.locator(".map-chosen h2").inner_text() == drawn.classes[nearest].name
    assert neighbours(board) == expected_neighbours(drawn, nearest)


def test_search_finds_by_part_of_a_name(board, drawn):
    board.get_by_label("Find a class or a group").fill("CROCO")
    assert board.locator(".map-found").inner_text() == "2 of 101 classes"
    assert board.locator(".map-matches button").all_inner_texts() == ["crocodile", "crocodile, head"]
    board.keyboard.press("Enter")
    assert board.locator(".map-chosen h2").inner_text() == "crocodile"
    board.get_by_label("Find a class or a group").fill("<b>no such class")
    assert board.locator(".map-found").inner_text() == "0 of 101 classes"


def test_legend_hides_groups_and_shows_them_again(board, drawn):
    index = index_of(drawn, "airplanes")
    assert state(board, f"scatter.visible({index})")
    toggle = board.locator(".map-group", has_text="vehicle")
    assert toggle.locator("path").count() == 1  # a shape beside the colour
    toggle.click()
    assert toggle.get_attribute("aria-pressed") == "false"
    assert not state(board, f"scatter.visible({index})")
    board.get_by_role("button", name="Show all").last.click()
    assert state(board, f"scatter.visible({index})")


def test_wheel_and_buttons_zoom_and_dragging_moves(board):
    canvas = board.locator(".map canvas")
    box = canvas.bounding_box()
    before = state(board, "scatter.view")
    fixed = {"x": 200, "y": 150}
    point = [(fixed["x"] - before["left"]) / before["scale"], (before["top"] - fixed["y"]) / before["scale"]]
    board.mouse.move(box["x"] + fixed["x"], box["y"] + fixed["y"])
    board.mouse.wheel(0, -400)
    board.wait_for_function(f"(scale) => {BOARD}.scatter.view.scale > scale", arg=before["scale"])
    there = state(board, f"scatter.at({{x: {point[0]}, y: {point[1]}}})")
    assert there == pytest.approx(fixed, abs=0.5)  # what lies under the pointer stays there
    zoomed = state(board, "scatter.view")
    board.mouse.down()
    board.mouse.move(box["x"] + 260, box["y"] + 190, steps=4)
    board.mouse.up()
    moved = state(board, "scatter.view")
    assert moved["left"] - zoomed["left"] == pytest.approx(60, abs=1)
    assert moved["top"] - zoomed["top"] == pytest.approx(40, abs=1)
    assert board.locator(".map-chosen").is_hidden()  # a drag chooses nothing
    board.get_by_role("button", name="Zoom in").click()
    assert state(board, "scatter.view.scale") == pytest.approx(1.6 * moved["scale"])
    board.locator("[data-zoom=all]").click()
    assert state(board, "scatter.view.scale") == pytest.approx(before["scale"])


def test_keyboard_alone_walks_chooses_zooms_and_lets_go(board, drawn):
    board.locator(".map canvas").focus()
    board.keyboard.press("ArrowRight")
    first = state(board, "scatter.hovered")
    board.keyboard.press("ArrowRight")
    second = state(board, "scatter.hovered")
    assert place_of(board, second)["x"] > place_of(board, first)["x"]
    assert drawn.classes[second].name in board.evaluate("page.lab.sentence")
    board.keyboard.press("Enter")
    assert neighbours(board) == expected_neighbours(drawn, second)
    scale = state(board, "scatter.view.scale")
    board.keyboard.press("+")
    assert state(board, "scatter.view.scale") > scale
    board.keyboard.press("0")
    assert state(board, "scatter.view.scale") == pytest.approx(scale)
    board.keyboard.press("Escape")
    assert board.locator(".map-chosen").is_hidden()


def test_the_photograph_that_nobody_chose_takes_no_colour_from_the_map(page, lab):
    page.get_by_role("tab", name="Class map").click()
    page.wait_for_selector(f".map[data-map={NAME}][data-placed=kitten]", timeout=60_000)
    assert state(page, "scatter.shown.placed.label") == "photograph: kitten"
    assert not any(state(page, "scatter.points.map((_, index) => scatter.faint(index))"))
    page.locator("[data-example=komodo]").click()
    page.wait_for_selector(".map[data-placed=komodo]", timeout=60_000)
    assert sum(state(page, "scatter.points.map((_, index) => scatter.faint(index))")) == 101 - 10


def test_example_is_placed_and_labelled_as_placed(board, lab):
    board.locator("[data-example=komodo]").click()
    board.wait_for_selector(".map[data-placed=komodo]", timeout=60_000)
    words = board.locator(".map-about").inner_text()
    assert "Placed at the mean of its 10 nearest classes; t-SNE has no transform." in words
    assert len(neighbours(board)) == 10
    placed = state(board, "scatter.shown.placed")
    mean = state(
        board,
        """["x", "y"].map((axis) => scatter.shown.neighbours.map((index) => scatter.points[index][axis])
          .reduce((sum, value) => sum + value, 0) / 10)""",
    )
    assert [placed["x"], placed["y"]] == pytest.approx(mean)
    lab.screenshot(board, "class-map-placed")


def test_own_file_is_placed_and_a_broken_one_gets_a_sentence(board, picture, tmp_path):
    board.set_input_files("#header .lab-choose input", picture("<i>mine.png"))
    board.wait_for_selector(".map:not([data-placed=kitten])", timeout=60_000)
    assert "mine" in board.locator(".map-chosen h2").inner_text()
    assert board.locator(".map-chosen h2 i").count() == 0
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    board.set_input_files("#header .lab-choose input", tmp_path / "broken.jpg")
    alert = board.locator("#messages")
    alert.wait_for(timeout=60_000)
    assert alert.inner_text().startswith("This file is not a picture of a known format")


def test_table_is_the_map(board, drawn):
    with board.expect_download() as download:
        board.locator(".map-downloads a").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert [row["name"] for row in rows] == [point.name for point in drawn.classes]


def test_two_fingers_zoom_on_a_phone(open_page, lab):
    page = show(open_page(has_touch=True))
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("() => document.documentElement.scrollWidth <= 390")
    page.locator(".map canvas").scroll_into_view_if_needed()
    box = page.locator(".map canvas").bounding_box()
    before = state(page, "scatter.view.scale")
    session = page.context.new_cdp_session(page)
    y = box["y"] + box["height"] / 2

    def touch(kind: str, *places: float) -> None:
        points = [{"x": x, "y": y, "id": number} for number, x in enumerate(places)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 150, 210)
    for step in range(1, 7):
        touch("touchMove", 150 - 10 * step, 210 + 10 * step)
    touch("touchEnd")
    page.wait_for_function(f"(scale) => {BOARD}.scatter.view.scale > 2 * scale", arg=before)
    page.locator("[data-zoom=all]").click()
    lab.screenshot(page, "class-map-phone")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_violates_wcag(open_page, lab, scheme: str):
    page = show(open_page(color_scheme=scheme))
    page.get_by_label("Find a class or a group").fill("fl")
    page.locator(".map-matches button").first.click()
    page.locator(".map-group").first.click()
    page.evaluate(AXE.read_text())
    found = page.evaluate(
        """async () => (await axe.run("#class-map", { runOnly: ["wcag2a", "wcag2aa", "wcag21aa"] }))
          .violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])"""
    )
    assert found == [], json.dumps(found, indent=2)
    lab.screenshot(page, f"class-map-{scheme}")
