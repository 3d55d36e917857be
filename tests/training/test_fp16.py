"""Half precision: the loss is scaled to keep gradients in range; a step that overflows is skipped."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch.amp import GradScaler

from dino_model.data.collection import open_images
from dino_model.runtime.device import autocast
from tests.training.methods.tiny import build, random_batch
from tests.training.runs import RECIPE
from training.methods.dino_config import DINOConfig
from training.methods.head import HeadConfig
from training.optim import create_optimizer, decay_groups
from training.recipes.recipe import Plan
from training.run.folder import Run
from training.session import Session
from training.train import Callbacks, train_step

CPU = torch.device("cpu")
# A narrower head starts with so short a bottleneck that its gradient is beyond half precision.
CONFIG = DINOConfig(HeadConfig(16, hidden=512, bottleneck=16), freeze_last_layer_epochs=0)
SMALL = replace(RECIPE, method=CONFIG, batch_size=4)


def stepped(context, scaler, optimizer):
    """Metrics and method after a step."""
    method = build(CONFIG)
    stepper = create_optimizer(optimizer, decay_groups(method), CPU)
    torch.manual_seed(1)
    plan = Plan.of(SMALL, 12)
    return train_step(method, stepper, random_batch(), 0, plan, context, 2, scaler=scaler).read(), method


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon"])
def test_train_step_with_loss_scaling_in_fp32_is_unchanged(optimizer):
    plain, expected = stepped(nullcontext(), None, optimizer)
    metrics, found = stepped(nullcontext(), GradScaler("cpu", init_scale=2.0**10), optimizer)
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=0, atol=1e-7)
    assert metrics == pytest.approx(plain | {"loss_scale": 2**10, "skipped": 0}, rel=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon"])
def test_train_step_with_overflow_skips_the_update(optimizer):
    scaler = GradScaler("cpu", init_scale=2.0**120)
    metrics, method = stepped(autocast("fp16", CPU), scaler, optimizer)
    torch.testing.assert_close(
        method.student.state_dict(), build(CONFIG).student.state_dict(), rtol=0, atol=0
    )
    assert metrics["skipped"] == 1
    assert "gradient_norm_backbone" not in metrics
    assert scaler.get_scale() == 2.0**119
    assert method.center.norm() > 0  # it needs no gradient


def test_resume_restores_the_loss_scale_in_fp16_only(images, tmp_path):
    run, images = Run(tmp_path / "run"), open_images(images)
    first, again = (Session(SMALL, images, precision="fp16") for _ in range(2))
    first.scaler.scale(torch.ones(()))
    first.scaler.update(512.0)
    assert first.train(run, callbacks=Callbacks(interrupted=lambda: True)) == 1
    assert again.resume(run) == 1
    assert again.scaler.state_dict() == first.scaler.state_dict()
    assert again.train(run, 1) == 2
    assert [line["loss_scale"] for line in run.lines()] == [512, 512]
    assert Session(SMALL, images).resume(run) == 2  # in fp32
