"""Operations of a step, counted by PyTorch and by hand."""

from dataclasses import replace

import pytest
import torch

from dino_model import ranks
from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from training import utilisation
from training.crop_config import CropConfig
from training.methods.configs import SwAVConfig
from training.methods.dino_config import DINOConfig
from training.recipe import OptimizerConfig, Recipe
from training.utilisation import peak, picture_flops, share_of_peak

WIDTH, DEPTH, HIDDEN, BOTTLENECK, K = 32, 3, 40, 16, 512
RECIPE = Recipe(
    BackboneConfig("vit_tiny", 8, 32, width=WIDTH, depth=DEPTH, heads=2, drop_path=0.1),
    DINOConfig(HeadConfig(K, hidden=HIDDEN, bottleneck=BOTTLENECK)),
    CropConfig(global_size=32, local_size=16, local_crops=3),
    OptimizerConfig(warmup_epochs=0),
    epochs=2,
    batch_size=2,
)


def encoder(side):
    """Of one crop, forward: blocks, and the patch embedding."""
    patches = (side // 8) ** 2
    tokens = patches + 1
    block = 2 * tokens * 12 * WIDTH**2 + 2 * 2 * tokens**2 * WIDTH
    return DEPTH * block, 2 * patches * 3 * 8 * 8 * WIDTH


def test_operations_are_those_counted_by_hand():
    head = 2 * (WIDTH * HIDDEN + HIDDEN * HIDDEN + HIDDEN * BOTTLENECK)
    prototypes = 2 * BOTTLENECK * K
    total = 0
    for side, crops in ((32, 2), (16, 3)):
        blocks, embedding = encoder(side)
        total += crops * (3 * blocks + 2 * embedding + 3 * (head + prototypes))  # a picture has no gradient
    blocks, embedding = encoder(32)
    total += 2 * (blocks + embedding + head + prototypes)  # the teacher
    assert picture_flops(RECIPE) == pytest.approx(total, rel=0.01)


def test_beside_other_processes_they_are_counted_alone(monkeypatch):
    """SwAV asks all ranks for their prototypes: here that would fail, there is no process group."""
    swav = replace(RECIPE, method=SwAVConfig())
    expected = picture_flops(swav)
    monkeypatch.setattr(ranks.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(ranks.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(ranks.dist, "get_rank", lambda: 0)
    assert ranks.world() == 2
    assert picture_flops(swav) == expected


@pytest.mark.parametrize(
    ("name", "precision", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 312e12),
        ("NVIDIA H100 80GB HBM3", "bf16", 989e12),
        ("NVIDIA H100 PCIe", "fp16", 756e12),
        ("NVIDIA L40S", "bf16", 362e12),
        ("Tesla V100-SXM2-16GB", "fp16", 125e12),
        ("NVIDIA A100-SXM4-80GB", "fp32", None),
        ("NVIDIA GeForce GTX 1080", "fp16", None),
    ],
)
def test_peaks_are_found_by_name(name, precision, expected):
    assert peak(name, precision) == expected


def test_a_share_of_the_peak_is_told_where_it_is_known(monkeypatch):
    assert share_of_peak(RECIPE, 0, torch.device("cpu"), "bf16") == 0
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA L4")
    monkeypatch.setattr(utilisation, "picture_flops", lambda *_: 1.21e12)
    assert share_of_peak(RECIPE, 0, torch.device("cuda"), "bf16") == pytest.approx(0.01)
