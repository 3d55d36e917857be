"""The attention view without the page of this project: in the app of the README, and in a notebook."""

import re
from html import escape
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from PIL import Image

from app.values import attention_value
from app.views import attention_view
from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from notebooks.execute import execute
from tests.browser import actions

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def address():
    """Address of the README's example, with a random model of the same shape."""
    code = re.search(r"```python\n(import gradio as gr\n.*?)```", README.read_text(), re.DOTALL)
    assert code
    assert len(code[1].splitlines()) <= 14
    names: dict = {"predictor": AttentionPredictor("random:embedded")}  # of the example before
    exec(code[1].replace("demo.launch()", ""), names)
    demo: gr.Blocks = names["demo"]
    yield demo.launch(prevent_thread_lock=True, quiet=True, ssr_mode=False)[1]
    demo.close()


def test_attention_view_in_a_bare_blocks_shows_the_maps_of_the_package(address, open_page, tmp_path):
    image = photographs.image("sheep")
    Image.fromarray(image).save(tmp_path / "mine.png")
    page = open_page(query="", ready=".lab-view", address=address)
    page.locator("input[type=file]").first.set_input_files(tmp_path / "mine.png")
    page.wait_for_selector(".lab-view[data-token]")
    predictor = AttentionPredictor("random:embedded", size=224)
    predictor.set_image(image)
    view = "document.querySelector('.lab-view').view"
    np.testing.assert_allclose(actions.maps(page, view, "null"), predictor.cls_attention(), atol=2e-4)
    page.locator(".lab-stage").hover()
    actions.wait(page, f"{view}.patch !== null")
    assert page.locator(".lab-tile").count() == predictor.heads + 1


@pytest.fixture
def component():
    """Address of a page with one view, and buttons that hide it, show it, and take its image away."""
    predictor = AttentionPredictor("random:embedded", size=32)
    value = attention_value(predictor, photographs.image("sheep"), size=None)
    with gr.Blocks() as demo:
        shown = attention_view()
        for name, update in {
            "Fill": value, "Hide": gr.HTML(visible=False), "Show": gr.HTML(visible=True), "Clear": None,
        }.items():  # fmt: skip
            gr.Button(name).click(lambda update=update: update, None, shown)
    yield demo.launch(prevent_thread_lock=True, quiet=True, ssr_mode=False)[1]
    demo.close()


def test_view_keeps_settings_while_hidden_and_is_empty_without_a_value(component, open_page):
    page = open_page(query="", ready=".lab-view", address=component)
    page.get_by_text("No image yet.").wait_for()
    assert not page.get_by_role("button", name="Remove").is_visible()
    page.get_by_role("button", name="Fill").click()
    page.wait_for_selector(".lab-view[data-token]")
    view = "document.querySelector('.lab-view').view"
    settings = {"layer": "mask", "opacity": 35, "mass": 20}
    page.evaluate(f"(settings) => {view}.set(settings)", settings)
    page.get_by_role("button", name="Hide").click()
    page.wait_for_selector(".lab-view", state="detached")
    page.get_by_role("button", name="Show").click()
    page.wait_for_selector(".lab-view[data-token][data-layer=mask]")
    assert settings.items() <= page.evaluate(f"{view}.settings").items()
    page.get_by_role("button", name="Clear").click()
    page.get_by_text("No image yet.").wait_for()
    assert not page.locator(".lab-stage").is_visible()
    assert page.evaluate(f"{view}.request") is None


CELL = """# %%
from app.notebook import show
from dino_model import photographs

show(photographs.image("sheep"), ["embedded", "random:embedded"])
"""


@pytest.fixture(scope="module")
def cell_output(tmp_path_factory):
    """The output of an executed notebook cell, by MIME type."""
    nbformat = pytest.importorskip("nbformat")
    folder = tmp_path_factory.mktemp("cell")
    (folder / "show.py").write_text(CELL)
    (cell,) = nbformat.read(execute(folder / "show.py", folder), as_version=4).cells
    (output,) = cell.outputs
    return output.data


@pytest.mark.parametrize("is_sandboxed", [False, True], ids=["Jupyter", "Colab and VS Code"])
def test_pointer_in_the_output_of_a_notebook_cell_selects_a_patch_in_both_models(
    cell_output, is_sandboxed, open_page, tmp_path
):
    assert "image/png" in cell_output
    shown = cell_output["text/html"]
    if is_sandboxed:  # the output has an origin of its own
        shown = f'<iframe sandbox="allow-scripts" width="1200" srcdoc="{escape(shown)}"></iframe>'
    (tmp_path / "cell.html").write_text(f"<!doctype html><body>{shown}</body>")
    frame = open_page(query="", ready="iframe", address=(tmp_path / "cell.html").as_uri())
    for _ in range(1 + is_sandboxed):
        frame = frame.frame_locator("iframe")
    frame.locator("[data-token]").nth(1).wait_for()
    frame.locator(".lab-stage").first.hover()
    frame.get_by_text("This patch attends to the lit places").nth(1).wait_for()
