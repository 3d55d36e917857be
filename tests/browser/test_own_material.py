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


def test_remove_all_and_switch_for_shared_computers_leave_nothing(page, image_file):
    page.set_input_files(actions.FILE, image_file("one.png"))
    _shows(page, "one.png")
    page.locator("#images summary").click()
    page.get_by_label("Keep in this browser").uncheck()
    page.set_input_files(actions.FILE, image_file("two.png", seed=2))
    _shows(page, "two.png")
    page.reload()
    page.wait_for_selector("#explore [data-token]")
    page.wait_for_function("() => !viewOf('images').keep.checked")
    assert _own(page) == []
    page.locator("#images summary").click()
    page.get_by_label("Keep in this browser").check()
    page.set_input_files(actions.FILE, image_file("three.png", seed=3))
    _shows(page, "three.png")
    page.locator("#images").get_by_role("button", name="Remove all").click()
    _shows(page, "sheep")
    assert _own(page) == []


def test_dropped_image_is_shown_before_the_server_has_it_and_can_be_canceled(page, image_file):
    held = []
    page.route("**/gradio_api/upload*", lambda route: held.append(route))
    page.set_input_files(actions.FILE, image_file("large.png", 900, 300))
    source = "document.querySelector('#explore .lab-stage img')"
    actions.wait(page, f"{source}.src.startsWith('blob:') && {source}.naturalWidth === 900")
    stage = page.locator("#explore .lab-image")
    assert stage.evaluate("(image) => getComputedStyle(image).filter") == "none"  # no map lies over it
    assert page.locator("#explore .lab-bottom").is_hidden()  # its words are those of the image before
    page.locator("#explore .lab-busy").get_by_role("button", name="Cancel").click()
    page.get_by_text("large.png was not sent").first.wait_for()
    actions.wait(page, f"{source}.src.endsWith('sheep.jpg') && {VIEW}.stage.open")
    assert _own(page) == []
    assert page.locator("#explore .lab-bottom").is_visible()


def test_camera_ends_when_another_tab_is_opened(page):
    page.get_by_role("button", name="Camera").click()
    page.wait_for_selector("#explore [data-token^=camera]")
    page.get_by_role("tab", name="Segment").click()
    expect(page.locator("#images .rail-camera").first).to_have_attribute("aria-pressed", "false")


def test_image_that_takes_long_does_not_hold_up_the_next(page, image_file):
    """The arrays of the first image never come; the next image is shown, and its request is ended."""
    page.route("**/arrays/*kitten*/**", lambda route: None)
    page.locator("#images button:has(img[src*=kitten])").click()
    actions.wait(page, "document.querySelector('#explore .lab-stage img').src.includes('kitten')")
    page.locator("#images button:has(img[src*=komodo])").click()
    _shows(page, "komodo")
    assert page.locator("#explore .lab-busy").is_hidden()


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
