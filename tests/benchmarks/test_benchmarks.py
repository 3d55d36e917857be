"""Agreement of the plain references with the implementations that they are timed against."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import tyro
from torch.nn.functional import normalize

from benchmarks import attention, data, propagation, score, train_step
from benchmarks.official import Official, verdict
from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from dino_model.weights import load_model
from tests.training.evaluation.pictures import write_pictures
from training.crop_config import CropConfig
from training.methods.dino_config import DINOConfig
from training.recipe import OptimizerConfig, Recipe

pytestmark = pytest.mark.slow


def test_attention_reference_gives_the_maps_of_the_predictor(monkeypatch):
    monkeypatch.setattr(attention, "SIZE", 48)
    image = attention.images()[0]
    plain = attention.plain_maps(attention.sharpened_model())(image)
    np.testing.assert_allclose(attention.fused_maps(attention.predictor("fp32"))(image), plain, atol=1e-6)
    assert plain.max() > 4 * plain.mean()  # flat maps always agree


def test_propagation_reference_gives_the_labels_of_the_tiles(monkeypatch):
    for name, value in {"ROWS": 15, "COLUMNS": 28, "CHANNELS": 16}.items():
        monkeypatch.setattr(propagation, name, value)
    target, contexts, labels = propagation.frames("cpu")
    plain = propagation.dense(target, contexts, labels, propagation.square_window())
    tiled = propagation.tiled(target, normalize(contexts, dim=-1), labels)
    torch.testing.assert_close(tiled, plain, rtol=0, atol=1e-5)
    assert plain.std() > 0.05
    monkeypatch.setattr(propagation, "AGREEMENT", -1.0)
    with pytest.raises(SystemExit, match="420 patches differ"):
        propagation.compare("cpu")


def test_score_reference_gives_the_scores_of_the_command(tmp_path):
    score.draw(tmp_path, sequences=2, frames=4)
    plain = score.plain(tmp_path)
    assert score.compare(score.ours(tmp_path), plain) <= score.AGREEMENT
    values = np.stack(list(plain.values()))  # [objects, J and F, frames]
    assert 0.2 < values.min() < 0.9


@pytest.mark.parametrize("grouped", [False, True])
def test_plain_step_trains_as_the_loop_does(monkeypatch, grouped):
    head = HeadConfig(prototypes=32, hidden=16, bottleneck=8)
    small = Recipe(
        backbone=BackboneConfig("vit_tiny", patch_size=8, image_size=32, width=24, depth=2, heads=3),
        crops=CropConfig(global_size=32, local_size=16, local_crops=2),
        method=DINOConfig(head, freeze_last_layer_epochs=0, teacher_momentum=0.9),
        optimizer=OptimizerConfig(lr=0.1, clip_grad=0.02, warmup_epochs=0),
        epochs=1,
        batch_size=3,
    )
    monkeypatch.setattr(train_step, "RECIPE", small)
    ours, plain, crops = train_step.OurStep("fp32"), train_step.PlainStep(grouped), train_step.random_crops()
    losses = np.array([(ours(crops), plain(crops)) for _ in range(4)])
    assert losses[0, 0] - losses[-1, 0] > 1e-3
    np.testing.assert_allclose(losses[:, 0], losses[:, 1], atol=1e-5)
    teacher = dict(plain.teacher.named_parameters())
    for name, found in ours.method.teacher.named_parameters():
        if not name.endswith("attn.qkv.bias"):  # Adam amplifies the noise of the keys' bias
            torch.testing.assert_close(found, teacher[name], atol=1e-4, rtol=0)


def test_train_step_on_cuda_without_a_device_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    train_step.TrainStep(device="cuda").run()
    assert capsys.readouterr().out == "train_step: skipped, there is no CUDA device\n"


def test_data_prints_every_stage_per_core(monkeypatch, capsys):
    monkeypatch.setattr(data, "IMAGES", 2)
    monkeypatch.setattr(data, "CROPS", replace(data.CROPS, local_crops=1))
    monkeypatch.setattr(data, "measure", lambda *_, **__: None)
    monkeypatch.setattr(data, "report", lambda *_: None)
    data.Data(repeats=1).run()
    printed = capsys.readouterr().out
    for stage in ("worker, decode", "worker, augment device", "cpu, crops, flips and photometry"):
        assert stage in printed
    assert "cores for 3,000 images/s" in printed


def test_verdict_of_a_figure_follows_the_tolerance():
    assert verdict("dino_vits16", "k-NN", 74.3, 74.5).said == "reproduced"
    assert verdict("dino_vits16", "k-NN", 74.0, 74.5).said == "0.5 points below, allowed are 0.3"
    assert verdict("dino_vits16", "DAVIS", None, 61.8).said.startswith("not measured")


def test_official_with_weights_of_the_published_form_writes_every_verdict(tmp_path, monkeypatch, capsys):
    cache, images, out = tmp_path / "cache", tmp_path / "imagenet", tmp_path / "out"
    cache.mkdir()
    monkeypatch.setenv("DINO_CACHE", str(cache))
    vit = load_model("random:vit_small/16").backbone
    torch.save(vit.state_dict(), cache / "dino_deitsmall16_pretrain.pth")
    head = {"module.linear.weight": torch.randn(3, 1536), "module.linear.bias": torch.zeros(3)}
    torch.save({"state_dict": head}, cache / "dino_deitsmall16_linearweights.pth")
    write_pictures(images / "train", {"a": 8, "b": 8, "c": 8})
    write_pictures(images / "val", {"a": 1, "b": 1, "c": 1}, shade=100)
    words = ["--imagenet", str(images), "--models", "dino_vits16", "--output", str(out)]
    tyro.cli(Official, args=words).run()
    assert "0 of 2 figures reproduced; to send:" in capsys.readouterr().out
    found = json.loads((out / "official.json").read_text())
    assert [one["figure"] for one in found["verdicts"]] == ["k-NN", "linear"]
    assert all(one["ours"] is not None for one in found["verdicts"])
    tyro.cli(Official, args=words).run()
    assert "python -m" not in capsys.readouterr().out  # results that exist are not measured again
