"""Throughput: tokens, parameters and FLOPs against their formulas, and the command."""

from itertools import accumulate

import torch

from dino_model.models.backbones import BackboneConfig, create_backbone
from training.evaluation.options import Throughput
from training.evaluation.throughput import measure


def test_measure_counts_tokens_parameters_and_flops(monkeypatch):
    clock = accumulate([0, 100, 0, 4, 0, 1, 0, 2])  # seconds of the first pass and of three more
    monkeypatch.setattr("training.evaluation.throughput.time.perf_counter", clock.__next__)
    vit = create_backbone(BackboneConfig("vit_tiny", 16, 64, width=48, depth=2, heads=3))
    found = measure(vit, Throughput(size=64, batch=3), "fp32", torch.device("cpu"))
    assert found["tokens"] == 17
    assert found["parameters"] == sum(p.numel() for p in vit.parameters())
    tokens, width = 17, 48
    products = 12 * tokens * width**2 + 2 * tokens**2 * width  # of a block: qkv, projection, MLP; q·k, a·v
    assert found["flops"] == 2 * (2 * products + 16 * 3 * 16**2 * width)
    assert found["images_per_second"] == 3 / 2


def test_throughput_command_prints_paper_speed(evaluate, capsys):
    models = ("random:vit_small/16", "random:embedded")
    content = evaluate("throughput", "--models", *models, "--batch", 1, "--size", 32)
    shown = capsys.readouterr().out
    assert "paper: 1007 images/s, V100, 128 a forward of ViT-S/16, Table 1, section 3.2" in shown
    assert "21.7 M parameters" in shown
    assert [row["metrics"]["precision"] for row in content["results"]] == ["fp32", "bf16"] * 2
