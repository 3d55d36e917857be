"""The ten-line app of the README: an attention view without the page of this project."""

import re
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from PIL import Image

from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from tests.browser import actions

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def address():
    """Address of the README's example, with a random model of the same shape."""
    code = re.search(r"```python\n(import gradio as gr\n.*?)```", README.read_text(), re.DOTALL)
    assert code
    assert len(code[1].splitlines()) <= 14
    names: dict = {}
    exec(code[1].replace('"embedded"', '"random:embedded"').replace("demo.launch()", ""), names)
    demo: gr.Blocks = names["demo"]
    yield demo.launch(prevent_thread_lock=True, quiet=True, ssr_mode=False)[1]
    demo.close()


def test_attention_view_in_a_bare_blocks_shows_the_maps_of_the_package(address, open_page, tmp_path):
    image = photographs.image("sheep")
    Image.fromarray(image).save(tmp_path / "mine.png")
    page = open_page(query="", ready=".lab-view", address=address)
    page.locator("input[type=file]").first.set_input_files(tmp_path / "mine.png")
    page.wait_for_selector(".lab-view[data-token]")
    predictor = AttentionPredictor("random:embedded")
    predictor.set_image(image)
    view = "document.querySelector('.lab-view').view"
    np.testing.assert_allclose(actions.maps(page, view, "null"), predictor.cls_attention(), atol=2e-4)
    page.locator(".lab-stage").hover()
    actions.wait(page, f"{view}.patch !== null")
    assert page.locator(".lab-tile").count() == predictor.heads + 3
