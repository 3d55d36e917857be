"""The page without a server, in Chromium from a plain file server, compared with the package."""

import functools
import http.server
import io
import json
import os
import threading

import numpy as np
import pytest

from app.static_site import StaticSite
from dino_model import photographs
from dino_model.runtime.errors import SettingError
from segmentation import drawing
from segmentation.masks import enlarge, keep_mass_of_maps, rle
from tests.browser import actions

MAX_BYTES = 20e6


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Address of the written page."""
    folder = tmp_path_factory.mktemp("site") / "page"
    try:
        StaticSite(folder).run()
    except SettingError as missing:
        if os.environ.get("DINO_REQUIRE_NODE") == "1":
            pytest.fail(f"DINO_REQUIRE_NODE=1, but {missing}")
        pytest.skip(str(missing))
    assert sum(file.stat().st_size for file in folder.rglob("*.*")) < MAX_BYTES
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def page(open_shared, address):
    """The page with its first example, and nothing under the pointer."""
    page = open_shared(query="", ready="#stage [data-token^='sheep']", address=address)
    page.mouse.move(0, 0)
    page.locator("#rail button:has(img[alt=sheep])").click()
    page.wait_for_selector("#stage [data-token^='sheep']")
    return page


def _exported(page, ending: str) -> bytes:
    page.locator("#export").click()
    for label in ("Outlines", "Pins"):
        for box in page.locator("dialog").get_by_label(label).all():
            box.uncheck()
    content = actions.download(page, page.locator(f"dialog [data-ending='{ending}']"))[1]
    page.locator("dialog .lab-close").click()
    return content


def test_maps_and_downloads_equal_those_of_the_package(page):
    maps, image = actions.reference("embedded", "sheep").cls_attention(), photographs.image("sheep")
    assert maps.max() > 5e-3
    np.testing.assert_allclose(actions.maps(page, "attentionView", "null"), maps, atol=1e-4)
    with np.load(io.BytesIO(_exported(page, "maps.npz"))) as archive:
        np.testing.assert_allclose(archive["maps"], maps, atol=1e-4)
    mask = enlarge(keep_mass_of_maps(maps.mean(axis=0), 0.6), image.shape[:2])
    saved = actions.image(_exported(page, "mask.png")) == 255
    assert (saved == mask).mean() > 0.995
    run_lengths = json.loads(_exported(page, "mask.json"))
    assert run_lengths["size"] == rle(mask)["size"]
    assert sum(run_lengths["counts"][1::2]) == saved.sum()
    page.locator("#layer").select_option("light")
    drawn = actions.image(_exported(page, "shown.png"))[..., :3].astype(int)
    mean = maps.mean(axis=0)
    shares = drawing.levels(mean, image.shape[:2], (np.median(mean), np.percentile(mean, 98)))
    lit = drawing.blend(image, np.zeros_like(image), 0.85 * (1 - shares))
    assert np.abs(drawn[: len(lit)] - lit).mean() < 1.5
    assert len(drawn) > len(lit)  # below the image, the values of its colors


def test_camera_shows_one_frame_after_the_other_until_it_is_stopped(page):
    camera = page.get_by_role("button", name="Camera")
    camera.click()
    page.wait_for_selector("#stage [data-token^=camera]")
    page.locator("#stage .lab-stage").hover()
    first = page.get_attribute("#stage .lab-view", "data-token")
    page.wait_for_selector(f"#stage [data-token^=camera]:not([data-token='{first}'])")
    assert page.evaluate("attentionView.hovered !== null")  # the pointer's patch stays chosen
    camera.click()
    assert camera.get_attribute("aria-pressed") == "false"


def test_page_fits_the_screen_and_keeps_to_wcag(page):
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(actions.WIDER) <= 0
        assert actions.violations(page) == []
