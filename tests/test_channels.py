"""Five-channel images through every command: pretrain, resume, embed, evaluate, attention, export."""

import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from dino_model.inference.embedding import read_features
from dino_model.models.load import load_model
from dino_model.runtime.errors import SettingError
from segmentation.commands.attention import Attention
from tests.commands import dino as dino_model
from tests.training.runs import pretrain, resume, stop_after, values, weights
from training.__main__ import main as training

CHANNELS = ("--channels", "5", "--probe-every", "3")


@pytest.fixture(scope="module")
def bands(tmp_path_factory) -> Path:
    """Two classes of 16-bit images; channel 4 alone tells them apart."""
    folder, random = tmp_path_factory.mktemp("bands"), np.random.default_rng(0)
    for number in range(24):
        kind = number % 2
        image = random.integers(100, 9000, (40, 48, 5)).astype(np.uint16)
        image[:, :, 4] = 1000 + 6000 * kind + random.integers(0, 900, (40, 48))
        (folder / f"class{kind}").mkdir(exist_ok=True)
        path = folder / f"class{kind}" / f"{number:02}"
        if number % 3:
            np.save(path.with_suffix(".npy"), image)
        else:
            tifffile.imwrite(path.with_suffix(".tif"), image, photometric="minisblack", planarconfig="contig")
    return folder


@pytest.fixture(scope="module")
def run(bands, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("run") / "run"
    assert pretrain(bands, output, *CHANNELS, "--epochs", 2) == 0
    return output


def test_pretrain_stores_statistics_of_data_with_run(run):
    config = json.loads((run / "config.json").read_text())
    assert config["backbone"]["in_channels"] == 5
    low, high = (config["channel_range"][name] for name in ("low", "high"))
    assert low == pytest.approx([100] * 4 + [1000], abs=60)
    assert high == pytest.approx([9000] * 4 + [7900], abs=60)
    assert config["mean"][4] == pytest.approx(0.5, abs=0.03)
    model = load_model(str(run))
    assert model.backbone.patch_embed.proj.in_channels == 5
    assert model.channel_range.low == tuple(low)


def test_pretrain_of_channels_resumes_bitwise(bands, run, tmp_path, monkeypatch):
    stop_after(monkeypatch, 5)
    parts = tmp_path / "run"
    assert pretrain(bands, parts, *CHANNELS, "--epochs", 2) == 75
    monkeypatch.undo()
    assert resume(parts, "--probe-every", 3) == 0
    assert values(parts) == values(run)
    torch.testing.assert_close(weights(parts), weights(run), rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("augment", ["batch", "device"])
def test_pretrain_adapts_model_of_rgb(bands, tmp_path, augment, capfd):
    words = ["--init-backbone", "random:vit_tiny/8", "--augment", augment, "--position-mode", "size"]
    sizes = ["--width", 192, "--depth", 12, "--heads", 3, "--image-size", 224, "--drop-path", 0]
    assert pretrain(bands, tmp_path / "run", *CHANNELS, *words, *sizes, "--epochs", 1) == 0
    weight = load_model("random:vit_tiny/8").backbone.patch_embed.proj.weight
    found = weights(tmp_path / "run", "step-00000000.pt")["student.backbone.patch_embed.proj.weight"]
    torch.testing.assert_close(found, weight[:, [0, 1, 2, 0, 1]] * 3 / 5)
    assert all(np.isfinite(line["loss"]) for line in values(tmp_path / "run"))


def test_embed_and_evaluate_use_all_channels(bands, run, tmp_path):
    exported, scores = str(tmp_path / "model.safetensors"), tmp_path / "knn.json"
    dino_model(["export", str(run), "--output", exported])
    words = ["--model", exported, "--channels", "5", "--device", "cpu", "--precision", "fp32", "--size", "32"]
    dino_model(["embed", "--data", str(bands), "--output", str(tmp_path / "f.npz"), *words])
    table = read_features(tmp_path / "f.npz")
    assert table.features.shape == (24, 24)
    assert set(table.labels or ()) == {"class0", "class1"}
    data = ["--data", str(bands), "--k", "3", "--model", "pixels", "--json", str(scores)]
    assert training(["evaluate", "knn", *words, *data]) == 0
    results = json.loads(scores.read_text())["results"]
    found = {result["model"]: result["metrics"]["top1"] for result in results}
    assert found == {exported: 100, "pixels": 100}


@pytest.mark.parametrize(
    ("protocol", "more"),
    [("linear", ("--augment", "--features", "1")), ("finetune", ("--output", "out", "--batch", "4"))],
)
def test_training_protocols_take_channels(bands, run, tmp_path, monkeypatch, protocol, more):
    monkeypatch.chdir(tmp_path)
    words = ["--model", str(run), "--channels", "5", "--data", str(bands), "--size", "32", "--epochs", "1"]
    assert training(["evaluate", protocol, *words, *more, "--precision", "fp32"]) == 0


def test_attention_shows_chosen_channels(bands, tmp_path):
    options = {"model": "random:vit_tiny/16", "size": 32, "precision": "fp32", "channels": 5, "show": "4,0,1"}
    Attention(inputs=(bands / "class0",), output=tmp_path, **options).run()
    folder = tmp_path / min((bands / "class0").glob("*.npy")).stem
    with np.load(folder / "attention.npz") as arrays:
        assert arrays["attention"].shape == (3, *arrays["grid"])
    assert np.asarray(Image.open(folder / "overlay_head_0.png")).shape == (40, 48, 3)
    settings = json.loads((tmp_path / "provenance.json").read_text())["settings"]
    assert [4, 0, 1] in settings.values()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "takes images of 5 channels: pass --channels 5"),
        (["--channels", "4"], "--channels is 4, but"),
    ],
)
def test_model_of_other_channels_is_refused(bands, run, tmp_path, words, message):
    command = ["embed", "--data", str(bands), "--output", str(tmp_path / "f.npz"), "--model", str(run)]
    with pytest.raises(SettingError, match=message):
        dino_model([*command, *words])
