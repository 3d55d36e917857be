"""The tab Learn: every lesson sets the view, asks, and answers with numbers of the image shown."""

import pytest
from playwright.sync_api import expect

from app.lessons import lessons

VIEW = "lab('learn-view')"


@pytest.fixture(scope="module")
def tour(open_shared):
    """The page with the tab open; each test goes to the lesson that it needs."""
    return open_shared(query="?tab=learn", ready="#learn-view .lab-view[data-token]")


def _go(page, index: int) -> None:
    page.locator("#lesson label").nth(index).click()
    expect(page.locator("#lesson-body")).not_to_contain_text("…", timeout=60_000)
    title = lessons()[index].body.split("\n")[0].lstrip("# ")
    expect(page.locator("#lesson-body h3")).to_have_text(title, timeout=60_000)


def test_every_lesson_has_a_question_and_numbers(tour, lab):
    for index in range(len(lessons())):
        _go(tour, index)
        assert "?" in tour.locator("#lesson-body").inner_text()
        tour.locator("#lesson-text").get_by_role("button", name="Answer").click()
        expect(tour.locator("#lesson-answer")).to_be_visible()
        expect(tour.locator("#lesson-answer")).not_to_contain_text("…")
        lab.screenshot(tour, f"learn-{index + 1}")
    assert tour.locator("#learn-view").is_hidden()  # the curves replace it


def test_next_opens_the_following_lesson(tour):
    _go(tour, 0)
    tour.get_by_role("button", name="Next").click()
    expect(tour.locator("#lesson-body h3")).to_have_text("Attention heads", timeout=60_000)


def test_random_lesson_switches_the_weights(tour):
    _go(tour, 6)
    tour.wait_for_function(f"() => {VIEW}.encoding.value.model === 'embedded'", timeout=60_000)
    tour.get_by_text("Random", exact=True).last.click()
    tour.wait_for_function(f"() => {VIEW}.encoding.value.model === 'random:embedded'", timeout=60_000)
