"""A user's own images and clips: kept by the browser, sent again when forgotten, removed everywhere."""

import pytest
from playwright.sync_api import expect

from tests.app.conftest import write_video
from tests.browser import actions

VIEW = actions.EXPLORER


@pytest.fixture
def page(open_page):
    """A page in a browser of its own."""
    return open_page(query="", locale="en-US")


def _shows(page, name: str) -> None:
    actions.wait(page, f"{VIEW}?.encoding?.value.name === '{name}' && {VIEW}.stage.open")


def _own(page) -> list[str]:
    return page.locator("#images [data-id] > button:first-child").evaluate_all(
        "(buttons) => buttons.map(({ title }) => title)"
    )


def test_own_images_survive_a_reload_and_a_server_that_has_forgotten_them(page, open_page, image_file):
    page.set_input_files(actions.FILE, [image_file("one.png"), image_file("two.png", seed=2)])
    _shows(page, "one.png")
    assert "image=" not in page.url  # an own image is in no address
    assert _own(open_page(query="", locale="en-GB")) == []  # another user
    token = actions.state(page)["token"]
    assert _own(page) == ["one.png", "two.png"]
    page.evaluate("viewOf('images').server.forget({ kind: 'image', name: viewOf('images').chosen })")
    page.reload()
    page.wait_for_selector("#explore [data-token]")
    _shows(page, "one.png")  # sent again
    assert actions.state(page)["token"] == token
    assert _own(page) == ["one.png", "two.png"]
    assert page.locator("#images [data-id] img").first.evaluate("(image) => image.naturalWidth") == 96
    page.locator("#images [data-id] > button").nth(0).hover()
    page.get_by_role("button", name="Remove one.png").click()
    _shows(page, "sheep")
    page.reload()
    page.wait_for_selector("#explore [data-token]")
    expect(page.locator("#images [data-id]")).to_have_count(1)


def test_own_images_are_offered_by_match_and_own_clips_by_video(page, image_file, tmp_path):
    page.set_input_files(actions.FILE, image_file("one.png"))
    _shows(page, "one.png")
    page.get_by_role("tab", name="Match").click()
    page.wait_for_selector("#match [data-token]")
    page.locator("#seconds [data-id] > button").first.click()
    actions.wait(page, "viewOf('match').images[1]?.name === 'one.png'")
    page.get_by_role("tab", name="Video").click()
    page.wait_for_selector("#tracking [data-token]")
    page.set_input_files("#clips input[type=file]", write_video(tmp_path / "square.webm", 4))
    actions.wait(page, "viewOf('tracking').props.value.name === 'square.webm'")
    tile = page.locator("#clips [data-id] img")
    expect(tile).to_have_count(1)
    assert tile.evaluate("(image) => image.naturalWidth") == 96
    page.reload()
    page.wait_for_selector("#tracking [data-token]")
    actions.wait(page, "viewOf('tracking').props.value.name === 'square.webm'")
