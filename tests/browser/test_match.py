"""Match in a browser: similar patches of two images, as the package finds them."""

import pytest

from tests.browser import actions

READY = "#match .lab-view[data-token]"
VIEW = "viewOf('match')"
QUERY = "?tab=match&model=embedded"


@pytest.fixture
def tab(open_shared):
    """The tab with the example and its turned copy."""
    page = open_shared(query=QUERY, ready=READY)
    page.mouse.move(0, 0)
    return page


def _choose_second(page, option: str, name: str) -> None:
    page.locator(f"#seconds button[title^='{option}']").click()
    actions.wait(page, f"{VIEW}.shown.b.name === '{name}'")


def test_image_matches_its_turned_copy_and_a_smaller_ratio_keeps_fewer(tab):
    matches = tab.evaluate(f"{VIEW}.shown.matches")
    assert tab.locator("#match .lab-found").inner_text().startswith(f"{len(matches)} mutual nearest")
    assert tab.locator("#match .lab-lines .lab-mutual").count() == min(100, len(matches)) >= 10
    _, file = actions.export(tab, "match", "shown.svg")
    assert file.count(b"<line") == min(100, len(matches))
    tab.get_by_label("number input for Ratio to next best (%)").fill("80")
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    actions.wait(tab, f"{VIEW}.shown.ratio === 0.8")
    fewer = tab.evaluate(f"{VIEW}.shown.matches")
    assert len(fewer) < len(matches)
    assert all(match["ratio"] <= 0.8 for match in fewer)


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800)])
def test_link_opens_the_second_image_and_both_fill_their_cells(open_page, width, height):
    page = open_page(query=f"{QUERY}&second=owl", ready=READY, width=width, height=height)
    assert page.evaluate(f"{VIEW}.shown.b.name") == "owl"
    boxes = [page.locator("#match .lab-stage").nth(side).bounding_box() for side in (0, 1)]
    cells = [page.locator("#match .lab-cell").nth(side).bounding_box() for side in (0, 1)]
    for box, cell in zip(boxes, cells, strict=True):
        assert min(cell[side] - box[side] for side in ("width", "height")) == pytest.approx(0, abs=1)
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= height
    assert cells[0]["y"] < 120
    axis = "x" if width > 760 else "y"  # in a row, or on a phone one above the other
    assert cells[0][axis] < cells[1][axis]
    _choose_second(page, "Kitten", "kitten")
    actions.wait(page, "location.search.includes('second=kitten')")
