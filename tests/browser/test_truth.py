"""The page shows the newest request although responses are late, fail, or come in another order."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser import actions
from tests.browser.conftest import serving_here

VIEW = actions.EXPLORER


@pytest.fixture
def page(open_shared):
    """A page with the first example and the last block; images of earlier tests stay in the rail."""
    page = open_shared()
    page.unroute_all()
    _example(page, "sheep")
    _shows(page, source="sheep")
    actions.choose_quantity(page, "attention")
    return page


def _example(page, name: str) -> None:
    page.locator(f"#images button:has(img[src*='{name}'])").click()


def _shows(page, **value) -> None:
    """Wait until Explore shows this."""
    script = f"(value) => Object.entries(value).every(([key, one]) => {VIEW}.encoding.value[key] === one)"
    page.wait_for_function(script, arg=value)


def _keeps(page, **value) -> None:
    """Wait until Explore shows this, and check that late responses do not change it."""
    _shows(page, **value)
    page.wait_for_timeout(500)
    actions.wait(page, "!document.querySelector('.pending')")
    _shows(page, **value)


def test_quick_choices_end_on_the_last(page):
    for name in ("owl", "komodo", "red_pyramid", "polar_bear", "kitten"):
        _example(page, name)
    _keeps(page, source="kitten")
    assert "image=kitten" in page.url


def test_refused_resolution_and_failed_block_return_to_what_is_shown(page, image_file):
    response = {"status": 503, "content_type": "text/plain", "body": "Not now."}
    page.route(
        re.compile(r"/blocks/3$"), lambda route: route.fulfill(**response)
    )  # the film gets none either
    actions.send_images(page, image_file("ribbon.png", 1000, 64))
    shown = actions.state(page)
    assert shown["name"] == "ribbon.png"  # 3,052 patches at 224, 25,000 at 640: more than the 8,192 allowed
    actions.pick(page, "size", "640 px")
    assert "choose resolution 336" in actions.message(page)
    actions.wait(page, "document.querySelector('#size input').value === '224 px'")
    assert actions.state(page)["token"] == shown["token"]
    assert page.locator("#image textarea, #image input").input_value().endswith("ribbon.png")
    actions.choose_block(page, 3)
    page.get_by_text("Not now.").wait_for()
    actions.wait(page, "document.querySelector('#explore-aside .lab-film :checked').value === '11'")
    assert page.evaluate(f"{VIEW}.arrays.number") == 11


def test_image_whose_maps_are_refused_is_shown_without_maps(page):
    response = {"status": 503, "content_type": "text/plain", "body": "Not now."}
    page.route("**/arrays/panda*/**", lambda route: route.fulfill(**response))
    _example(page, "panda")
    assert "Not now." in actions.message(page)
    stage = page.locator("#explore .lab-image")
    assert "panda" in stage.get_attribute("src")
    assert stage.evaluate("(image) => getComputedStyle(image).filter") == "none"  # no map lies over it
    assert page.locator("#explore .lab-bottom").is_hidden()  # its words are those of the image before


def test_address_restores_image_model_and_settings(open_page):
    query = "?image=owl&model=random:embedded&size=336&quantity=logits&block=3"
    page = open_page(query=query + "&head=2&layer=heat&mass=40&patch=4,5&pins=1,2;4,5")
    _shows(page, source="owl", model="random:embedded", size=336)
    settings = {"quantity": "logits", "block": 3, "head": "2", "layer": "heat", "mass": 40}
    assert settings.items() <= page.evaluate(f"{VIEW}.state").items()
    assert actions.state(page)["pins"] == [[1, 2], [4, 5]]
    assert page.locator("#explore-aside .lab-film :checked").input_value() == "2"
    page.locator("#more > button").click()
    assert page.locator(".of-attention input:checked").input_value() == "logits"
    page.reload()
    page.wait_for_selector("#explore [data-token]")
    _shows(page, source="owl", model="random:embedded", size=336)


def test_back_returns_to_the_tab_before_and_keeps_the_settings(open_page):
    selected = "#tabs [role=tab][aria-selected=true]:has-text('%s')"
    page = open_page(query="?tab=explore")
    page.get_by_role("tab", name="Segment").click()
    page.wait_for_selector("#segment .lab-view[data-token]")
    page.go_back()
    page.wait_for_selector(selected % "Explore")
    actions.slide(page, "mass", 35)
    actions.wait(page, "location.search.includes('mass=35')")
    page.go_forward()
    page.wait_for_selector(selected % "Segment")
    actions.wait(page, "location.search.includes('tab=segment') && location.search.includes('mass=35')")


def test_markup_in_a_file_name_stays_text_and_a_bad_file_gets_one_sentence(page, image_file):
    name = "<img src=x onerror=alert(1)>.png"
    file = image_file("a.png")
    actions.send_images(page, file.rename(file.with_name(name)))
    shown = actions.state(page)
    assert page.locator("#images img[src='x']").count() == 0
    assert "onerror=alert(1)" in shown["name"]
    file.write_bytes(b"no image")
    page.set_input_files(actions.FILE, file)
    page.wait_for_selector("#explore .lab-problem:has-text('not an image')")
    assert page.get_by_text("not an image").locator("visible=true").count() == 1
    assert actions.state(page)["token"] == shown["token"]


def test_lost_server_is_said_in_the_stage(open_page):
    with serving_here(model="embedded", size=64) as address:
        page = open_page(address=address)
    _example(page, "owl")
    expect(page.locator("#explore .lab-problem")).to_contain_text("server")
    assert page.locator(".toast-body:visible").count() == 0
    assert page.locator("#explore .lab-image").get_attribute("alt") == "Image sheep"
