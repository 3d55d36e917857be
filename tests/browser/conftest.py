"""A page server of its own and Debian's Chromium for the browser tests."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks import serving
from dino_model.predictor import AttentionPredictor
from tests.browser import actions
from tests.ports import free_port

ATTENTION = "?head=heads&layer=heat"  # what most tests of numbers are about
OFFLINE = {"NO_PROXY": "127.0.0.1,localhost", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium; without it the test is skipped, or fails when DINO_REQUIRE_BROWSER=1."""
    if missing := serving.missing_for_browser():
        if os.environ.get("DINO_REQUIRE_BROWSER") == "1":
            pytest.fail(f"DINO_REQUIRE_BROWSER=1, but {missing}")
        pytest.skip(missing)
    with serving.browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def server(browser: Any) -> Iterator[SimpleNamespace]:
    """A page with an untrained model, in fp32 on the CPU."""
    model = f"--model {actions.MODEL} --size {actions.SIZE} --precision fp32 --device cpu"
    with serving.serving(*model.split(), "--port", str(free_port()), env=OFFLINE) as page:
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
        own = (self.address.partition("?")[0], "data:", "blob:", "file:")
        page.on("request", lambda request: request.url.startswith(own) or self.faults.append(request.url))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.goto(self.address + query)
        page.wait_for_selector(ready, timeout=120_000)
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


@pytest.fixture(scope="module")
def open_elsewhere(browser: Any, desk: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages of other servers, by address, that the tests of a module share."""
    opened: list[Pages] = []

    def open_at(address: str, ready: str, **settings: Any) -> Any:
        opened.append(Pages(browser, desk, address))
        return opened[-1](query="", ready=ready, **settings)

    yield open_at
    for pages in opened:
        pages.close()


@pytest.fixture
def page(open_page: Pages) -> Any:
    """A page of the test's own, at desktop size."""
    return open_page()


@pytest.fixture(scope="session")
def lab() -> ModuleType:
    """What tests do on the page, in words."""
    return actions


@pytest.fixture(scope="session")
def predictor() -> AttentionPredictor:
    """The library's maps of the example that the page opens with."""
    return actions.library()


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
