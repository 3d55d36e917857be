"""Every method on a ResNet-50, with batch normalization and the optimizers of the methods' papers."""

from contextlib import nullcontext

import pytest
import torch

from dino_model.models.backbones import BackboneConfig
from tests.training.methods.tiny import build, random_batch
from tests.training.runs import METHODS
from training.methods import table
from training.optim import create_optimizer, decay_groups
from training.recipes.recipe import Plan
from training.train import train_step


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("dino", "sgd"), ("byol", "lars"), ("moco-v2", "sgd"), ("swav", "lars"), ("supervised", "sgd")],
)
def test_every_method_trains_a_resnet(name, optimizer):
    method = build(METHODS[name], BackboneConfig("resnet50"), steps_per_epoch=1, classes=2)
    ones = torch.ones(2).numpy()
    plan = Plan(0.01 * ones, 1e-4 * ones, 0.0, METHODS[name].schedules(2, 1), 1)
    network = next(iter(method.backbones().values()))
    before = [parameter.detach().clone() for parameter in network.parameters()]
    batch = random_batch(local=1, labels=torch.tensor([0, 1, 0, 1]))
    stepper = create_optimizer(optimizer, decay_groups(method), torch.device("cpu"))
    for step in range(2):
        metrics = train_step(method, stepper, batch, step, plan, nullcontext()).read()
        assert torch.tensor(list(metrics.values())).isfinite().all()
    assert not all(torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


def test_every_method_of_the_table_is_one_of_those_that_tests_train():
    assert {method.name for method in METHODS.values()} == set(table.METHODS)
