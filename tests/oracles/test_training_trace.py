"""Whole training steps agree with the official code's: losses, centers, and the weights they lead to."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from dino_model.models.backbones import BackboneConfig, create_backbone
from tests.oracles.arrays import tensors
from training.augmentation.crops import Crops
from training.augmentation.randomness import Randomness
from training.methods.config import MethodSchedules
from training.methods.dino import DINO
from training.methods.dino_config import DINOConfig
from training.methods.head import HeadConfig, ProjectionHead
from training.methods.method import Batch
from training.methods.network import Network
from training.optim import decay_groups
from training.recipes.recipe import Plan
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


def test_losses_centers_and_final_weights_agree(oracle):
    trace = oracle("training_trace.npz")
    torch.manual_seed(0)
    method = build(trace)
    optimizer = torch.optim.AdamW(decay_groups(method), lr=0.0)
    plan = Plan(trace["lr"], trace["weight_decay"], float(trace["clip_grad"]), method.schedules, 1)
    for step in range(plan.steps):
        crops = Crops(*(torch.from_numpy(trace[f"step{step}/{kind}_crops"]) for kind in ("global", "local")))
        images = crops.views.shape[1]
        batch = Batch(crops, None, Randomness(0, step, 0, images))
        logs = train_step(method, optimizer, batch, step, plan, nullcontext()).read()
        assert logs["loss"] == pytest.approx(float(trace[f"step{step}/loss"]), abs=1e-5)
        np.testing.assert_allclose(method.center.numpy(), trace[f"step{step}/center"], atol=1e-5)
    for network in ("student", "teacher"):
        found, expected = getattr(method, network).state_dict(), tensors(trace, f"final_{network}/")
        for weights in (found, expected):
            for name in weights:
                if name.endswith("attn.qkv.bias"):  # the keys' bias has no true gradient: its value is noise
                    query, _, value = weights[name].chunk(3)
                    weights[name] = torch.cat([query, value])
        torch.testing.assert_close(dict(found), expected, atol=5e-4, rtol=0)
    moved = tensors(trace, "init/")["backbone.pos_embed"] - method.student.state_dict()["backbone.pos_embed"]
    assert moved.abs().max() > 1e-3
