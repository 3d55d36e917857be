"""The tab Learn: every lesson sets the view, asks, and answers with numbers of the image shown."""

import numpy as np
import pytest
from playwright.sync_api import expect

from app.lessons import lessons
from dino_model import photographs
from dino_model.predictor import AttentionPredictor

VIEW = "lab('learn-view')"


@pytest.fixture(scope="module")
def tour(browser, address):
    """The page with the tab open; each test goes to the lesson that it needs."""
    context, errors = browser.new_context(viewport={"width": 1280, "height": 900}), []
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    page.get_by_role("tab", name="Learn").click()
    page.wait_for_selector("#learn-view .lab-view[data-token]", timeout=60_000)
    yield page
    context.close()
    assert errors == []


@pytest.fixture(scope="module")
def predictor(lab) -> AttentionPredictor:
    """The embedded model with the image of the tab."""
    library = AttentionPredictor("embedded", size=lab.size, precision="fp32", device="cpu")
    library.set_image(photographs.picture("kitten"))
    return library


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


def test_view_shows_the_librarys_maps(tour, predictor):
    _go(tour, 1)
    maps = tour.evaluate(f"{VIEW}.mapsOf(null).heads.map((map) => [...map])")
    expected = predictor.cls_attention()
    np.testing.assert_allclose(np.reshape(maps, expected.shape), expected, atol=1e-3)


def test_random_lesson_switches_the_weights(tour):
    _go(tour, 6)
    tour.get_by_text("Random", exact=True).last.click()
    tour.wait_for_function(f"() => {VIEW}.encoding.value.model === 'random:embedded'", timeout=60_000)
