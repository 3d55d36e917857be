"""Half precision: the loss is scaled so that gradients are held; where they are not, a step is skipped."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch.amp import GradScaler

from dino_model.collections import open_images
from dino_model.device import autocast
from dino_model.head import HeadConfig
from tests.training.methods.tiny import build, random_batch
from tests.training.pictures import noise
from tests.training.ranks import RECIPE
from training.methods.dino_config import DINOConfig
from training.optim import create_optimizer
from training.recipe import OptimizerConfig, Plan
from training.run import Run
from training.session import Session
from training.train import Callbacks, train_step

CPU = torch.device("cpu")
# A narrower head starts with so short a bottleneck that its gradient is beyond half precision.
CONFIG = DINOConfig(HeadConfig(16, hidden=512, bottleneck=16), freeze_last_layer_epochs=0)
SGD = replace(RECIPE, method=CONFIG, batch_size=4, optimizer=OptimizerConfig("sgd", lr=1.0, warmup_epochs=0))


def stepped(context, scaler, optimizer="sgd", accumulate=2):
    """Weights, and what was logged, after a step."""
    method, plan = build(CONFIG), Plan.of(SGD, 12)
    stepper = create_optimizer(optimizer, method.parameter_groups(), CPU)
    torch.manual_seed(1)
    figures = train_step(method, stepper, random_batch(), 0, plan, context, accumulate, scaler=scaler)
    return dict(method.student.named_parameters()), figures.read(), method


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon"])
def test_train_step_with_loss_scaling_in_fp32_is_unchanged(optimizer):
    """By a power of two, in fp32: gradients and their norms are those that are not scaled."""
    expected, plain, _ = stepped(nullcontext(), None, optimizer)
    found, logs, _ = stepped(nullcontext(), GradScaler("cpu", init_scale=2.0**10), optimizer)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)
    assert logs["loss_scale"] == 2**10
    assert logs["skipped"] == 0
    assert {name: logs[name] for name in plain} == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon"])
def test_train_step_with_overflow_skips_the_update(optimizer):
    """A scale beyond all half precision: the step is left out, told, and the next scale is half of it."""
    scaler = GradScaler("cpu", init_scale=2.0**120)
    found, logs, method = stepped(autocast("fp16", CPU), scaler, optimizer)
    start = build(CONFIG)
    torch.testing.assert_close(found, dict(start.student.named_parameters()), rtol=0, atol=0)
    assert logs["skipped"] == 1
    assert "gradient_norm_backbone" not in logs
    assert scaler.get_scale() == 2.0**119
    assert method.center.norm() > 0  # what does not hang on gradients goes on


def test_resume_restores_the_loss_scale_in_fp16_only(tmp_path):
    images = open_images(noise(tmp_path / "pictures", 16, 2, 20, 20))
    run, recipe = Run(tmp_path / "run"), replace(RECIPE, method=CONFIG, epochs=2)
    first = Session(recipe, images, precision="fp16")
    first.scaler.scale(torch.ones(()))
    first.scaler.update(512.0)
    assert first.train(run, callbacks=Callbacks(interrupted=lambda: True)) == 1
    again = Session(recipe, images, precision="fp16")
    assert again.resume(run) == 1
    assert again.scaler.state_dict() == first.scaler.state_dict()
    assert again.scaler.get_scale() == 512
    assert again.train(run, 1) == 2
    assert [line["loss_scale"] for line in run.lines()] == [512, 512]
    assert Session(recipe, images).resume(run) == 2  # in fp32
