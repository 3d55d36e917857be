"""What the live figures compute from: small enough, the library's own numbers, scripts for a disk."""

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from app import example_clips
from dino_model import photographs
from dino_model.predictor import AttentionPredictor
from dino_model.quantities import principal_colors
from segmentation.discovery import key_features

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import live_figures as live


def test_a_photograph_brings_the_queries_and_keys_of_the_last_block_in_float16():
    told = live.photograph("sheep", "random:embedded")
    predictor = AttentionPredictor("random:embedded", size=live.SIZE, precision="fp32")
    predictor.set_image(photographs.image("sheep"))
    content = {key: base64.b64decode(text) for key, text in told["arrays"].items()}
    block = np.frombuffer(content["blocks/5"], np.float16).reshape(2, predictor.heads, -1, 32)
    queries, keys = (part.astype(np.float32) for part in block)
    logits = queries[:, :1] @ keys.transpose(0, 2, 1) / np.sqrt(32)
    attention = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    ours = attention[:, 0, told["prefix"] :].reshape(-1, told["rows"], told["columns"])
    np.testing.assert_allclose(ours, predictor.cls_attention(), atol=2e-4)
    colors = principal_colors(key_features(block[1], told["prefix"], predictor.grid))
    np.testing.assert_allclose(np.frombuffer(content["key-pca/5"], np.float32), colors.ravel(), atol=1e-3)
    assert told["random"]
    assert block.nbytes <= live.LARGEST


def test_a_photograph_that_takes_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(live, "LARGEST", 1000)
    with pytest.raises(ValueError, match=r"queries and keys of sheep take .* expected at most 1,000"):
        live.photograph("sheep", "random:embedded")


def test_the_first_mask_of_a_clip_lies_on_its_actors():
    labels = example_clips.first_mask("sheep")
    assert set(np.unique(labels)) == {0, 1, 2}
    film = example_clips.EXAMPLES["sheep"]
    for number, actor in enumerate(film.actors, 1):
        rows, columns = np.nonzero(labels == number)
        height, width = example_clips.SIZE
        assert abs(columns.mean() / width - actor.start[0]) < 0.1
        assert abs(rows.mean() / height - actor.start[1]) < 0.15


def test_the_class_map_has_a_colour_for_every_group():
    told = live.classes()
    assert {one["group"] for one in told["classes"]} <= {group["name"] for group in told["groups"]}
    assert len(told["classes"]) == 101


def test_the_curves_are_those_of_the_study_s_log():
    told = live.collapse()
    lines = [json.loads(line) for line in live.STUDY.read_text().splitlines()]
    assert list(told["runs"]) == ["both", "no centering", "no sharpening", "neither"]
    for phase, run in enumerate(told["runs"].values(), start=1):
        own = [line for line in lines if line["phase"] == phase]
        assert run["step"] == [line["step"] for line in own] == told["runs"]["both"]["step"]
        assert run["kl"] == [line["kl"] for line in own]
    late = {label: run["teacher_entropy"][-1] / told["top"] for label, run in told["runs"].items()}
    assert late["no centering"] < 0.1 < late["both"] < 0.9 < late["no sharpening"]


def test_a_script_hands_its_data_to_the_figures():
    match = re.fullmatch(r'\(window\.dinoFigures \?\?= \{\}\)\["a"\] = (.*);\n', live.script("a", {"b": [1]}))
    assert match
    assert json.loads(match[1]) == {"b": [1]}


def test_figures_are_the_pages_own_javascript_in_one_classic_script(tmp_path):
    if shutil.which("node") is None or not (live.ROOT / "node_modules" / ".bin" / "esbuild").exists():
        pytest.skip("esbuild is not installed (npm ci)")
    live.bundle(tmp_path / "figures.js")
    text = (tmp_path / "figures.js").read_text()
    assert "import(" not in text
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
    assert subprocess.run(["node", "--check", tmp_path / "figures.js"], check=False).returncode == 0
    for file in (live.ROOT / "docs" / "live").glob("*.js"):
        assert "Math.exp" not in file.read_text(), "arithmetic stands in app/static/maths"


def test_without_esbuild_a_sentence_says_what_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="`npm ci` installs it"):
        live.bundle(tmp_path / "figures.js")
