"""DINO on a batch in parts, SwAV and MoCo-v2 agree, step by step, for given outputs of the networks."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.oracles.arrays import PRECISIONS, agree, tensors
from training.augmentation.crops import Crops
from training.augmentation.randomness import Randomness
from training.losses import multi_crop_cross_entropy, unit
from training.methods.config import MethodSchedules
from training.methods.dino import DINO
from training.methods.dino_config import DINOConfig
from training.methods.head import HeadConfig
from training.methods.method import Batch
from training.methods.moco import MoCo
from training.methods.moco_config import MoCoConfig
from training.methods.swav import SwAV
from training.methods.swav_config import SwAVConfig
from training.optim import decay_groups
from training.recipes.recipe import Plan
from training.train import train_step

each_precision = pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)


class Echo(nn.Module):
    """Gives one of the two rows of crops [crops, batch, 2, 1, width]: the student's or the teacher's."""

    def __init__(self, row: int, weights: dict[str, Tensor] | None = None) -> None:
        super().__init__()
        self.row, self.backbone, self.head = row, nn.Identity(), nn.Identity()
        self.head.cross_entropy = multi_crop_cross_entropy
        for name, weight in (weights or {}).items():
            self.register_parameter(name, nn.Parameter(weight.clone()))

    def forward(self, *groups: Tensor, randomness: Randomness | None = None) -> Tensor:
        return torch.cat([group[:, :, self.row, 0] for group in groups])

    def project(self, *groups: Tensor, randomness: Randomness | None = None) -> Tensor:
        return self(*groups)


def batch_of(student: Tensor, teacher: Tensor) -> Batch:
    """A batch for which `Echo` gives these outputs.

    Args:
        student: [crops, batch, width], views first.
        teacher: [2, batch, width] of the views.
    """
    rest = student.new_zeros(len(student) - 2, *student.shape[1:])
    both = torch.stack([student, torch.cat([teacher, rest])], dim=2).unsqueeze(3)
    return Batch(Crops(both[:2], both[2:]), None, Randomness(0, 0, 0, student.shape[1]))


@each_precision
@pytest.mark.parametrize("split", range(3))
def test_loss_gradient_and_center_agree_however_a_batch_is_split(oracle, split, dtype, tolerance):
    file = tensors(oracle("accumulation"))
    parts, images = file["splits"][split].tolist()
    assert parts * images == int(file["pictures"])
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


@each_precision
@pytest.mark.parametrize("setting", ["no_queue", "queue"])
def test_every_step_of_swav_agrees(oracle, setting, dtype, tolerance):
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
    put = int(swav.queue.total) // batch
    order = [place % len(blocks) for place in range(put - 1, put - 1 - len(blocks), -1)]
    known = torch.tensor([put - age > 0 for age in range(len(blocks))])
    return (blocks[order] * known[:, None, None, None]).flatten(0, 1).transpose(0, 1)


@each_precision
def test_every_step_of_moco_agrees(oracle, dtype, tolerance):
    file = tensors(oracle("moco"))
    width, length = file["queue_initial"].shape
    steps = int(file["steps"])
    config = MoCoConfig(HeadConfig(width, bottleneck=None), float(file["temperature"]), queue=length)
    schedules = MethodSchedules(np.full(steps, float(file["momentum"])))
    student, teacher = (Echo(row, tensors(file, "key_weights_initial/")) for row in (0, 1))
    moco = MoCo(student, teacher, config, schedules).to(dtype)
    moco.queue.vectors.copy_(file["queue_initial"].T)
    moco.queue.total.copy_(file["queue_pointer_initial"])

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
        assert int(moco.queue.total) % length == int(file[f"step{step}/queue_pointer_after"])
        for name, weight in tensors(file, f"step{step}/key_weights/").items():
            agree(getattr(moco.teacher, name), weight, tolerance, name)
