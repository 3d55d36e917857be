import json

import pytest

from benchmarks import plan
from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from training.crop_config import CropConfig
from training.methods.dino_config import DINOConfig
from training.recipe import OptimizerConfig, Recipe


def small(depth):
    vit = BackboneConfig("vit_tiny", 8, 32, width=24, depth=depth, heads=3)
    method = DINOConfig(HeadConfig(64, hidden=20, bottleneck=10))
    crops = CropConfig(global_size=32, local_size=16, local_crops=2)
    return Recipe(vit, method, crops, OptimizerConfig(warmup_epochs=0), epochs=2, batch_size=2)


def test_hours_and_cost_follow_from_operations_peak_and_price(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plan, "recipe_of", lambda name: small(2))
    monkeypatch.setattr(plan, "picture_flops", lambda recipe: 10e9)
    plan.Plan(
        gpu="L4", gpus=2, utilisation=0.5, price=3, models=("ViT-S/16",), json=tmp_path / "plan.json"
    ).run()
    (row,) = json.loads((tmp_path / "plan.json").read_text())["rows"]
    assert row["images_per_second"] == pytest.approx(2 * 121e12 * 0.5 / 10e9)
    hours = 300 * 1_281_167 / row["images_per_second"] / 3600
    assert row["runs"][1] == {"epochs": 300, "hours": pytest.approx(hours), "cost": pytest.approx(hours * 6)}
    said = capsys.readouterr().out
    assert "Computed, not timed: 2 L4, 50% of their peak of 121 TFLOP/s assumed" in said


def test_a_picture_of_a_network_twice_as_deep_keeps_nearly_twice_as_much():
    (fixed, two), (more, four) = plan.memory(small(2)), plan.memory(small(4))
    assert more > fixed
    assert 1.6 < four / two < 2.1
