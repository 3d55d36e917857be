"""What is on the screen is true although answers are late, fail, or come in another order."""

import contextlib
import re
from typing import Any

import pytest
from playwright.sync_api import Error

VIEW = "lab('explore')"
JOIN = "**/gradio_api/queue/join*"


class Held:
    """Requests that are kept back until a test releases them, in an order of its own."""

    def __init__(self, page: Any, address: Any) -> None:
        self.page, self.waiting = page, []
        page.route(address, lambda route: self.waiting.append(route))

    def wait_for(self, count: int) -> None:
        for _ in range(300):
            if len(self.waiting) >= count:
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"{len(self.waiting)} requests came, {count} were expected")

    def release(self, *order: int) -> None:
        for index in order:
            with contextlib.suppress(Error):
                self.waiting[index].fulfill(response=self.waiting[index].fetch(timeout=60_000))


def _example(page: Any, name: str) -> None:
    page.locator(f"#strip button:has(img[src*='{name}'])").click()


def _shows(page: Any, **value: Any) -> None:
    """Wait until Explore shows this, and see that it stays."""
    script = f"(value) => Object.entries(value).every(([key, one]) => {VIEW}.encoding.value[key] === one)"
    page.wait_for_function(script, arg=value, timeout=60_000)
    page.wait_for_timeout(700)
    assert page.evaluate(script, value)


def test_quick_choices_of_examples_end_on_the_last(page):
    for name in ("sheep", "komodo", "red_pyramid", "polar_bear", "owl"):
        _example(page, name)
    _shows(page, photo="owl")
    assert "photo=owl" in page.url


def test_late_answer_of_a_model_is_not_credited_to_the_next(page, lab):
    held = Held(page, JOIN)
    lab.pick(page, "model", "embedded · trained by this project")
    held.wait_for(1)
    page.unroute(JOIN)
    lab.pick(page, "model", "random:embedded · the same network, untrained")
    held.release(0)
    _shows(page, model="random:embedded")
    assert "random:embedded" in page.locator("#explore .lab-facts").text_content()


def test_blocks_that_come_in_another_order_end_on_the_last_chosen(page, lab):
    held = Held(page, re.compile(r"/blocks/\d+$"))
    for index, block in enumerate((2, 5, 8), 1):
        lab.slide(page, "block", block)
        held.wait_for(index)
    held.release(2, 1, 0)
    page.wait_for_selector("#explore [data-block='7']", timeout=60_000)
    page.wait_for_timeout(300)
    assert page.evaluate(f"{VIEW}.arrays.number") == 7


def test_dragging_the_slider_requests_only_the_last_block(page):
    asked = []
    page.on("request", lambda request: "/blocks/" in request.url and asked.append(request.url[-2:]))
    page.evaluate(
        """() => { const slider = document.querySelector("#block input[type=range]");
          for (const block of [11, 10, 9, 8, 7, 6]) {
            slider.value = block;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
          } }"""
    )
    page.wait_for_selector("#explore [data-block='5']", timeout=60_000)
    assert asked == ["/5"]


def test_image_seen_before_is_not_fetched_again(page):
    _example(page, "sheep")
    _shows(page, photo="sheep")
    asked = []
    page.on("request", lambda request: "/arrays/" in request.url and asked.append(request.url))
    _example(page, "kitten")
    _shows(page, photo="kitten")
    assert asked == []


def test_refused_resolution_gives_way_to_what_is_shown(page, lab, picture):
    lab.send_images(page, picture("ribbon.png", 1000, 64))
    shown = lab.state(page)
    assert shown["name"] == "ribbon.png"  # 3,052 patches at 224, 25,000 at 640: more than the 8,192 allowed
    lab.pick(page, "size", "640")
    assert "choose a lower resolution" in lab.toast(page)
    page.wait_for_function("() => document.querySelector('#size input').value === '224'")
    assert lab.state(page)["token"] == shown["token"]


def test_failed_block_says_so_and_the_slider_returns(page, lab):
    page.route(
        re.compile(r"/blocks/3$"),
        lambda route: route.fulfill(status=503, content_type="text/plain", body="Not now."),
    )
    lab.slide(page, "block", 4)
    page.get_by_text("Not now.").wait_for()
    page.wait_for_function("() => document.querySelector('#block input[type=range]').value === '12'")
    assert page.evaluate(f"{VIEW}.arrays.number") == 11


def test_address_restores_image_model_and_settings(open_page, lab):
    question = "?photo=owl&model=random:embedded&size=336&quantity=logits&block=3"
    page = open_page(query=question + "&head=2&layer=heat&mass=40&patch=4,5&pins=1,2;4,5")
    _shows(page, photo="owl", model="random:embedded", size=336)
    state = page.evaluate(f"{VIEW}.state")
    assert {**state, "quantity": "logits", "block": 3, "head": "2", "layer": "heat", "mass": 40} == state
    assert [(pin["row"], pin["column"]) for pin in lab.state(page)["pins"]] == [(1, 2), (4, 5)]
    assert page.locator("#block input[type=range]").input_value() == "3"
    assert page.locator("#quantity input:checked").input_value() == "logits"
    page.reload()
    page.wait_for_selector("#explore [data-token]")
    _shows(page, photo="owl", model="random:embedded", size=336)


@pytest.mark.parametrize("query", ["?photo=nothing&size=9999&block=99", "?model=/etc/passwd"])
def test_address_of_what_is_not_there_shows_the_start(open_page, query):
    page = open_page(query=query)
    page.wait_for_timeout(500)
    _shows(page, photo="kitten", size=224)


def test_readout_is_spoken_once_the_pointer_rests(page):
    page.wait_for_function(f"() => {VIEW}.spoken.textContent")
    before, after = page.evaluate(
        f"""() => {{
          const view = {VIEW}, before = view.spoken.textContent;
          for (let column = 2; column < 8; column++) view.point(view.encoding.placeOf({{ row: 3, column }}));
          return [before, view.spoken.textContent];
        }}"""
    )
    assert before == after
    page.wait_for_function(f"() => {VIEW}.spoken.textContent.includes('column 7')")


def test_upload_of_two_images_adds_both_to_the_strip_of_this_visitor(page, open_page, lab, picture):
    other = open_page()
    lab.send_images(page, picture("one.png"), picture("two.png", seed=2))
    assert lab.state(page)["name"] == "one.png"
    assert page.locator("#strip button").count() == 10
    page.locator("#strip button").nth(1).click()
    _shows(page, name="two.png")
    assert "photo=" not in page.url  # an own image is in no address
    assert other.locator("#strip button").count() == 8
    assert lab.state(other)["photo"] == "kitten"


def test_image_can_be_dropped_and_pasted(page, lab, picture):
    for way in ("drop", "paste"):
        content = list(picture(f"{way}.png", seed=len(way)).read_bytes())
        page.evaluate("delete document.querySelector('#explore .lab-view').dataset.token")
        page.evaluate(
            """([bytes, way]) => {
              const data = new DataTransfer();
              data.items.add(new File([new Uint8Array(bytes)], `${way}.png`, { type: "image/png" }));
              const options = { bubbles: true, cancelable: true };
              window.dispatchEvent(way === "drop" ? new DragEvent("drop", { dataTransfer: data, ...options })
                : new ClipboardEvent("paste", { clipboardData: data, ...options }));
            }""",
            [content, way],
        )
        page.wait_for_selector("#explore [data-token]", timeout=60_000)
        assert lab.state(page)["name"] == f"{way}.png"


def test_markup_in_a_file_name_stays_text_and_a_bad_file_gets_one_sentence(page, lab, picture):
    file = picture("a.png")
    file = file.rename(file.with_name("<img src=x onerror=alert(1)>.png"))
    lab.send_images(page, file)
    shown = lab.state(page)
    assert page.locator("#strip img[src='x']").count() == 0
    assert "onerror=alert(1)" in shown["name"]
    bad = file.with_name("<img src=x>.png")
    bad.write_bytes(b"no image")
    page.set_input_files(lab.FILE, bad)
    assert "not an image" in lab.toast(page)
    assert lab.state(page)["token"] == shown["token"]
