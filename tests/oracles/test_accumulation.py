"""A batch in parts gives the loss, gradient and center of the whole, as the official code has them."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from dino_model.head import HeadConfig
from tests.oracles.arrays import PRECISIONS, agree, tensors
from tests.oracles.echo import Echo, batch_of
from training.methods.configs import MethodSchedules
from training.methods.dino import DINO
from training.methods.dino_config import DINOConfig
from training.optim import decay_groups
from training.recipe import Plan
from training.train import train_step


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("split", range(3))
def test_loss_gradient_and_center_agree_however_a_batch_is_split(oracle, split, dtype, tolerance):
    file = tensors(oracle("accumulation"))
    parts, pictures = file["splits"][split].tolist()
    assert parts * pictures == int(file["pictures"])
    config = DINOConfig(
        HeadConfig(file["center_before"].shape[1], bottleneck=None),
        student_temperature=float(file["student_temperature"]),
        center_momentum=float(file["center_momentum"]),
    )
    schedules = MethodSchedules(np.ones(1), np.full(1, float(file["teacher_temperature"])), 0)
    weights = {"unused": torch.ones(1)}
    dino = DINO(Echo(0, weights), Echo(1, weights), config, schedules).to(dtype)
    dino.center.copy_(file["center_before"])
    student = file["student_output"].to(dtype).unflatten(0, (int(file["ncrops"]), -1)).requires_grad_()
    batch = batch_of(student, file["teacher_output"].to(dtype).unflatten(0, (2, -1)))
    plan = Plan(np.zeros(1), np.zeros(1), 0.0, schedules, 1)
    optimizer = torch.optim.SGD(decay_groups(dino), lr=0.0)
    logs = train_step(dino, optimizer, batch, 0, plan, nullcontext(), accumulate=parts).read()
    agree(torch.tensor(logs["loss"], dtype=dtype), file["loss"], tolerance)
    agree(student.grad.flatten(0, 1), file["student_grad"], tolerance)
    agree(dino.center, file["center_after"], tolerance)
