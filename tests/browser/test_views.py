"""The views work outside the page of this project: in the ten-line app of the README."""

import re
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from PIL import Image

from dino_model import photographs
from dino_model.predictor import AttentionPredictor

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def demo():
    """The README's example, with a random model of the same shape."""
    code = re.search(r"```python\n(import gradio as gr\n.*?)```", README.read_text(), re.DOTALL)
    assert code
    assert len(code[1].splitlines()) <= 14
    names: dict = {}
    exec(code[1].replace('"embedded"', '"random:embedded"').replace("demo.launch()", ""), names)
    blocks: gr.Blocks = names["demo"]
    blocks.launch(prevent_thread_lock=True, quiet=True, ssr_mode=False)
    yield blocks
    blocks.close()


def test_attention_view_in_a_bare_blocks_shows_the_library_maps(demo, open_elsewhere, tmp_path, lab):
    Image.fromarray(photographs.image("sheep")).save(tmp_path / "mine.png")
    page = open_elsewhere(demo.local_url, ".lab-view")
    page.locator("input[type=file]").first.set_input_files(tmp_path / "mine.png")
    page.wait_for_selector(".lab-view[data-token]", timeout=60_000)
    predictor = AttentionPredictor("random:embedded")
    predictor.set_image(photographs.image("sheep"))
    view = "document.querySelector('.lab-view').view"
    np.testing.assert_allclose(lab.maps(page, view, "null"), predictor.cls_attention(), atol=2e-4)
    page.locator(".lab-stage").hover()
    page.wait_for_function(f"{view}.patch !== null")
    assert page.locator(".lab-tile").count() == predictor.heads + 3
