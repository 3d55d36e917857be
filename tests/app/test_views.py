"""The attention view as a component of other apps: `gr.Interface`, flags, settings, and FastAPI."""

import re
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from fastapi import FastAPI
from PIL import Image
from starlette.testclient import TestClient

from app import STATIC, mount
from app.layout import build
from app.values import attention_value
from app.views import attention_view
from dino_model.inference.predictor import AttentionPredictor
from tests.app.conftest import small_backend


@pytest.fixture(scope="module")
def demo() -> gr.Blocks:
    """The page."""
    return build(small_backend())


@pytest.fixture(scope="module")
def value(predictor: AttentionPredictor, pixels: np.ndarray) -> dict:
    return attention_value(predictor, pixels, size=None)


def test_two_views_in_an_interface_inside_fastapi_answer_with_maps(predictor, pixels, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    views = [attention_view(group="pair"), attention_view(group="pair", head="max")]

    def compare(image):
        return attention_value(predictor, image, size=None), attention_value(predictor, image, size=None)

    demo = gr.Interface(compare, gr.Image(), views, api_name="compare")
    page = TestClient(gr.mount_gradio_app(FastAPI(), demo, path="/view"))
    Image.fromarray(pixels).save(tmp_path / "image.png")
    with (tmp_path / "image.png").open("rb") as file:
        (path,) = page.post("/view/gradio_api/upload", files={"files": file}).json()
    sent = {"path": path, "meta": {"_type": "gradio.FileData"}}
    values = page.post("/view/gradio_api/run/compare", json={"data": [sent]}).json()["data"]
    assert [(value["rows"], value["columns"], value["heads"]) for value in values] == [(4, 6, 3)] * 2


def test_value_is_of_224_pixels_and_the_last_block_by_default(predictor, pixels):
    value = attention_value(predictor, pixels)
    assert min(value["rows"], value["columns"]) == 224 // predictor.patch_size
    assert list(value["arrays"]) == [f"blocks/{predictor.blocks - 1}"]


def test_page_is_mounted_under_a_path_with_its_routes(backend):
    page = TestClient(mount(FastAPI(), "/dino", backend))
    assert page.get("/dino/config").json()["title"] == "DINO attention lab"
    assert page.get("/dino/lab/thumbnails/owl.jpg").headers["content-type"] == "image/jpeg"


def test_head_is_a_setting_of_the_view_and_not_html_of_the_document():
    view = attention_view(head=3, mass=30)
    assert (view.props["shown_head"], view.props["mass"], view.head) == ("3", 30, None)


def test_flagged_value_is_a_file_whose_path_is_in_the_log(tmp_path, value):
    view = attention_view()
    path = view.flag(value, tmp_path)
    assert Path(path).is_relative_to(tmp_path)
    assert view.read_from_flag(path) == value
    assert view.flag(None, tmp_path) == ""


def test_sliders_have_the_ranges_of_the_settings_and_begin_as_the_scripts(demo: gr.Blocks):
    """The scripts state where mass, opacity, count and reach begin; `app.views` states the ranges of two."""
    start: dict[str, int] = {}
    for script in ("attention_view", "mask_view", "editor"):
        text = (STATIC / "views" / f"{script}.js").read_text()
        for name, value in re.findall(r"\b(mass|opacity|count|reach): (\d+)", text):
            assert start.setdefault(name, int(value)) == int(value)
    ranges = {
        "Mask keeps (%)": (10, 100, start["mass"]),
        "Attention kept (%)": (10, 100, start["mass"]),
        "Opacity (%)": (0, 100, start["opacity"]),
        "Key similarity kept (%)": (50, 99, start["reach"]),
        "Similarity kept (%)": (50, 99, start["reach"]),
        "Most objects": (1, 6, start["count"]),
        "Ratio to next best (%)": (50, 100, 100),
        "Checkpoint": (0, 1, 1),  # untrained and final
    }
    sliders = [block for block in demo.blocks.values() if isinstance(block, gr.Slider)]
    found = {(one.label, (one.minimum, one.maximum, one.value)) for one in sliders}
    assert found == set(ranges.items())
    assert {one.step for one in sliders} == {1}


def test_back_and_next_stay_within_the_topics_and_four_clips_are_tracked_at_once(demo: gr.Blocks):
    turns = [event.js for event in demo.fns.values() if event.js and "Math.max(0, Math.min(" in str(event.js)]
    assert turns == [f"(index) => Math.max(0, Math.min(7, index + {step}))" for step in (-1, 1)]
    buttons = {one.value: one.variant for one in demo.blocks.values() if isinstance(one, gr.Button)}
    assert (buttons["Back"], buttons["Next"]) == ("secondary", "primary")
    limits = [event.concurrency_limit for event in demo.fns.values() if event.concurrency_id == "tracking"]
    assert limits == [4]


@pytest.mark.parametrize(
    ("view", "count"), [("compare-right", 1), ("checkpoints", 1), ("learn-view", 1), ("match", 2)]
)
def test_view_has_one_request_and_the_header_so_that_the_newest_wins(demo: gr.Blocks, view: str, count: int):
    requests = [event for event in demo.fns.values() if any(part.elem_id == view for part in event.outputs)]
    assert [event.trigger_mode for event in requests if event.fn] == ["always_last"] * count
