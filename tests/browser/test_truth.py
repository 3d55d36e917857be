"""What is on the screen is true although answers are late, fail, or come in another order."""

import contextlib
import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from playwright.sync_api import Error, expect

EXPLORER = "document.querySelector('.explore').tab"


class Held:
    """Answers that are kept back until a test lets them go, in an order of its own."""

    def __init__(self, page: Any, address: str, asks: Any = lambda request: True) -> None:
        self.page, self.asks, self.waiting = page, asks, []
        page.route(address, self._take)

    def _take(self, route: Any) -> None:
        if self.asks(route.request):
            self.waiting.append(route)
        else:
            route.continue_()

    def wait_for(self, count: int) -> None:
        """Until so many questions have come."""
        for _ in range(300):
            if len(self.waiting) >= count:
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"{len(self.waiting)} questions came, {count} were expected")

    def release(self, *order: int) -> None:
        """Let the server answer them in this order; one that was given up meanwhile goes nowhere."""
        for index in order:
            with contextlib.suppress(Error):
                self.waiting[index].fulfill(response=self.waiting[index].fetch(timeout=60_000))


def _model(name: str):
    return lambda request: json.loads(request.post_data or "{}").get("model") == name


def _refuse(route: Any, sentence: str = "It cannot be had now.", status: int = 503) -> None:
    route.fulfill(status=status, json={"error": sentence})


def _messages(page: Any) -> str:
    return page.locator("#messages").inner_text() if page.locator("#messages").is_visible() else ""


# ---- late answers


def test_late_answer_of_a_model_is_not_credited_to_the_next(page, lab):
    held = Held(page, "**/api/encode")
    page.locator("#model").select_option("embedded")
    held.wait_for(1)
    page.locator("#model").select_option("random:embedded")
    held.wait_for(2)
    held.release(1, 0)
    page.wait_for_function(f"() => {EXPLORER}.encoding.model === 'random:embedded'", timeout=60_000)
    page.wait_for_timeout(500)
    assert page.evaluate(f"{EXPLORER}.encoding.model") == "random:embedded"
    assert page.locator("#model").input_value() == "random:embedded"
    assert "random:embedded" in page.locator(".explore .lab-facts").inner_text()


def test_picture_that_loads_is_shown_although_block_and_quantity_are_touched_meanwhile(page, lab):
    held = Held(page, "**/api/encode")
    page.get_by_role("button", name="Sheep").click()
    held.wait_for(1)
    lab.slide(page, "block", 4)
    page.locator("#explore label:has(input[value=key-cosine])").click()
    held.wait_for(2)
    held.release(*range(len(held.waiting)))
    page.wait_for_selector(".explore[data-quantity=key-cosine][data-block='3']", timeout=60_000)
    assert lab.state(page)["name"] == "sheep"


def test_blocks_that_come_in_another_order_end_on_the_last_asked_for(page, lab):
    held = Held(page, re.compile(r"/blocks/\d+$"))
    for index, block in enumerate((2, 5, 8), 1):
        lab.slide(page, "block", block)
        held.wait_for(index)
    held.release(2, 1, 0)
    page.wait_for_selector(".explore[data-block='7']", timeout=60_000)
    page.wait_for_timeout(300)
    assert page.evaluate(f"{EXPLORER}.viewer.arrays.number") == 7
    assert page.locator(".explore .lab-block output").inner_text() == "8 of 12"


def test_slider_that_passes_by_fetches_nothing(page, lab):
    asked = []
    page.on("request", lambda request: "/blocks/" in request.url and asked.append(request.url[-2:]))
    page.evaluate(
        """async () => { const slider = document.querySelector(".explore [name=block]");
          for (const block of [11, 10, 9, 8, 7, 6]) {
            slider.value = block;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
            await new Promise((passed) => setTimeout(passed, 10)); // time enough to ask, not to rest
          } }"""
    )
    page.wait_for_selector(".explore[data-block='5']", timeout=60_000)
    assert asked == ["/5"]


def test_learns_block_is_the_one_its_slider_names(open_page, lab):
    page = open_page(query="?tab=learn&step=6", ready=".tour[data-step=blocks]")
    held = Held(page, re.compile(r"/blocks/\d+$"))
    slider = page.locator(".tour [name=block]")
    slider.fill("3")
    held.wait_for(1)
    slider.fill("5")
    held.wait_for(2)
    held.release(1, 0)
    page.wait_for_selector(".tour[data-block='4']", timeout=60_000)
    page.wait_for_timeout(300)
    assert page.evaluate("document.querySelector('.tour').tab.viewer.arrays.number") == 4
    assert page.locator(".tour [data-control=block] output").inner_text() == "5 of 6"


def test_steps_of_the_tour_whose_answers_are_late_end_on_the_last(open_page):
    page = open_page(query="?tab=learn", ready=".tour[data-step=patches]")
    held = Held(page, "**/api/encode")
    page.get_by_role("button", name="Step 7: Random").click()  # asks for the random weights
    held.wait_for(1)
    page.get_by_role("button", name="Step 2: Heads").click()
    page.wait_for_selector(".tour[data-step=heads]", timeout=60_000)
    held.release(0)
    page.wait_for_timeout(500)
    assert page.evaluate("document.querySelector('.tour').tab.viewer.encoding.model") == "embedded"
    assert page.locator(".tour").get_attribute("data-step") == "heads"


def test_model_changed_while_a_clip_loads_puts_no_old_keys_on_the_new_clip(open_page):
    page = open_page(query="?tab=video", ready=".video[data-encoding]")
    held = Held(page, "**/api/encode")
    page.get_by_role("button", name="Scarlet macaw").click()
    held.wait_for(1)
    page.locator("#model").select_option("random:embedded")
    held.wait_for(2)
    page.evaluate("delete document.querySelector('.video').dataset.encoding")
    held.release(1, 0)
    page.wait_for_selector(".video[data-encoding]", timeout=60_000)
    page.wait_for_timeout(300)
    film = "document.querySelector('.video').tab"
    assert page.evaluate(f"[{film}.clip.clip, {film}.encoding.model]") == ["macaw", "random:embedded"]
    assert page.evaluate(f"{film}.encoding.photo === {film}.clip.photo")


def test_class_map_places_the_picture_once_a_slow_map_is_there(open_page, address):
    late = []

    def keep_back(page: Any) -> None:
        page.route("**/map.json", lambda route: late.append(route))

    page = open_page(query="?tab=class-map", ready=".map", route=keep_back)
    page.get_by_role("button", name="Sheep").click()  # while the map is on its way
    page.wait_for_timeout(300)
    page.unroute("**/map.json")
    for route in late:
        with contextlib.suppress(Error):  # given up meanwhile
            route.continue_()
    page.wait_for_selector(".map[data-map][data-placed=sheep]", timeout=60_000)
    assert page.locator(".map-neighbours li").count() == 10


# ---- failing answers


def test_refused_model_gives_way_to_what_is_seen(page, lab):
    page.route(
        "**/api/encode",
        lambda route: _refuse(route) if _model("embedded")(route.request) else route.continue_(),
    )
    page.locator("#model").select_option("embedded")
    expect(page.locator("#messages")).to_have_text("It cannot be had now.")
    assert page.locator("#model").input_value() == lab.model
    assert "embedded" not in urlsplit(page.url).query
    assert lab.state(page)["model"] == lab.model


def test_forgotten_photograph_is_sent_again_and_never_becomes_the_cat(page, lab, picture):
    lab.send(page, picture("mine.png", seed=5))
    refused, sent = [], []
    page.on("request", lambda request: "api/photos?" in request.url and sent.append(request.url))

    def forget_once(route: Any) -> None:
        if refused:
            return route.continue_()
        refused.append(route)
        return _refuse(route, "This photograph is not here any more: send it again.", 404)

    page.route("**/api/encode", forget_once)
    lab.pick(page, "Resolution, short side", "336")
    assert len(refused) == len(sent) == 1
    assert lab.state(page)["name"] == "mine.png"
    assert _messages(page) == ""


def test_forgotten_photograph_whose_file_is_gone_too_is_said(page, lab, picture):
    lab.send(page, picture("mine.png", seed=6))
    page.route(
        "**/api/encode",
        lambda route: _refuse(route, "This photograph is not here any more: send it again.", 404),
    )
    page.reload()
    expect(page.locator("#messages")).to_contain_text("This photograph is not here any more", timeout=60_000)
    assert page.evaluate(f"{EXPLORER}.encoding") is None  # no other picture in its place
    assert page.get_by_role("button", name="mine.png").get_attribute("aria-pressed") == "true"


def _restart(page: Any, refuses: bool = False) -> list[str]:
    """As a server that was begun anew: it knows no photograph, and has a new name for each that it is sent.

    Returns these names. Where it `refuses`, it looks at none of them.
    """
    named: list[str] = []

    def take(route: Any) -> None:
        told = route.fetch().json()
        named.append(f"{told['photo']}again")
        route.fulfill(json=told | {"photo": named[-1]})

    def encode(route: Any) -> None:
        asked = json.loads(route.request.post_data)
        if asked["photo"] not in named:
            _refuse(route, "This picture is no longer in the server's memory: open it again.", 404)
        elif refuses:
            _refuse(route)
        else:
            known = json.dumps(asked | {"photo": asked["photo"].removesuffix("again")})
            told = json.loads(route.fetch(post_data=known).text().splitlines()[-1])
            route.fulfill(body=json.dumps(told | {"photo": asked["photo"]}) + "\n")

    page.route("**/api/photos?*", take)
    page.route("**/api/encode", encode)
    return named


def test_photograph_that_a_new_server_calls_otherwise_is_known_by_that_name(page, lab, picture):
    lab.send(page, picture("mine.png", seed=7))
    page.locator(".explore .lab-stage").click(position=lab.centre(page, 3, 5))
    named = _restart(page)
    lab.pick(page, "Resolution, short side", "336")
    assert page.evaluate("[page.lab.state.photo, history.state.photo]") == 2 * named
    assert len(lab.state(page)["pins"]) == 1
    assert urlsplit(page.url).query.count("photo=own") == 1
    expect(page.get_by_role("button", name="mine.png")).to_have_attribute("aria-pressed", "true")


def test_refused_model_gives_way_although_the_photograph_was_sent_again_meanwhile(page, lab, picture):
    lab.send(page, picture("mine.png", seed=8))
    _restart(page, refuses=True)
    page.locator("#model").select_option("embedded")
    expect(page.locator("#messages")).to_have_text("It cannot be had now.")
    assert page.locator("#model").input_value() == lab.model


def test_photograph_that_is_left_while_it_is_sent_again_does_not_come_back(page, lab, picture):
    lab.send(page, picture("mine.png", seed=9))
    mine = page.evaluate("page.lab.state.photo")
    late, forgotten = Held(page, "**/api/photos?*"), [mine]

    def forget(route: Any) -> None:
        gone = json.loads(route.request.post_data)["photo"] in forgotten
        _refuse(route, "It is not here any more.", 404) if gone else route.continue_()

    page.route("**/api/encode", forget)
    page.locator("#size").select_option("336")
    late.wait_for(1)
    page.get_by_role("tab", name="Segment").click()
    page.get_by_role("button", name="Sheep").click()
    page.wait_for_selector(".segment[data-token]", timeout=60_000)
    forgotten.clear()
    late.release(0)
    page.wait_for_timeout(1500)
    known = page.evaluate("[page.lab.state.photo, page.lab.state.name, page.lab.seen.photo]")
    assert known == ["sheep", "", "sheep"]
    assert _messages(page) == ""


def test_refused_way_of_finding_objects_does_not_go_on_looking(open_page):
    page = open_page(query="?tab=segment", ready=".segment[data-token]")
    page.route("**/objects?*", lambda route: _refuse(route, "Too many are looking: try again in a while."))
    page.locator(".lab-methods [data-key=lost]").click()
    expect(page.locator("#messages")).to_have_text("Too many are looking: try again in a while.")
    assert "Looking" not in page.locator(".lab-scores").inner_text()
    page.unroute("**/objects?*")
    page.locator(".lab-methods [data-key=attention]").click()
    page.locator(".lab-methods [data-key=lost]").click()
    expect(page.locator(".lab-scores")).to_contain_text("Object 1", timeout=60_000)
    assert _messages(page) == ""


def test_segment_asks_only_the_way_that_is_shown(open_page):
    asked = []

    def listen(page: Any) -> None:
        page.on("request", lambda request: "/objects?" in request.url and asked.append(request.url))

    page = open_page(query="?tab=segment", ready=".segment[data-token]", route=listen)
    page.wait_for_timeout(800)
    assert asked == []
    page.locator(".lab-methods [data-key=tokencut]").click()
    expect(page.locator(".lab-scores")).to_contain_text("Object 1", timeout=60_000)
    assert [parse_qs(urlsplit(url).query)["method"] for url in asked] == [["tokencut"]]


def test_tab_whose_files_hang_holds_up_no_other(open_page):
    page = open_page(
        query="?tab=video",
        ready="#tabs [aria-selected=true]",
        route=lambda page: page.route("**/video.js", lambda route: None),  # never answered
    )
    page.get_by_role("tab", name="Explore").click()
    page.wait_for_selector(".explore[data-token]", timeout=20_000)


def test_class_map_that_failed_is_asked_for_again(open_page):
    failing = [True]

    def fail(page: Any) -> None:
        page.route("**/map.json", lambda route: route.abort() if failing[0] else route.continue_())

    page = open_page(query="?tab=class-map", ready=".map", route=fail)
    expect(page.locator("#messages")).to_contain_text("The server cannot be reached")
    failing[0] = False
    page.get_by_role("tab", name="Explore").click()
    page.get_by_role("tab", name="Class map").click()
    page.wait_for_selector(".map[data-map][data-placed]", timeout=60_000)
    assert _messages(page) == ""


def test_connection_that_breaks_in_the_middle_of_an_answer_is_said(page, lab):
    page.route(
        "**/api/encode",
        lambda route: route.fulfill(body='{"state": "looking"}\n', content_type="application/x-ndjson"),
    )
    page.locator("#size").select_option("336")
    expect(page.locator("#messages")).to_contain_text("cut off")
    assert page.locator("#size").input_value() == str(lab.size)


# ---- waiting


def test_place_in_the_queue_is_told_and_cancel_gives_it_up(page, lab):
    page.evaluate(
        """() => {
          const real = window.fetch;
          window.fetch = (address, init) => {
            if (!String(address).includes("api/encode")) return real(address, init);
            window.asked = init.signal;
            const lines = ['{"state":"waiting","place":3}\\n'];
            const body = new ReadableStream({ start(stream) {
              for (const line of lines) stream.enqueue(new TextEncoder().encode(line));
              init.signal.addEventListener("abort", () => stream.error(init.signal.reason));
            } });
            return Promise.resolve(new Response(body, { status: 200 }));
          };
        }"""
    )
    page.locator("#model").select_option("embedded")
    expect(page.locator("#waits")).to_contain_text("Waiting for the model: 3 before you")
    assert page.evaluate(f"{EXPLORER}.encoding.model") == lab.model  # the picture stays
    lab.screenshot(page, "waiting")
    page.get_by_role("button", name="Cancel").click()
    assert page.evaluate("window.asked.aborted")
    expect(page.locator("#waits")).to_have_text("")
    assert page.locator("#model").input_value() == lab.model
    assert _messages(page) == ""


def test_following_that_is_cancelled_while_it_waits_is_not_the_former_one(open_page):
    page = open_page(query="?tab=video", ready=".video[data-encoding]")
    page.locator(".video .lab-stage").click(position={"x": 200, "y": 150})
    page.get_by_role("button", name="Follow through").click()
    page.wait_for_selector(".video[data-state=done]", timeout=120_000)
    page.route("**/follow", lambda route: None)  # never answered
    page.get_by_role("button", name="Follow through").click()
    page.wait_for_selector(".video[data-state=waiting]")
    page.locator(".video-cancel").click()
    page.wait_for_selector(".video[data-state=idle]")
    assert page.locator(".video-told").inner_text() == "Ready to be followed."
    assert page.locator("[data-download='davis.zip']").is_disabled()


# ---- what is said is what is meant


def test_share_of_all_heads_is_that_of_the_mask_that_is_exported(page, lab):
    kept = page.evaluate(
        f"""() => {{ const {{ viewer }} = {EXPLORER};
          const maps = viewer.mapsOf();
          return maps.heads.map((_, head) => [...maps.kept(String(head))]); }}"""
    )
    union = np.any(np.array(kept, bool), axis=0).mean()
    assert f"on {union:.0%} of the picture".replace("%", " %") in page.locator(".lab-what").inner_text()


def test_undo_in_compare_takes_back_the_last_stroke_of_either_side(open_page):
    page = open_page(query="?tab=compare", ready=".compare[data-token]")
    page.locator("#compare").get_by_text("Draw", exact=True).click()
    drawn = "document.querySelector('.compare').tab.sides.map((one) => [...one.brush.painting.values])"
    states = []
    for side, (x, y) in ((0, (0.2, 0.3)), (1, (0.7, 0.6)), (0, (0.4, 0.8))):
        stage = page.locator(".compare .lab-stage").nth(side)
        box = stage.bounding_box()
        stage.click(position={"x": x * box["width"], "y": y * box["height"]})
        states.append(page.evaluate(drawn))
        assert states[-1][0] == states[-1][1]
    for expected in (states[1], states[0]):
        page.locator(".compare .lab-undo").click()
        assert page.evaluate(drawn) == expected


def test_two_files_of_one_name_and_size_are_two_pictures(open_page, lab, picture, tmp_path):
    page = open_page(query="?tab=segment", ready=".segment[data-token]")
    tab = "document.querySelector('.segment').tab"
    pictures = []
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        pictures.append(picture("image.png", seed=seed).rename(tmp_path / str(seed) / "image.png"))
    page.evaluate("delete document.querySelector('.segment').dataset.token")
    page.set_input_files("#header .lab-choose input", pictures[0])
    page.wait_for_selector(".segment[data-token]", timeout=60_000)
    page.locator(".segment .lab-stage").click(position={"x": 100, "y": 100})
    assert page.evaluate(f"{tab}.brush.painting.labels !== null")
    page.evaluate("delete document.querySelector('.segment').dataset.token")
    page.set_input_files("#header .lab-choose input", pictures[1])
    page.wait_for_selector(".segment[data-token]", timeout=60_000)
    assert page.evaluate(f"{tab}.brush.painting.labels === null")  # nobody drew on this one


def test_every_photograph_is_taken_and_what_is_left_out_of_a_folder_is_told(page, picture, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for seed, name in enumerate("ab"):
        picture(f"{name}.png", seed=seed).rename(folder / f"{name}.png")
    (folder / "notes.txt").write_text("no picture")
    page.set_input_files("#header .lab-way input", folder)
    expect(page.locator("#messages")).to_contain_text("Of the 3 files 2 were opened", timeout=60_000)
    for name in "ab":
        expect(page.locator(f"[data-example][title='{name}.png']")).to_be_visible()
    page.get_by_role("tab", name="Video").click()
    page.evaluate("document.querySelector('#header .lab-choose input').multiple = true")
    page.set_input_files("#header .lab-choose input", [folder / "a.png", folder / "b.png"])
    page.wait_for_function("() => !document.querySelector('#messages').hidden")


def test_camera_takes_a_photograph_and_is_let_go(page):
    page.evaluate(
        """() => {  // a film of one colour, in the place of a camera
          const canvas = Object.assign(document.createElement("canvas"), { width: 64, height: 48 });
          const context = canvas.getContext("2d");
          window.track = null;
          navigator.mediaDevices.getUserMedia = async () => {
            setInterval(() => { context.fillStyle = "rgb(0 160 0)"; context.fillRect(0, 0, 64, 48); }, 20);
            const film = canvas.captureStream();
            [window.track] = film.getTracks();
            return film;
          };
        }"""
    )
    page.get_by_role("button", name="the camera").click()
    page.locator("dialog video").wait_for()
    page.wait_for_function("() => document.querySelector('dialog video').videoWidth === 64")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    assert page.evaluate("window.track.readyState") == "ended"
    page.get_by_role("button", name="the camera").click()
    page.wait_for_function("() => document.querySelector('dialog video')?.videoWidth === 64")
    page.get_by_role("button", name="Take the picture").click()
    page.wait_for_function("() => document.querySelector('.explore').tab.encoding.name === 'camera.jpg'")
    assert page.evaluate("window.track.readyState") == "ended"
    page.evaluate(
        "() => { navigator.mediaDevices.getUserMedia = async () => { throw new Error('denied'); }; }"
    )
    page.get_by_role("button", name="the camera").click()
    expect(page.locator("#messages")).to_contain_text("There is no camera here")


@pytest.mark.parametrize("tab", ["training", "learn"])
def test_dropped_photograph_is_taken_by_every_tab(open_page, picture, tab):
    ready = {"training": ".run[data-model]", "learn": ".tour[data-step]"}[tab]
    page = open_page(query=f"?tab={tab}", ready=ready)
    page.set_input_files("#header .lab-choose input", picture("dropped.png"))
    root = {"training": ".run", "learn": ".tour"}[tab]
    page.wait_for_function(
        f"() => document.querySelector('{root}').tab.viewer.encoding.name === 'dropped.png'", timeout=60_000
    )


def test_search_finds_groups_and_nearer_neighbours_have_longer_bars(open_page):
    page = open_page(query="?tab=class-map", ready=".map[data-placed]")
    shares = page.locator(".map-neighbours .map-class").evaluate_all(
        "(all) => all.map((one) => parseFloat(one.style.getPropertyValue('--share')))"
    )
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1]
    page.get_by_label("Find a class or a group").fill("vehicle")
    expect(page.locator(".map-found")).to_contain_text("of 101 classes")
    assert int(page.locator(".map-found").inner_text().split()[0]) >= 8


def test_dead_and_warned_runs_are_told_and_polling_keeps_what_was_said(open_page):
    told = {}

    def answer(route: Any) -> None:
        response = route.fetch()
        if response.status == 200:
            run = response.json() | {"state": "stopped", "age": 7200, "version": "v"} | told
            route.fulfill(json=run)
        else:
            route.fulfill(response=response)

    told["warnings"] = [{"step": 900, "message": "KL 0.0400 is near 0: the output is the same for all."}]
    page = open_page(
        query="?tab=training",
        ready=".run[data-model]",
        route=lambda page: page.route(re.compile(r"api/runs/embedded"), answer),
    )
    expect(page.locator(".run-state")).to_contain_text("Stopped: no line for 2 h")
    assert not page.locator(".run").evaluate("(run) => run.classList.contains('run-live')")
    expect(page.locator(".run-warnings")).to_contain_text("Step 900: KL 0.0400 is near 0")
    page.route("**/api/encode", lambda route: _refuse(route))
    page.locator(".run [name=checkpoint]").fill("0")
    expect(page.locator("#messages")).to_have_text("It cannot be had now.")
    page.wait_for_timeout(4500)  # a look at the log passes by
    expect(page.locator("#messages")).to_have_text("It cannot be had now.")


# ---- one lab


def test_what_is_open_and_set_survives_tabs_reload_and_back(page, lab, address):
    page.get_by_role("button", name="Sheep").click()
    page.wait_for_function(f"() => {EXPLORER}.encoding?.name === 'sheep'", timeout=60_000)
    lab.choose_quantity(page, "key-cosine", 6)
    page.locator(".explore .lab-stage").click(position=lab.centre(page, 3, 4))
    page.locator(".explore .lab-stage").click(position=lab.centre(page, 8, 9))
    page.locator(".explore .lab-tile").nth(3).click()
    lab.slide(page, "mass", 35)
    page.get_by_role("tab", name="Segment").click()
    page.wait_for_selector(".segment[data-token]", timeout=60_000)
    page.get_by_role("tab", name="Explore").click()

    def seen(one: Any) -> list[Any]:
        state = lab.state(one)
        pins = [(pin["row"], pin["column"]) for pin in state["pins"]]
        quantity = one.evaluate(f"[{EXPLORER}.viewer.quantity, {EXPLORER}.viewer.arrays.number]")
        return [
            state["name"],
            pins,
            state["show"],
            quantity,
            one.locator(".explore [name=mass]").input_value(),
        ]

    expected = ["sheep", [(3, 4), (8, 9)], "0", ["key-cosine", 6], "35"]
    assert seen(page) == expected
    page.reload()
    page.wait_for_selector(".explore[data-token]", timeout=60_000)
    assert seen(page) == expected
    other = page.context.new_page()  # whoever is sent the address
    other.goto(page.url)
    other.wait_for_selector(".explore[data-token]", timeout=60_000)
    assert seen(other) == expected
    page.get_by_role("button", name="Komodo dragon").click()
    page.wait_for_function(f"() => {EXPLORER}.encoding?.name === 'komodo'", timeout=60_000)
    page.go_back()
    page.wait_for_function(f"() => {EXPLORER}.encoding?.name === 'sheep'", timeout=60_000)
    assert seen(page) == expected


def test_address_of_ones_own_photograph_tells_others_to_bring_theirs(open_page, lab, picture):
    page = open_page(query="")
    lab.send(page, picture("mine.png"))
    assert urlsplit(page.url).query == "photo=own"
    page.reload()
    page.wait_for_selector(".explore[data-token]", timeout=60_000)
    assert lab.state(page)["name"] == "mine.png"
    other = open_page(query="?photo=own")
    assert "stayed with its sender: choose one of your own" in _messages(other)


def test_pins_stay_where_they_are_under_another_grid(page, lab):
    page.locator(".explore .lab-stage").click(position=lab.centre(page, 3, 5))
    before = page.evaluate(f"{EXPLORER}.pins.list[0]")
    lab.pick(page, "Resolution, short side", "336")
    assert page.evaluate(f"{EXPLORER}.pins.list[0]") == before


def test_browser_memory_is_bounded_by_bytes(page, lab):
    for name in ("Owl on a branch", "Komodo dragon", "Sheep", "Kitten"):
        page.evaluate("delete document.querySelector('.explore').dataset.token")
        page.get_by_role("button", name=name).click()
        page.wait_for_selector(".explore[data-token]", timeout=60_000)
    memory = page.evaluate(
        """async () => {
          const { src } = document.querySelector("script[type=module]");
          const { memory } = await import(new URL("encoding.js", src));
          return [memory.bytes, memory.most, memory.entries.size]; }"""
    )
    assert memory[0] <= memory[1]
    assert memory[2] >= 4


def test_objects_marked_on_a_clip_survive_a_reload(open_page):
    page = open_page(query="?tab=video", ready=".video[data-encoding]")
    page.locator(".video .lab-stage").click(position={"x": 200, "y": 150})
    painted = "[...document.querySelector('.video').tab.painting.values]"
    before = page.evaluate(painted)
    assert any(before)
    page.reload()
    page.wait_for_selector(".video[data-encoding]", timeout=60_000)
    assert page.evaluate(painted) == before


# ---- said and focused


SPOKEN = "document.querySelector('#spoken').textContent"


def _spoken(page: Any, words: str) -> None:
    page.wait_for_function(f"(words) => {SPOKEN}.includes(words)", arg=words, timeout=10_000)


def test_explore_speaks_once_the_pointer_rests_not_at_every_patch(page, lab):
    page.evaluate(
        """() => { window.said = [];
          new MutationObserver(() => window.said.push(document.querySelector("#spoken").textContent))
            .observe(document.querySelector("#spoken"), { childList: true, subtree: true });
          for (let column = 0; column < 10; column++)
            document.querySelector(".explore").tab.viewer.hover({ row: 3, column }); }"""
    )
    _spoken(page, "Patch row 3, column 9")
    assert page.evaluate("window.said.length") == 1


@pytest.mark.parametrize(
    ("tab", "ready", "words"),
    [
        ("segment&method=attention", ".segment[data-token]", "Object 1, "),
        ("compare", ".compare[data-token]", "Jaccard similarity of the two masks"),
        ("video", ".video[data-encoding]", "Nothing is marked yet."),
        ("training", ".run[data-model]", "[CLS]: entropy"),
        ("learn&step=2", ".tour[data-step=heads]", "[CLS]: "),
    ],
)
def test_every_tab_tells_what_it_shows_to_those_who_do_not_see_it(open_page, tab, ready, words):
    _spoken(open_page(query=f"?tab={tab}", ready=ready), words)


def test_focus_goes_on_from_the_neighbour_of_an_object_that_is_removed(open_page):
    page = open_page(query="?tab=video", ready=".video[data-encoding]")
    page.locator(".video-add").click()
    page.locator(".video .lab-stage").click(position={"x": 200, "y": 150})
    page.locator(".video-add").click()
    page.locator(".video .lab-queries li").first.get_by_role("button", name="Remove").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('.video .lab-queries') !== null")


def test_figure_of_compare_carries_the_mask_that_was_drawn(open_page):
    page = open_page(query="?tab=compare&quantity=attention", ready=".compare[data-token]")
    page.locator("#compare").get_by_text("Draw", exact=True).click()
    page.locator(".compare .lab-stage").first.click(position={"x": 120, "y": 90})
    with page.expect_request("**/figure.png") as asked, page.expect_download():
        page.locator(".compare [data-download]").click()
    drawn = asked.value.post_data_json["drawn"]
    runs = np.array(drawn["runs"]).reshape(-1, 2)
    assert runs[:, 1].sum() == np.prod(drawn["size"])
    assert runs[runs[:, 0] == 1, 1].sum() > 50


def test_colours_can_be_chosen_and_are_remembered(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(250, 250, 250)"
    button = page.locator("#theme")
    button.click()
    button.click()
    assert button.inner_text() == "Colours: dark"
    dark = page.evaluate(ground)
    assert dark != "rgb(250, 250, 250)"
    page.reload()
    assert page.evaluate(ground) == dark


def test_footer_credits_every_photograph_and_links_show_a_picture_of_our_own(page, address):
    page.locator("#footer summary").click()
    text = page.locator("#footer").inner_text()
    for words in ("Loliloli", "Caron et al. 2021", "Caltech-101", "Bernard Spragg", "CC0-1.0"):
        assert words in text
    picture = page.locator("meta[property='og:image']").get_attribute("content")
    assert picture.startswith(address)
    assert page.request.get(picture).headers["content-type"] == "image/jpeg"
