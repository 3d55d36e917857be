"""Every method on a ResNet-50, with batch normalisation and the optimizers of the methods' papers."""

from contextlib import nullcontext

import pytest
import torch

from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from tests.training.methods.tiny import random_batch
from training.methods.configs import BYOLConfig, MoCoConfig, SupervisedConfig, SwAVConfig
from training.methods.dino_config import DINOConfig
from training.optim import create_optimizer
from training.recipe import Plan
from training.train import train_step

HEAD = HeadConfig(16, layers=2, hidden=16, bottleneck=None, batch_norm=True, activation="relu")


@pytest.mark.parametrize(
    ("config", "optimizer"),
    [
        (DINOConfig(HeadConfig(16, hidden=16, bottleneck=8)), "sgd"),
        (BYOLConfig(HEAD, predictor=16), "lars"),
        (MoCoConfig(HEAD, queue=8), "sgd"),
        (SwAVConfig(HeadConfig(16, layers=2, hidden=16, bottleneck=8, batch_norm=True)), "lars"),
        (SupervisedConfig(), "sgd"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_method_trains_a_resnet(config, optimizer):
    torch.manual_seed(0)
    ones = torch.ones(2).numpy()
    plan = Plan(0.01 * ones, 1e-4 * ones, 0.0, config.schedules(2, 1), 1)
    method = config.build(BackboneConfig("resnet50"), plan.method, 2)
    network = next(iter(method.backbones().values()))
    before = [parameter.detach().clone() for parameter in network.parameters()]
    batch = random_batch(local=1, labels=torch.tensor([0, 1, 0, 1]))
    stepper = create_optimizer(optimizer, method.parameter_groups(), torch.device("cpu"))
    for step in range(2):
        logs = train_step(method, stepper, batch, step, plan, nullcontext()).read()
        assert torch.isfinite(torch.tensor(list(logs.values()))).all()
    assert not all(torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))
