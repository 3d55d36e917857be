"""The page without a server, in Chromium from a plain file server, compared with the library."""

import functools
import http.server
import io
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.static_site import RUNTIME, StaticSite
from app.view import View, overlay, shown_mask
from dino_model import photographs
from segmentation.masks import enlarge, rle
from tests.browser.actions import WIDER, download, library, violations
from tests.browser.actions import maps as shown_maps

VIEW = View(block=5, show="mean")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that logs nothing."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the written page."""
    if not RUNTIME.is_dir():
        if os.environ.get("DINO_REQUIRE_NODE") == "1":
            pytest.fail(f"DINO_REQUIRE_NODE=1, but {RUNTIME} is missing")
        pytest.skip("onnxruntime-web is not installed (npm ci)")
    folder = tmp_path_factory.mktemp("site") / "page"
    StaticSite(folder).run()
    small = sum(
        file.stat().st_size for file in folder.rglob("*") if file.is_file() and "jsep" not in file.name
    )
    assert small < 20e6
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def page(open_elsewhere: Any, site: str) -> Any:
    """The page with its first example."""
    return open_elsewhere(site, "#view[data-token]")


@pytest.fixture(scope="module")
def maps() -> np.ndarray:
    """The library's maps of the first example: [heads, rows, columns]."""
    return library("embedded", "sheep").cls_attention()


def downloaded(page: Any, label: str) -> bytes:
    return download(page, page.get_by_role("button", name=label))[1]


@pytest.fixture
def example(page: Any) -> Any:
    """The page with its first example, and nothing under the pointer."""
    page.mouse.move(0, 0)
    page.locator("#examples button").first.click()
    page.wait_for_selector("#view[data-token^='sheep']", timeout=60_000)
    page.wait_for_function("() => !document.body.hasAttribute('data-busy')")
    return page


def test_maps_in_the_browser_equal_those_of_the_library(example, maps):
    np.testing.assert_allclose(shown_maps(example, "lab()", "null"), maps, atol=1e-4)
    file = np.load(io.BytesIO(downloaded(example, "Maps NPY")))
    np.testing.assert_allclose(file, maps, atol=1e-4)
    assert maps.max() > 5e-3


def test_downloads_equal_those_of_the_app(example, maps):
    picture = photographs.image("sheep")
    mask = enlarge(shown_mask(maps, VIEW), picture.shape[:2])
    found = np.array(Image.open(io.BytesIO(downloaded(example, "Mask PNG"))).convert("L"))
    assert (found // 255 == mask).mean() > 0.995
    coco = json.loads(downloaded(example, "Mask COCO"))
    assert coco["size"] == rle(mask)["size"]
    assert sum(coco["counts"][1::2]) == (found == 255).sum()
    drawn = np.array(Image.open(io.BytesIO(downloaded(example, "Overlay PNG"))).convert("RGB")).astype(int)
    assert np.abs(drawn - overlay(picture, maps, VIEW)).mean() < 1.5


def test_own_image_is_computed_and_a_broken_one_refused(page, tmp_path):
    Image.fromarray(photographs.image("macaw")).save(tmp_path / "my parrot.png")
    page.set_input_files("#file", tmp_path / "my parrot.png")
    page.wait_for_selector("#view[data-token^='my parrot.png']", timeout=60_000)
    (tmp_path / "broken.png").write_bytes(b"broken")
    page.set_input_files("#file", tmp_path / "broken.png")
    page.get_by_text("broken.png is no image that this browser reads").wait_for()
    assert page.get_attribute("#view", "data-token").startswith("my parrot.png")


def test_page_fits_the_screen_and_keeps_to_wcag(example):
    for width in (390, 1280):
        example.set_viewport_size({"width": width, "height": 900})
        assert example.evaluate(WIDER) <= 0
        assert violations(example) == []
