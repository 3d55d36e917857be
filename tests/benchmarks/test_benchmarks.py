"""Agreement of the plain references with the implementations that they are timed against."""

import json

import numpy as np
import pytest
import torch
import tyro

from benchmarks import attention, data, measure, propagation, score, train_step
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
    np.testing.assert_allclose(attention.fused_maps(attention.predictor("fp32"), image), plain, atol=1e-6)
    assert plain.max() > 4 * plain.mean()  # flat maps always agree


def test_propagation_reference_gives_the_labels_of_the_tiles(monkeypatch):
    for name, value in {"ROWS": 15, "COLUMNS": 28, "CHANNELS": 16}.items():
        monkeypatch.setattr(propagation, name, value)
    compared = propagation.Propagation()
    tiled, plain = compared.ours()(), compared.reference()()
    torch.testing.assert_close(tiled, plain, rtol=0, atol=1e-5)
    assert plain.std() > 0.05
    assert "in fp64 differ by at most" in compared.compare()[1]
    monkeypatch.setattr(propagation, "AGREEMENT", -1.0)
    with pytest.raises(SystemExit, match="soft labels differ"):
        compared.compare()


def test_score_compares_scores_measures_and_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(score, "FOLDER", tmp_path / "masks")
    monkeypatch.setattr(measure, "extra_memory", lambda build: 1)  # another process has another folder
    score.Score(sequences=2, frames=4, json=tmp_path / "score.json").run()
    written = json.loads((tmp_path / "score.json").read_text())
    assert written["name"] == "score"
    assert written["ratio"] == pytest.approx(written["reference"] / written["ours"])
    assert "largest difference of a J or F" in written["remarks"][1]
    values = np.stack(list(score.plain().values()))  # [objects, J and F, frames]
    assert 0.2 < values.min() < 0.9


@pytest.mark.parametrize("grouped", [False, True])
def test_plain_step_trains_as_the_loop_does(grouped):
    head = HeadConfig(prototypes=32, hidden=16, bottleneck=8)
    small = Recipe(
        backbone=BackboneConfig("vit_tiny", patch_size=8, image_size=32, width=24, depth=2, heads=3),
        crops=CropConfig(global_size=32, local_size=16, local_crops=2),
        method=DINOConfig(head, freeze_last_layer_epochs=0, teacher_momentum=0.9),
        optimizer=OptimizerConfig(lr=0.1, clip_grad=0.02, warmup_epochs=0),
        epochs=1,
        batch_size=3,
    )
    ours, plain = train_step.OurStep(small, "fp32"), train_step.PlainStep(small, grouped=grouped)
    crops = data.random_crops(small)
    losses = np.array([(ours(crops)["loss"], plain(crops)["loss"]) for _ in range(4)])
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


def test_data_measures_every_stage_per_core(monkeypatch):
    monkeypatch.setattr(data, "IMAGES", 2)
    monkeypatch.setattr(data, "LOCAL_CROPS", 1)
    found = "\n".join(data.Data(repeats=1).compare())
    for stage in ("worker, decode", "worker, augment device", "cpu, crops, flips and photometry"):
        assert stage in found
    assert "cores or devices for 3,000" in found


def test_extra_memory_is_that_of_the_computation():
    if not (measure.PROCESS / "clear_refs").exists():
        pytest.skip("only Linux reports the peak memory of a part of a process")
    assert 9e7 < measure.extra_memory(hundred_megabytes) < 1.2e8


def hundred_megabytes():
    return lambda: np.ones(10**8, np.uint8)


def test_verdict_of_a_figure_follows_the_tolerance():
    assert verdict("k-NN", 74.3, 74.5) == "reproduced"
    assert verdict("k-NN", 74.0, 74.5) == "0.5 points below, allowed are 0.3"
    assert verdict("DAVIS", None, 61.8).startswith("not measured")


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
