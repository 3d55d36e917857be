"""The attention view in a notebook: complete without a server, small, and without Gradio."""

import base64
import html
import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from app import notebook
from app.notebook import show
from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from segmentation import matching
from segmentation.drawing import overlay_heat


def test_show_holds_scripts_arrays_and_a_still_image():
    image = photographs.image("sheep")
    view = show(image, "random:embedded")
    output = view._repr_mimebundle_()
    text = output["text/html"]
    assert len(text) <= 1_500_000
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', text)[1])
    imports = json.loads(re.search(r'<script type="importmap">(.*?)</script>', page)[1])["imports"]
    codes = [base64.b64decode(address.split(",")[1]).decode() for address in imports.values()]
    used = {name for code in codes for name in re.findall(r'(?:from |import\()"([^"]+)"', code)}
    assert used <= imports.keys()
    assert "import.meta" not in "".join(codes)
    value = view.props[0]["value"]
    assert (value["model"], list(value["arrays"])) == ("random:embedded", ["blocks/5"])
    with Image.open(io.BytesIO(base64.b64decode(output["image/png"]))) as still:
        assert still.width <= notebook.STILL_WIDTH
        predictor = AttentionPredictor("random:embedded", size=224)
        predictor.set_image(image)
        np.testing.assert_array_equal(still, overlay_heat(image, predictor.cls_attention().mean(axis=0)))


def test_show_compares_models_has_all_blocks_and_refuses_other_choices(monkeypatch):
    image = photographs.image("owl")
    both = show(image, ["random:embedded", "random:embedded"], blocks="all", size=64)
    assert [len(props["value"]["arrays"]) for props in both.props] == [6, 6]
    assert [props["value"]["image"] is None for props in both.props] == [False, True]  # shared
    with Image.open(io.BytesIO(base64.b64decode(both._repr_mimebundle_()["image/png"]))) as still:
        assert still.width == notebook.STILL_WIDTH  # two images of 640 pixels are wider
    with pytest.raises(ValueError, match="expected 'last' or 'all'"):
        show(image, blocks="first")
    length = len(show(image, "random:embedded", size=64)._repr_html_())
    monkeypatch.setattr(notebook, "MAX_BYTES", {"last": length})
    show(image, "random:embedded", size=64)
    monkeypatch.setattr(notebook, "MAX_BYTES", {"last": length - 1})
    with pytest.raises(ValueError, match=f"expected at most {length - 1:,}"):
        show(image, "random:embedded", size=64)


def test_show_mask_and_its_still_image_have_their_sizes():
    image = np.random.default_rng(0).integers(0, 256, (900, 1440, 3), np.uint8)
    view = notebook.show_mask(image, "random:embedded")
    value = view.props[0]["value"]
    assert (value["rows"], value["columns"], list(value["arrays"])) == (
        28,
        45,
        ["blocks/5"],
    )  # 224 pixels high
    with Image.open(io.BytesIO(base64.b64decode(view._repr_mimebundle_()["image/png"]))) as still:
        assert still.size == (720, 450)


def test_show_imports_what_the_lessons_have():
    code = "import sys, app.notebook; print({'gradio', 'av', 'starlette', 'pydantic'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


def test_show_match_holds_the_matches_and_directions_of_the_package():
    images = photographs.image("owl"), np.ascontiguousarray(photographs.image("owl")[10:, 30:])
    (props,) = notebook.show_match(*images, "random:embedded", size=96, ratio=0.95).props
    matched = props["matched"]
    features = []
    for image, size in zip(images, (96, round(96 * matched["scale"])), strict=True):
        predictor = AttentionPredictor("random:embedded", size=size)
        predictor.set_image(image)
        features.append(matching.match_features(predictor, image))
    grids, sizes = [one.features.shape[:2] for one in features], [one.shape[:2] for one in images]
    expected = matching.matches_as_json(matching.matches_between(*features, 0.95), grids, sizes)
    assert matched["matches"] == expected
    assert len(expected) > 3
    assert (matched["a"], matched["scales"]) == (props["value"]["token"], list(matching.SCALES))
    data = base64.b64decode(matched["directions"].split(",")[1])
    vectors = np.frombuffer(data, "<f2").reshape(np.prod(grids[0]) + np.prod(grids[1]), -1).astype(np.float32)
    assert vectors.shape[1] == 128  # of 192 * 4, for a small notebook
    cosines = matching.similarities(*matching.prepare_pair(*(one.features for one in features)), (1, 2))
    found = vectors[np.prod(grids[0]) :] @ vectors[grids[0][1] + 2]
    np.testing.assert_allclose(found.reshape(grids[1]), cosines, atol=0.01)
