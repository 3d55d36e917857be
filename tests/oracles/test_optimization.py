"""The plan of a recipe, the decayed tensors and the steps of LARS agree with the official code."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from dino_model.models.backbones import BackboneConfig, create_backbone
from tests.oracles.arrays import agree, tensors
from training.methods.dino_config import DINOConfig
from training.methods.head import HeadConfig, ProjectionHead
from training.methods.network import Network
from training.optim import LARS, decay_groups
from training.recipes.recipe import OptimizerConfig, Plan, Recipe


def test_plan_agrees_to_the_last_digits(oracle):
    file = oracle("schedules")
    epochs, per_epoch = int(file["epochs"]), int(file["iterations_per_epoch"])
    recipe = Recipe(
        method=DINOConfig(
            teacher_momentum=float(file["teacher_momentum_start"]),
            teacher_temperature_start=float(file["teacher_temperature_start"]),
            teacher_temperature=float(file["teacher_temperature_end"]),
            teacher_temperature_warmup_epochs=int(file["teacher_temperature_warmup_epochs"]),
        ),
        optimizer=OptimizerConfig(
            lr=float(file["peak_lr"]),
            min_lr=float(file["final_lr"]),
            warmup_epochs=int(file["warmup_epochs"]),
            weight_decay=float(file["weight_decay_start"]),
            weight_decay_end=float(file["weight_decay_end"]),
        ),
        epochs=epochs,
        batch_size=256,
    )
    plan = Plan.of(recipe, num_images=per_epoch * 256 + 255)
    assert float(file["teacher_momentum_end"]) == 1
    found = {
        "lr": plan.lr,
        "weight_decay": plan.weight_decay,
        "teacher_momentum": plan.method.teacher_momentum,
        "teacher_temperature": plan.method.teacher_temperature[::per_epoch],
    }
    for name, schedule in found.items():
        np.testing.assert_allclose(schedule, file[name], atol=1e-12, rtol=0, err_msg=name)
    assert np.array_equal(plan.method.teacher_temperature, file["teacher_temperature"].repeat(per_epoch))


def test_decayed_tensors_agree(oracle_folder):
    expected = json.loads((oracle_folder / "param_groups.json").read_text())
    names = {*expected["decayed"], *expected["not_decayed"]}
    depth = len({name.split(".")[2] for name in names if ".blocks." in name})
    layers = sum(name.startswith("head.mlp.") and name.endswith(".weight") for name in names)
    backbone = create_backbone(BackboneConfig("vit_tiny", 8, 64, width=48, depth=depth, heads=3))
    head = ProjectionHead(
        48, HeadConfig(96, layers, 64, 16, train_gain=any("weight_g" in name for name in names))
    )
    decayed, plain = decay_groups(Network(backbone, head))
    assert set(decayed["param_names"]) == set(expected["decayed"])
    assert set(plain["param_names"]) == set(expected["not_decayed"])
    assert (decayed["decayed"], plain["decayed"]) == (True, False)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_parameters_and_momenta_of_lars_agree_at_every_step(oracle, dtype, tolerance):
    file = tensors(oracle("lars"))
    initial = tensors(oracle("lars"), "initial/")
    parameters = {name: nn.Parameter(value.to(dtype)) for name, value in initial.items()}
    optimizer = LARS(
        [{"params": list(parameters.values())}], momentum=float(file["momentum"]), eta=float(file["eta"])
    )
    for step in range(int(file["steps"])):
        for name, parameter in parameters.items():
            gradient = file.get(f"step{step}/grad/{name}")
            parameter.grad = None if gradient is None else gradient.to(dtype)
        optimizer.param_groups[0].update(
            lr=float(file["lr"][step]), weight_decay=float(file["weight_decay"][step])
        )
        optimizer.step()
        for name, parameter in parameters.items():
            found = {"param": parameter.detach(), "momentum": optimizer.state[parameter]["momentum"]}
            for kind, tensor in found.items():
                place = f"step{step}/{kind}/{name}"
                agree(tensor, file[place], tolerance, place)
