"""Whole training steps agree with the official code's: losses, centers, and the weights they lead to."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.head import HeadConfig, ProjectionHead
from tests.oracles.arrays import tensors
from training.crops import Crops
from training.methods.configs import MethodSchedules
from training.methods.dino import DINO
from training.methods.dino_config import DINOConfig
from training.methods.method import Batch
from training.methods.network import Network
from training.randomness import Randomness
from training.recipe import Plan
from training.train import train_step


def build(trace):
    """The traced network's student and teacher, sizes read off its weights."""
    weights = tensors(trace, "init/")
    depth = 1 + max(int(name.split(".")[2]) for name in weights if ".blocks." in name)
    patch_size, width = int(trace["patch_size"]), weights["backbone.cls_token"].shape[-1]
    grid = round((weights["backbone.pos_embed"].shape[1] - 1) ** 0.5)
    backbone = BackboneConfig(
        "vit_tiny",
        patch_size,
        grid * patch_size,
        width=width,
        depth=depth,
        heads=int(trace["heads"]),
        position_mode="official",
    )
    prototypes, bottleneck = weights["head.last_layer.weight_v"].shape
    layers = sum(name.startswith("head.mlp.") and name.endswith(".weight") for name in weights)
    head = HeadConfig(prototypes, layers, weights["head.mlp.0.bias"].shape[0], bottleneck, train_gain=True)
    student, teacher = (Network(create_backbone(backbone), ProjectionHead(width, head)) for _ in range(2))
    student.load_state_dict(weights)
    config = DINOConfig(
        head,
        student_temperature=float(trace["student_temperature"]),
        center_momentum=float(trace["center_momentum"]),
    )
    schedules = MethodSchedules(
        trace["teacher_momentum"], trace["teacher_temperature"], int(trace["frozen_last_layer_steps"])
    )
    return DINO(student, teacher, config, schedules)


@pytest.fixture(scope="module")
def trained(oracle):
    """The method after all traced steps, and the loss and center after each."""
    trace = oracle("training_trace.npz")
    torch.manual_seed(0)
    method = build(trace)
    optimizer = torch.optim.AdamW(method.parameter_groups(), lr=0.0)
    plan = Plan(trace["lr"], trace["weight_decay"], float(trace["clip_grad"]), method.schedules, 1)
    seen = []
    for step in range(plan.steps):
        crops = Crops(*(torch.from_numpy(trace[f"step{step}/{kind}_crops"]) for kind in ("global", "local")))
        pictures = crops.views.shape[1]
        batch = Batch(crops, None, Randomness(0, step, 0, pictures, pictures))
        logs = train_step(method, optimizer, batch, step, plan, nullcontext()).read()
        seen.append((logs["loss"], method.center.clone()))
    return trace, method, seen


def test_losses_and_centers_agree_at_every_step(trained):
    trace, _, seen = trained
    for step, (loss, center) in enumerate(seen):
        assert loss == pytest.approx(float(trace[f"step{step}/loss"]), abs=1e-5)
        np.testing.assert_allclose(center.numpy(), trace[f"step{step}/center"], atol=1e-5)


@pytest.mark.parametrize("network", ["student", "teacher"])
def test_final_weights_agree(trained, network):
    trace, method, _ = trained
    ours = getattr(method, network).state_dict()
    theirs = tensors(trace, f"final_{network}/")
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        found = ours[name]
        if name.endswith("attn.qkv.bias"):  # the keys' bias has no true gradient, so its value is noise
            width = len(expected) // 3
            keep = torch.cat([torch.arange(width), torch.arange(2 * width, 3 * width)])
            found, expected = found[keep], expected[keep]
        torch.testing.assert_close(
            found, expected, atol=5e-4, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_weights_really_moved(trained):
    trace, method, _ = trained
    start, end = tensors(trace, "init/"), method.student.state_dict()
    assert (end["backbone.pos_embed"] - start["backbone.pos_embed"]).abs().max() > 1e-3
    assert (end["head.last_layer.weight_g"] - start["head.last_layer.weight_g"]).abs().max() > 1e-3
