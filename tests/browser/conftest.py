"""A page server of its own and Debian's Chromium for the browser tests."""

import base64
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks import serving
from tests.ports import free_port

MODEL, SIZE = "random:vit_tiny/16", 224
ATTENTION = "?head=heads&layer=heat"  # what most tests of numbers are about
OUTPUT = Path(__file__).parent / "output"  # screenshots, for people


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium; without it the test is skipped, or fails when DINO_REQUIRE_BROWSER=1."""
    if missing := serving.missing_for_browser():
        if os.environ.get("DINO_REQUIRE_BROWSER") == "1":
            pytest.fail(f"DINO_REQUIRE_BROWSER=1, but {missing}")
        pytest.skip(missing)
    with serving.browser() as chromium:
        yield chromium


@pytest.fixture(scope="session")
def server(browser: Any) -> Iterator[SimpleNamespace]:
    """A page with an untrained model, in fp32 on the CPU."""
    options = f"--model {MODEL} --size {SIZE} --port {free_port()} --precision fp32 --device cpu"
    env = {"NO_PROXY": "127.0.0.1,localhost", "OMP_NUM_THREADS": "1"}
    with serving.serving(*options.split(), env=env) as page:
        yield SimpleNamespace(address=page.address + "/", log=page.log)
        assert page.process.poll() is None, f"the server died:\n{page.log.read_text()}"


@pytest.fixture(scope="session")
def address(server: SimpleNamespace) -> str:
    """Where the page is, with a slash at the end."""
    return server.address


@pytest.fixture(scope="session")
def desk(browser: Any) -> Iterator[Any]:
    """A browser context whose pages share the cache of scripts and styles."""
    with browser.new_context() as context:
        yield context


class Pages:
    """Opens pages; when it ends, none may have asked another machine or failed in a script."""

    def __init__(self, browser: Any, desk: Any, address: str) -> None:
        self.browser, self.desk, self.address = browser, desk, address
        self.opened: list[Any] = []
        self.faults: list[str] = []

    def __call__(
        self,
        width: int = 1280,
        height: int = 900,
        query: str = ATTENTION,
        ready: str = "#explore [data-token]",
        **settings: Any,
    ) -> Any:
        """Open the page as a new visitor and wait until the example is encoded."""
        if settings:  # a context of its own: dark, or with a finger
            context = self.browser.new_context(viewport={"width": width, "height": height}, **settings)
            page = context.new_page()
            self.opened.append(context)
        else:
            page = self.desk.new_page()
            page.set_viewport_size({"width": width, "height": height})
            self.opened.append(page)
        own = (self.address, "data:", "blob:" + self.address.rstrip("/"))
        page.on("request", lambda request: request.url.startswith(own) or self.faults.append(request.url))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.goto(self.address + query)
        page.wait_for_selector(ready, timeout=60_000)
        return page

    def close(self) -> None:
        """Close all pages."""
        for one in self.opened:
            one.close()
        assert self.faults == [], "requests to other machines, or errors in a script"


@pytest.fixture
def open_page(browser: Any, desk: Any, address: str) -> Iterator[Pages]:
    """Opens pages for one test."""
    pages = Pages(browser, desk, address)
    yield pages
    pages.close()


@pytest.fixture(scope="module")
def open_shared(browser: Any, desk: Any, address: str) -> Iterator[Pages]:
    """Opens pages that the tests of a module share."""
    pages = Pages(browser, desk, address)
    yield pages
    pages.close()


@pytest.fixture
def page(open_page: Pages) -> Any:
    """A page of the test's own, at desktop size."""
    return open_page()


@pytest.fixture(scope="session")
def lab() -> SimpleNamespace:
    """What tests do on the page, in words."""
    return SimpleNamespace(
        model=MODEL,
        size=SIZE,
        maps=_maps,
        array=array_of,
        state=_state,
        send=_send,
        centre=_centre,
        pick=_pick,
        open_tab=_open_tab,
        slide=_slide,
        choose_quantity=_choose_quantity,
        screenshot=_screenshot,
        toast=_toast,
    )


@pytest.fixture
def picture(tmp_path: Path) -> Callable[..., Path]:
    """Writes a smooth random picture: `picture("a.png", width, height)`."""

    def write(name: str, width: int = 240, height: int = 160, seed: int = 0, **options: Any) -> Path:
        noise = np.random.default_rng(seed).integers(0, 256, (8, 12, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC).save(
            tmp_path / name, **options
        )
        return tmp_path / name

    return write


EXPLORER = "lab('explore')"
FILE = "#images input[type=file]"


ARRAY = """() => {
  const { array, shape } = %s;
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  const parts = [];
  for (let at = 0; at < bytes.length; at += 32768)
    parts.push(String.fromCharCode(...bytes.subarray(at, at + 32768)));
  return [btoa(parts.join("")), array instanceof Float32Array ? "<f4" : "u1", shape];
}"""


def array_of(page: Any, expression: str) -> np.ndarray:
    """An array of the page, `{ array, shape }` in JavaScript; as lists of numbers they would take seconds."""
    text, kind, shape = page.evaluate(ARRAY % expression)
    return np.frombuffer(base64.b64decode(text), kind).reshape(shape)


def _maps(page: Any, view: str = EXPLORER, patch: str = "") -> np.ndarray:
    """Maps that a view shows, as the browser computed them: [heads, rows, columns]."""
    maps = f"{view}.mapsOf({patch}).heads"
    size = f"{view}.encoding.rows, {view}.encoding.columns"
    array = f"Float32Array.from({maps}.flatMap((map) => [...map]))"
    return array_of(page, f"{{ array: {array}, shape: [{maps}.length, {size}] }}")


def _state(page: Any) -> dict[str, Any]:
    """The encoding on Explore's stage, the patch whose maps are shown, the pins as patches, and the head."""
    return page.evaluate(
        f"""() => {{
          const {{ encoding, pins, patch, settings }} = {EXPLORER};
          const list = pins.list.map((pin) => ({{ ...encoding.patchAt(pin), color: pin.color }}));
          return {{ ...encoding.value, patch, pins: list, show: settings.head }};
        }}"""
    )


def _send(page: Any, *paths: Path) -> None:
    """Upload images in Explore and wait for the first of them, or for a sentence."""
    page.evaluate("delete document.querySelector('#explore .lab-view').dataset.token")
    page.set_input_files(FILE, paths)
    page.wait_for_function(
        """() => document.querySelector("#explore .lab-view").dataset.token
          || document.querySelector(".toast-body")""",
        timeout=60_000,
    )


def _toast(page: Any) -> str:
    """The sentence of an error, which is closed."""
    toast = page.locator(".toast-body").first
    toast.wait_for(timeout=60_000)
    words = toast.inner_text()
    toast.locator("button").first.click()
    return words


def _centre(page: Any, row: int, column: int) -> dict[str, float]:
    """Where on the stage the center of a patch lies, in CSS pixels."""
    state, box = _state(page), page.locator("#explore .lab-stage").bounding_box()
    return {
        "x": (column + 0.5) / state["columns"] * box["width"],
        "y": (row + 0.5) / state["rows"] * box["height"],
    }


def _pick(page: Any, elem_id: str, option: str) -> None:
    """Choose from one of the header's lists."""
    page.locator(f"#{elem_id} input").click()
    page.get_by_role("option", name=option, exact=True).click()


def _open_tab(page: Any, title: str, ready: str) -> Any:
    """Open a tab and wait until it shows something."""
    page.get_by_role("tab", name=title, exact=True).click()
    page.wait_for_selector(ready, timeout=60_000)
    return page


def _slide(page: Any, elem_id: str, value: int) -> None:
    """Bring a slider to a value."""
    page.locator(f"#{elem_id} input[type=range]").fill(str(value))


def _choose_quantity(page: Any, quantity: str, block: int = 11) -> None:
    """Choose a quantity of Explore and a block counted from 0, and wait until they are on the screen."""
    page.locator(f"#quantity label:has(input[value={quantity}])").click()
    _slide(page, "block", block + 1)
    page.wait_for_selector(f"#explore [data-quantity={quantity}][data-block='{block}']", timeout=60_000)


def _screenshot(page: Any, name: str) -> None:
    """Keep a picture of the whole page for people."""
    OUTPUT.mkdir(exist_ok=True)
    page.screenshot(path=OUTPUT / f"{name}.png", full_page=True)
