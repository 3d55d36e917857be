"""MoCo-v2's loss, gradient, queue and key encoder agree, step by step."""

import numpy as np
import pytest
import torch

from dino_model.head import HeadConfig
from tests.oracles.arrays import PRECISIONS, agree, tensors
from tests.oracles.echo import Echo, batch_of
from training.methods.configs import MethodSchedules, MoCoConfig
from training.methods.moco import MoCo


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_every_step_agrees(oracle, dtype, tolerance):
    file = tensors(oracle("moco"))
    width, length = file["queue_initial"].shape
    steps = int(file["steps"])
    config = MoCoConfig(HeadConfig(width, bottleneck=None), float(file["temperature"]), queue=length)
    schedules = MethodSchedules(np.full(steps, float(file["momentum"])))
    student, teacher = (Echo(row, tensors(file, "key_weights_initial/")) for row in (0, 1))
    moco = MoCo(student, teacher, config, schedules).to(dtype)
    moco.queue.vectors.copy_(file["queue_initial"].T)
    moco.queue.seen.copy_(file["queue_pointer_initial"])

    for step in range(steps):
        query = file[f"step{step}/q"].to(dtype).requires_grad_()
        key = file[f"step{step}/k"].to(dtype)
        # The first view is the query's, the second the key's; the other two outputs may not matter.
        noise = torch.randn_like(key)
        batch = batch_of(torch.stack([query, noise]), torch.stack([noise, key]))
        loss = moco(batch, step)
        (gradient,) = torch.autograd.grad(loss.value, query)
        agree(loss.value, file[f"step{step}/loss"], tolerance)
        agree(gradient, file[f"step{step}/q_grad"], tolerance)
        with torch.no_grad():
            for name, value in tensors(file, f"step{step}/query_weights/").items():
                getattr(moco.student, name).copy_(value)
        moco.after_step(step, [loss.carry])
        agree(moco.queue.vectors.T, file[f"step{step}/queue_after"], tolerance)
        assert int(moco.queue.seen) % length == int(file[f"step{step}/queue_pointer_after"])
        for name, weight in tensors(file, f"step{step}/key_weights/").items():
            agree(getattr(moco.teacher, name), weight, tolerance, name)
