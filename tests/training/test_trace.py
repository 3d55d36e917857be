"""A whole training, recipe → plan → batches → loop → log, against the same one written out step by step.

The plain training takes from the house only what is judged elsewhere: the crops of each step as uint8, the
networks with their first weights, and torch's AdamW.
"""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from dino_model.backbones import BackboneConfig
from dino_model.collections import open_images
from dino_model.head import HeadConfig
from training.crop_config import CropConfig
from training.methods.dino_config import DINOConfig
from training.recipe import OptimizerConfig, Recipe
from training.run import Run
from training.session import Session
from training.train import Callbacks

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
PICTURES, PER_EPOCH, STEPS = 13, 3, 15


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(0)
    for i in range(PICTURES):
        Image.fromarray(generator.integers(0, 256, (40, 48, 3), np.uint8)).save(folder / f"{i:02}.png")
    return open_images(folder)


def half_cosine(start, end, progress):
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


def values_of(step):
    """What section 3.2 and the official code say of a step, number by number."""
    epoch, peak, warm = step // PER_EPOCH, 0.2 * 4 / 256, 2 * PER_EPOCH
    return {
        "lr": peak * step / (warm - 1)
        if step < warm
        else half_cosine(peak, 0.001, (step - warm) / (STEPS - warm)),
        "weight_decay": half_cosine(0.1, 0.4, step / STEPS),
        "teacher_momentum": half_cosine(0.9, 1.0, step / STEPS),
        "teacher_temperature": 0.03 + 0.06 * epoch / 2 if epoch < 3 else 0.09,
    }


def plain_training(images):
    """Losses and other figures of each step, and the networks at the end: Algorithm 1, pair by pair."""
    session = Session(RECIPE, images, seed=3)
    student, teacher = copy.deepcopy(session.method.student), copy.deepcopy(session.method.teacher)
    for ours, theirs in zip(student.parameters(), teacher.parameters(), strict=True):
        assert torch.equal(ours, theirs)
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
            seen = [teacher(view[None])[0] for view in views]  # [batch, K] each
        shown = [student(crop[None])[0] for group in (views, locals_) for crop in group]
        given = [F.softmax((logits - center) / now["teacher_temperature"], -1) for logits in seen]
        pairs = [
            -(target * F.log_softmax(logits / 0.1, -1)).sum(-1).mean()
            for view, target in enumerate(given)
            for crop, logits in enumerate(shown)
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
        entropy = -(torch.stack(given) * torch.stack(given).log()).sum(-1).mean()
        lines.append(now | {"loss": loss.item(), "teacher_entropy": entropy.item()})
        lines[-1] |= {"kl": loss.item() - entropy.item(), "center_norm": center.norm().item()}
        center = 0.8 * center + 0.2 * torch.cat(seen).mean(0)
        with torch.no_grad():
            for theirs, ours in zip(teacher.parameters(), student.parameters(), strict=True):
                theirs.mul_(now["teacher_momentum"]).add_((1 - now["teacher_momentum"]) * ours)
    return lines, student, teacher


def test_log_equals_that_of_plain_training(images, tmp_path):
    session, run = Session(RECIPE, images, seed=3), Run(tmp_path)
    assert session.train(run) == STEPS
    found, method = run.lines(), session.method
    expected, student, teacher = plain_training(images)
    assert [line["step"] for line in found] == list(range(STEPS))
    moved = (
        method.student.head.mlp[0].weight - Session(RECIPE, images, seed=3).method.student.head.mlp[0].weight
    )
    assert moved.abs().max() > 0.01, "nothing is learned, so nothing is compared"
    for line, plain in zip(found, expected, strict=True):
        for name in ("lr", "weight_decay", "teacher_momentum", "teacher_temperature"):
            assert line[name] == pytest.approx(plain[name], abs=1e-12), (line["step"], name)
        for name in ("loss", "teacher_entropy", "kl", "center_norm"):
            assert line[name] == pytest.approx(plain[name], abs=2e-4), (line["step"], name)
        assert line["ln_k"] == pytest.approx(math.log(32))
    for network, theirs in (("student", student), ("teacher", teacher)):
        plain_weights = dict(theirs.named_parameters())
        for name, weight in getattr(method, network).named_parameters():
            if not name.endswith("qkv.bias"):  # the keys' bias has no gradient but noise
                torch.testing.assert_close(weight, plain_weights[name], atol=5e-3, rtol=0, msg=name)


def test_throughput_excludes_probes_and_checkpoints(images, tmp_path, monkeypatch):
    """On a clock of the test's own: a batch comes in 1 s, a step takes 3, watching and saving 100."""
    clock = [0.0]

    def spend(seconds):
        clock[0] += seconds

    session = Session(RECIPE, images)
    honest = session.method.after_step
    monkeypatch.setattr("training.session.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr(session.method, "after_step", lambda *a: (spend(3), honest(*a))[1])
    monkeypatch.setattr("training.session.CheckpointWriter.save", lambda *_, **__: spend(100))
    pictures = session.batches

    def slowly(first_step):
        for loaded in pictures(first_step):
            spend(1)
            yield loaded

    monkeypatch.setattr(session, "batches", slowly)
    seen = []
    run = Run(tmp_path)
    run.create({})

    def look(step, logs, broken):
        spend(100)
        seen.append(logs["images_per_second"])
        return {}

    session.train(run, callbacks=Callbacks(observe=look))
    assert seen == pytest.approx([4 / 4] * STEPS)
