"""The attention view as a component of other apps: `gr.Interface`, flags, settings, and FastAPI."""

import csv
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.views import attention_value, attention_view
from dino_model.inference.predictor import AttentionPredictor


@pytest.fixture(scope="module")
def value(predictor: AttentionPredictor, pixels: np.ndarray) -> dict:
    return attention_value(predictor, pixels)


def test_head_is_a_setting_of_the_view_and_not_html_of_the_document():
    view = attention_view(head=3, mass=30)
    assert (view.props["shown_head"], view.props["mass"], view.head) == ("3", 30, None)


def test_interface_inside_fastapi_answers_and_its_log_holds_a_reference(tmp_path, value):
    demo = gr.Interface(
        lambda name: value | {"name": name},
        gr.Textbox(),
        attention_view(),
        flagging_dir=str(tmp_path),
        api_name="see",
    )
    page = TestClient(gr.mount_gradio_app(FastAPI(), demo, path="/view"))
    answer = page.post("/view/gradio_api/run/see", json={"data": ["mine"]}).json()
    assert answer["data"][0]["name"] == "mine"
    row = demo.flagging_callback.flag(["mine", answer["data"][0]])
    assert row == 1
    (log,) = tmp_path.glob("*.csv")
    _, flagged = csv.reader(log.open())
    stored = next(cell for cell in flagged if cell.endswith(".json"))
    assert len(",".join(flagged)) < 1000
    assert Path(stored).is_relative_to(tmp_path)
    assert demo.output_components[0].read_from_flag(stored) == answer["data"][0]
    assert demo.output_components[0].flag(None, tmp_path) == ""
