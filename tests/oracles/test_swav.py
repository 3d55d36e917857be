"""SwAV's codes, loss, gradients and queue agree, step by step, with a queue and without."""

import pytest
import torch

from dino_model.head import HeadConfig
from tests.oracles.arrays import PRECISIONS, agree, tensors
from tests.oracles.echo import Echo, batch_of
from training.losses import unit
from training.methods.configs import MethodSchedules, SwAVConfig
from training.methods.swav import SwAV


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("setting", ["no_queue", "queue"])
def test_every_step_agrees(oracle, setting, dtype, tolerance):
    file = tensors(oracle("swav"))
    prototypes, width = file["prototypes"].shape
    length, crops = int(file["queue_length"]), int(file["ncrops"])
    config = SwAVConfig(
        HeadConfig(prototypes, bottleneck=width),
        temperature=float(file["temperature"]),
        epsilon=float(file["epsilon"]),
        sinkhorn_iterations=int(file["sinkhorn_iterations"]),
        queue=length if setting == "queue" else 0,
    )
    swav = SwAV(Echo(0), config, MethodSchedules(frozen_steps=0, queue_step=0)).to(dtype)
    with torch.no_grad():
        swav.prototypes.copy_(unit(file["prototypes"].to(dtype)))

    def compare(found, name):
        agree(found, file[name], tolerance, name)

    compare(swav.prototypes, "prototypes_normalised")
    for step in range(int(file["steps"])):
        features = file[f"step{step}/features"].to(dtype).unflatten(0, (crops, -1)).requires_grad_()
        assert features.shape[1] == int(file["batch"])
        loss = swav(batch_of(features, features[:2].detach()), step)
        of_features, of_prototypes = torch.autograd.grad(loss.value, [features, swav.prototypes])
        here = f"step{step}/{setting}"
        compare(loss.value, f"{here}/loss")
        compare(of_features.flatten(0, 1), f"{here}/features_grad")
        compare(of_prototypes, f"{here}/prototypes_grad")
        scores = unit(features) @ swav.prototypes.T
        compare(scores.flatten(0, 1), f"step{step}/scores")
        compare(swav.codes(scores[:2]), f"{here}/codes")
        if swav.queue is not None:
            assert swav.queue.full() == bool(file[f"{here}/used"])
        swav.after_step(step, [loss.carry])
        compare(swav.prototypes, "prototypes_normalised")
        if swav.queue is not None:
            compare(newest_first(swav, features.shape[1]), f"{here}/queue_after")


def newest_first(swav, batch):
    """The queue as the reference has it: [2, length, width], the newest batch first, zeros before any."""
    blocks = swav.queue.vectors.unflatten(0, (-1, batch)).unflatten(2, (2, -1))  # [blocks, batch, 2, width]
    put = int(swav.queue.seen) // batch
    order = [place % len(blocks) for place in range(put - 1, put - 1 - len(blocks), -1)]
    known = torch.tensor([put - age > 0 for age in range(len(blocks))])
    return (blocks[order] * known[:, None, None, None]).flatten(0, 1).transpose(0, 1)
