import json
from dataclasses import replace
from functools import partial

import pytest
import torch

from benchmarks import train_step
from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from training.crop_config import CropConfig
from training.methods.dino_config import DINOConfig
from training.optim import decay_groups
from training.recipe import OptimizerConfig, Recipe


@pytest.fixture(autouse=True)
def _small_step(monkeypatch: pytest.MonkeyPatch):
    small = Recipe(
        backbone=BackboneConfig("vit_tiny", patch_size=8, image_size=32, width=24, depth=2, heads=3),
        crops=CropConfig(global_size=32, local_size=16, local_crops=2),
        method=DINOConfig(
            HeadConfig(prototypes=32, hidden=16, bottleneck=8),
            freeze_last_layer_epochs=0,
            teacher_momentum=0.9,
        ),
        optimizer=OptimizerConfig(lr=0.1, clip_grad=0.02, warmup_epochs=0),
        epochs=1,
        batch_size=3,
    )
    monkeypatch.setattr(train_step, "RECIPE", small)
    monkeypatch.setattr(train_step, "METHOD", small.method)


@pytest.mark.parametrize(
    "speed_ups", [set(), *({name} for name in train_step.SPEED_UPS), set(train_step.SPEED_UPS)]
)
def test_the_plain_step_and_the_loop_train_alike(speed_ups: set[str]):
    ours, plain = train_step.OurStep("fp32"), train_step.PlainStep(speed_ups, "fp32")
    crops = train_step.random_crops()
    losses = [(ours(crops), plain(crops)) for _ in range(4)]
    assert losses[0][0] - losses[-1][0] > 1e-3, "the steps learn nothing, so that nothing is compared"
    for found, expected in losses:
        assert found == pytest.approx(expected, abs=1e-5)
    teacher = dict(plain.teacher.named_parameters())
    for name, found in ours.method.teacher.named_parameters():
        if not name.endswith(
            "attn.qkv.bias"
        ):  # the keys' bias has no gradient but noise, which Adam blows up
            torch.testing.assert_close(found, teacher[name], atol=1e-4, rtol=0)


def test_the_plain_step_decays_what_the_official_code_decays():
    groups = [group["params"] for group in train_step.PlainStep().optimizer.param_groups]
    expected = [group["params"] for group in decay_groups(train_step.fresh_method().student)]
    assert [len(group) for group in groups] == [len(group) for group in expected]


@pytest.mark.parametrize("flag", ["--checkpoint-activations", "--accumulate 2"])
def test_flags_change_no_loss(flag: str):
    recipe = replace(train_step.RECIPE, batch_size=4)
    options = {"device": train_step.CPU, "recipe": recipe}
    plain = train_step.OurStep("fp32", **options)
    flagged = train_step.OurStep("fp32", **options, **train_step.FLAGS[flag])
    crops = train_step.random_crops(recipe)
    for _ in range(3):
        assert flagged(crops) == pytest.approx(plain(crops), abs=1e-5)


def test_losses_that_differ_end_the_benchmark(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(train_step, "AGREEMENT", -1.0)
    with pytest.raises(SystemExit, match="after one step"):
        train_step.compare()


def test_what_each_speed_up_brings_is_told(tmp_path, capsys, monkeypatch):
    resnet = replace(train_step.RECIPE, backbone=BackboneConfig("resnet50"), crops=CropConfig(64, 32, 2))
    monkeypatch.setattr(train_step, "RESNET", resnet)
    monkeypatch.delitem(train_step.FLAGS, "--compile")  # minutes of a C++ compiler
    monkeypatch.setattr(train_step, "measure", partial(train_step.measure, memory_of=lambda _: 1))
    train_step.TrainStep(repeats=1, ablate=True, json=tmp_path / "ablation.json").run()
    found = json.loads((tmp_path / "ablation.json").read_text())
    assert [row["name"] for row in found["speed_ups"]] == list(train_step.SPEED_UPS)
    assert all(row["alone"] > 0 and row["together"] > 0 for row in found["speed_ups"])
    assert [row["name"] for row in found["flags"]][:-1] == list(train_step.FLAGS)
    assert all(row["time"] > 0 and row["memory"] == 1 for row in found["flags"])
    assert "alone" in capsys.readouterr().out
