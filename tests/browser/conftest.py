"""A page and Debian's Chromium for the browser tests."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image

from app.__main__ import Serve
from app.limits.bounds import temporary_folder
from app.limits.guard import host_names
from benchmarks import serving
from dino_model import photographs
from dino_model.__main__ import main
from dino_model.inference.predictor import AttentionPredictor
from tests.app.conftest import line, save_milestone, write_run
from tests.browser import actions
from tests.ports import free_port

ATTENTION = "?head=heads&layer=heat"
LOCAL = {"NO_PROXY": "127.0.0.1,localhost", "GRADIO_ANALYTICS_ENABLED": "False"}
TIMEOUT = 60_000  # milliseconds


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium; without it the test is skipped, or fails when DINO_REQUIRE_BROWSER=1."""
    if missing := serving.missing_for_browser():
        if os.environ.get("DINO_REQUIRE_BROWSER") == "1":
            pytest.fail(f"DINO_REQUIRE_BROWSER=1, but {missing}")
        pytest.skip(missing)
    from playwright.sync_api import expect

    expect.set_options(timeout=TIMEOUT)
    with serving.browser() as opened:
        yield opened


def log_line(step: int, **values: float) -> bytes:
    """Return a line of the log of `run`."""
    usual = {"loss": 6 - step / 50, "teacher_entropy": 4.0, "kl": 1.0, "ln_k": math.log(1024)}
    usual |= {"knn_teacher": 20 + step, "images_per_second": 100}
    return line(step, **usual | values)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that the page offers: 20 of 120 steps, checkpoints at 0, 10 and 20."""
    folder = write_run(tmp_path_factory.mktemp("runs") / "first", *map(log_line, range(20)), epochs=12)
    for step in (0, 10, 20):
        save_milestone(folder, step)
    return folder


@contextmanager
def serving_here(**options: Any) -> Iterator[str]:
    """Serve the page in this process, in fp32 on the CPU; the address ends with a slash."""
    port, served = free_port(), Serve(precision="fp32", device="cpu", **options)
    with patch.dict(os.environ, LOCAL), temporary_folder(2**30):
        demo = served.launch_blocks(port, host_names("127.0.0.1"), {})
        yield f"http://127.0.0.1:{port}/"
        demo.close(verbose=False)


@pytest.fixture(scope="session")
def address(browser: Any, run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a page with an untrained model, a run, and the examples as images to search."""
    folder = tmp_path_factory.mktemp("search")
    images, index = folder / "images.txt", folder / "index.safetensors"
    images.write_text("\n".join(map(str, photographs.FOLDER.glob("*.jpg"))))
    main(["index", str(images), "--output", str(index), "--size", "64"])
    with serving_here(model=actions.MODEL, size=actions.SIZE, models_dir=run.parent, search=index) as page:
        yield page


@pytest.fixture(scope="session")
def desk(browser: Any) -> Iterator[Any]:
    """A browser context whose pages share the cache of scripts and styles."""
    with browser.new_context() as context:
        yield context


class Pages:
    """Opens pages. Requests to other machines and errors in scripts are listed in `faults`."""

    def __init__(self, desk: Any, find_address: Callable[[], str]) -> None:
        self.desk, self.find_address = desk, find_address
        self.opened: list[Any] = []
        self.faults: list[str] = []

    def __call__(
        self,
        query: str = ATTENTION,
        ready: str = "#explore [data-token]",
        address: str = "",
        width: int = 1280,
        height: int = 900,
        **settings: Any,
    ) -> Any:
        """Open a page and wait for an element. `settings` are options of a browser context of its own."""
        size = {"width": width, "height": height}
        address = address or self.find_address()
        desk = self.desk.browser.new_context(**settings) if settings else self.desk
        page = desk.new_page()
        self.opened.append(desk if settings else page)
        page.set_viewport_size(size)
        page.set_default_timeout(TIMEOUT)
        own = (address, "data:", "blob:", "file:")
        page.on("request", lambda request: request.url.startswith(own) or self.faults.append(request.url))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.goto(address + query)
        page.wait_for_selector(ready)
        return page


@contextmanager
def _pages(request: pytest.FixtureRequest) -> Iterator[Pages]:
    pages = Pages(request.getfixturevalue("desk"), lambda: request.getfixturevalue("address"))
    yield pages
    for page in pages.opened:
        page.close()
    assert pages.faults == [], "requests to other machines, or errors in a script"


@pytest.fixture
def open_page(request: pytest.FixtureRequest) -> Iterator[Pages]:
    """Opens pages for one test."""
    with _pages(request) as pages:
        yield pages


@pytest.fixture(scope="module")
def open_shared(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens pages for the tests of a module: the same arguments give the same page."""
    with _pages(request) as pages:
        yield cache(pages)


@pytest.fixture
def page(open_page: Pages) -> Any:
    """A page of the test's own, at desktop size."""
    return open_page()


@pytest.fixture(scope="session")
def predictor() -> AttentionPredictor:
    """The package's maps of the example that the page opens with."""
    return actions.reference()


@pytest.fixture
def image_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a smooth random image: `image_file("a.png", width, height)`."""

    def write(name: str, width: int = 240, height: int = 160, seed: int = 0) -> Path:
        noise = np.random.default_rng(seed).integers(0, 256, (8, 12, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC).save(tmp_path / name)
        return tmp_path / name

    return write
