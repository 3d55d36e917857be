"""Learn in a browser: every lesson sets the view and has values of the image shown."""

import pytest
from playwright.sync_api import expect

from app.tabs.learn import lessons
from tests.browser import actions


@pytest.fixture(scope="module")
def tab(open_shared):
    return open_shared(query="?tab=learn", ready="#learn-view .lab-view[data-token]")


def _go(page, index: int) -> None:
    page.locator("#lesson label").nth(index).click()
    expect(page.locator("#lesson-body")).not_to_contain_text("…")
    title = lessons()[index].body.split("\n")[0].lstrip("# ")
    expect(page.locator("#lesson-body h3")).to_have_text(title)


def test_every_lesson_has_settings_a_question_and_values(tab):
    actions.wait(tab, "viewOf('learn-view').settings.opacity === 0")  # of the first
    for index in range(len(lessons())):
        _go(tab, index)
        assert "?" in tab.locator("#lesson-body").inner_text()
        tab.get_by_role("button", name="Answer").click()
        expect(tab.locator("#lesson-answer")).to_be_visible()
        expect(tab.locator("#lesson-answer")).not_to_contain_text("…")
    assert tab.locator("#learn-view").is_hidden()  # the curves replace it
    _go(tab, 0)
    tab.get_by_role("button", name="Next").click()
    expect(tab.locator("#lesson-body h3")).to_have_text("Attention heads")


def test_lesson_on_random_weights_changes_the_model(tab):
    _go(tab, 6)
    actions.wait(tab, "viewOf('learn-view').encoding.value.model === 'embedded-dino'")
    tab.get_by_text("Random", exact=True).last.click()
    actions.wait(tab, "viewOf('learn-view').encoding.value.model === 'random:embedded'")
