"""Data and script of the live figures: small, equal to the package, readable from a disk."""

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dino_model import photographs
from dino_model.inference import quantities
from dino_model.inference.predictor import AttentionPredictor
from segmentation import example_clips
from segmentation.discovery import key_features

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import live_figures as live


def test_image_data_has_queries_and_keys_of_the_last_block_in_float16():
    data = live.image_data("sheep", "random:embedded")
    predictor = AttentionPredictor("random:embedded", size=live.SIZE, precision="fp32")
    predictor.set_image(photographs.image("sheep"))
    content = {key: base64.b64decode(text) for key, text in data["arrays"].items()}
    block = np.frombuffer(content["blocks/5"], np.float16).reshape(2, predictor.heads, -1, 32)
    attention = quantities.attention(*block.astype(np.float32), token=0)[:, data["prefix"] :]
    expected = predictor.cls_attention()
    np.testing.assert_allclose(attention.reshape(expected.shape), expected, atol=2e-4)
    colors = quantities.principal_colors(key_features(block[1], data["prefix"], predictor.grid))
    np.testing.assert_allclose(np.frombuffer(content["key-pca/5"], np.float32), colors.ravel(), atol=1e-3)
    assert data["random"]
    assert block.nbytes <= live.LARGEST


def test_image_with_too_many_bytes_is_refused(monkeypatch):
    monkeypatch.setattr(live, "LARGEST", 1000)
    with pytest.raises(ValueError, match=r"queries and keys of sheep take .* expected at most 1,000"):
        live.image_data("sheep", "random:embedded")


def test_first_mask_of_a_clip_covers_its_actors():
    labels = example_clips.draw_masks("sheep")[0]
    assert set(np.unique(labels)) == {0, 1, 2}
    height, width = example_clips.SIZE
    for number, actor in enumerate(example_clips.EXAMPLES["sheep"].actors, 1):
        rows, columns = np.nonzero(labels == number)
        assert abs(columns.mean() / width - actor.start[0]) < 0.1
        assert abs(rows.mean() / height - actor.start[1]) < 0.15


def test_class_map_has_a_color_for_every_group():
    data = live.classes()
    assert {one["group"] for one in data["classes"]} <= {group["name"] for group in data["groups"]}
    assert len(data["classes"]) == 101


def test_curves_are_those_of_the_log_of_the_study():
    data = live.collapse()
    lines = [json.loads(line) for line in live.STUDY.read_text().splitlines()]
    assert list(data["runs"]) == ["both", "no centering", "no sharpening", "neither"]
    for phase, run in enumerate(data["runs"].values(), start=1):
        own = [line for line in lines if line["phase"] == phase]
        assert run["step"] == [line["step"] for line in own] == data["runs"]["both"]["step"]
        assert run["kl"] == [line["kl"] for line in own]
    late = {label: run["teacher_entropy"][-1] / data["top"] for label, run in data["runs"].items()}
    assert late["no centering"] < 0.1 < late["both"] < 0.9 < late["no sharpening"]


def test_figures_are_the_pages_own_javascript_in_one_classic_script(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(live, "ROOT", tmp_path)
        with pytest.raises(ValueError, match="`npm ci` installs it"):
            live.bundle(tmp_path / "figures.js")
    if shutil.which("node") is None or not (live.ROOT / "node_modules" / ".bin" / "esbuild").exists():
        pytest.skip("esbuild is not installed (npm ci)")
    live.bundle(tmp_path / "figures.js")
    text = (tmp_path / "figures.js").read_text()
    assert "import(" not in text
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
    subprocess.run(["node", "--check", tmp_path / "figures.js"], check=True)
    for file in (live.ROOT / "docs" / "live").glob("*.js"):
        assert "Math.exp" not in file.read_text(), "app/static/maths has the arithmetic"
