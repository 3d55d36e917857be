"""MoCo-v2's loss, gradient, queue and key encoder agree, step by step."""

import numpy as np
import pytest
import torch

from dino_model.head import HeadConfig
from tests.oracles.echo import Echo, batch_of
from training.methods.configs import MoCoConfig, MomentumSchedule
from training.methods.moco import MoCo


def weights(file, prefix):
    return {key.removeprefix(prefix): value for key, value in file.items() if key.startswith(prefix)}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_every_step_agrees(oracle, dtype, tolerance):
    file = {name: torch.as_tensor(array) for name, array in oracle("moco").items()}
    width, length = file["queue_initial"].shape
    steps = int(file["steps"])
    config = MoCoConfig(HeadConfig(width, bottleneck=None), float(file["temperature"]), queue=length)
    schedules = MomentumSchedule(np.full(steps, float(file["momentum"])))
    student, teacher = (Echo(row, weights(file, "key_weights_initial/")) for row in (0, 1))
    moco = MoCo(student, teacher, config, schedules).to(dtype)
    moco.queue.vectors.copy_(file["queue_initial"].T)
    moco.queue.seen.copy_(file["queue_pointer_initial"])

    def agree(found, name):
        expected = file[name]
        scale = max(expected.abs().max().item(), 1e-3)
        torch.testing.assert_close(
            found.detach().double(),
            expected.double(),
            atol=tolerance * scale,
            rtol=0,
            msg=lambda text: f"{name}: {text}",
        )

    for step in range(steps):
        query = file[f"step{step}/q"].to(dtype).requires_grad_()
        key = file[f"step{step}/k"].to(dtype)
        # The first view is the query's, the second the key's; the other two outputs may not matter.
        noise = torch.randn_like(key)
        batch = batch_of(torch.stack([query, noise]), torch.stack([noise, key]))
        loss = moco(batch, step)
        (gradient,) = torch.autograd.grad(loss.value, query)
        agree(loss.value, f"step{step}/loss")
        agree(gradient, f"step{step}/q_grad")
        with torch.no_grad():
            for name, value in weights(file, f"step{step}/query_weights/").items():
                getattr(moco.student, name).copy_(value)
        moco.after_step(step, [loss.carry])
        agree(moco.queue.vectors.T, f"step{step}/queue_after")
        assert int(moco.queue.seen) % length == int(file[f"step{step}/queue_pointer_after"])
        for name in weights(file, f"step{step}/key_weights/"):
            agree(getattr(moco.teacher, name), f"step{step}/key_weights/{name}")
