"""A whole training, recipe → plan → batches → loop → log, against the same one written out step by step.

The plain training takes from the project the crops of each step as uint8, the networks with their initial
weights, and torch's AdamW.
"""

import copy
import math

import pytest
import torch
import torch.nn.functional as F

from dino_model.data.collection import open_images
from dino_model.models.backbones import BackboneConfig
from tests.training.runs import noise
from training.augmentation.crop_config import CropConfig
from training.methods.dino_config import DINOConfig
from training.methods.head import HeadConfig
from training.recipes.recipe import OptimizerConfig, Recipe
from training.run.folder import Run
from training.session import Session

RECIPE = Recipe(
    backbone=BackboneConfig("vit_tiny", 8, 32, width=24, depth=2, heads=3),
    method=DINOConfig(
        HeadConfig(32, hidden=16, bottleneck=8),
        teacher_temperature_start=0.03,
        teacher_temperature=0.09,
        teacher_temperature_warmup_epochs=3,
        teacher_momentum=0.9,
        center_momentum=0.8,
    ),
    crops=CropConfig(global_size=32, local_size=16, local_crops=2),
    optimizer=OptimizerConfig(lr=0.2, min_lr=0.001, warmup_epochs=2, weight_decay=0.1, clip_grad=0.3),
    mean=(0.5, 0.4, 0.3),
    std=(0.2, 0.25, 0.3),
    epochs=5,
    batch_size=4,
)
IMAGES, PER_EPOCH, STEPS = 13, 3, 15


def half_cosine(start, end, progress):
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


def values_of(step):
    """Rates of a step as in section 3.2 and the official code, number by number."""
    epoch, peak, warm = step // PER_EPOCH, 0.2 * 4 / 256, 2 * PER_EPOCH
    cosine = half_cosine(peak, 0.001, (step - warm) / (STEPS - warm))
    return {
        "lr": peak * step / (warm - 1) if step < warm else cosine,
        "weight_decay": half_cosine(0.1, 0.4, step / STEPS),
        "teacher_momentum": half_cosine(0.9, 1.0, step / STEPS),
        "teacher_temperature": 0.03 + 0.06 * epoch / 2 if epoch < 3 else 0.09,
    }


def plain_training(session):
    """Algorithm 1, pair by pair: metrics of each step, and the networks at the end."""
    student, teacher = copy.deepcopy(session.method.student), copy.deepcopy(session.method.teacher)
    for ours, reference in zip(student.parameters(), teacher.parameters(), strict=True):
        assert torch.equal(ours, reference)
    named = [(name, p) for name, p in student.named_parameters() if p.requires_grad]
    plain = [p for name, p in named if p.ndim == 1 or name.endswith("bias")]
    decayed = [p for name, p in named if not (p.ndim == 1 or name.endswith("bias"))]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": plain}], lr=0.0)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (RECIPE.mean, RECIPE.std))
    center, lines = torch.zeros(32), []
    for step, loaded in enumerate(session.batches()):
        now = values_of(step)
        views, locals_ = ((group / 255 - mean) / std for group in loaded.crops)
        with torch.no_grad():
            teacher_logits = [teacher(view[None])[0] for view in views]  # [batch, K] each
        student_logits = [student(crop[None])[0] for group in (views, locals_) for crop in group]
        targets = [F.softmax((logits - center) / now["teacher_temperature"], -1) for logits in teacher_logits]
        pairs = [
            -(target * F.log_softmax(logits / 0.1, -1)).sum(-1).mean()
            for view, target in enumerate(targets)
            for crop, logits in enumerate(student_logits)
            if crop != view
        ]
        loss = torch.stack(pairs).mean()
        optimizer.zero_grad()
        loss.backward()
        for _, parameter in named:
            parameter.grad *= min(1.0, 0.3 / (parameter.grad.norm().item() + 1e-6))
        if step < PER_EPOCH:  # the first epoch
            student.head.last_layer.weight_v.grad = None
        for group, decay in zip(optimizer.param_groups, (now["weight_decay"], 0.0), strict=True):
            group.update(lr=now["lr"], weight_decay=decay)
        optimizer.step()
        entropy = -(torch.stack(targets) * torch.stack(targets).log()).sum(-1).mean().item()
        metrics = {"loss": loss.item(), "teacher_entropy": entropy, "kl": loss.item() - entropy}
        lines.append(now | metrics | {"center_norm": center.norm().item(), "ln_k": math.log(32)})
        center = 0.8 * center + 0.2 * torch.cat(teacher_logits).mean(0)
        with torch.no_grad():
            for reference, ours in zip(teacher.parameters(), student.parameters(), strict=True):
                reference.mul_(now["teacher_momentum"]).add_((1 - now["teacher_momentum"]) * ours)
    return lines, {"student": student, "teacher": teacher}


def test_log_and_weights_equal_those_of_plain_training(tmp_path):
    images, run = open_images(noise(tmp_path / "images", IMAGES, 1, 40, 48)), Run(tmp_path / "run")
    session, start = (Session(RECIPE, images, seed=3) for _ in range(2))
    assert session.train(run) == STEPS
    moved = session.method.student.head.mlp[0].weight - start.method.student.head.mlp[0].weight
    assert moved.abs().max() > 0.01, "without training nothing is compared"
    expected, networks = plain_training(start)
    found = run.lines()
    assert [line["step"] for line in found] == list(range(STEPS))
    for step, (line, plain) in enumerate(zip(found, expected, strict=True)):
        for name, value in plain.items():
            tolerance = 1e-12 if name in values_of(step) else 2e-4
            assert line[name] == pytest.approx(value, abs=tolerance), (step, name)
    for network, reference in networks.items():
        plain_weights = dict(reference.named_parameters())
        for name, weight in getattr(session.method, network).named_parameters():
            if not name.endswith("qkv.bias"):  # the keys' bias has no gradient but noise
                torch.testing.assert_close(weight, plain_weights[name], atol=5e-3, rtol=0, msg=name)
