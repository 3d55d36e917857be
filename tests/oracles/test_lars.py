"""LARS agrees with the official code's, tensor by tensor and step by step."""

import pytest
import torch
from torch import nn

from tests.oracles.arrays import agree, tensors
from training.optim import LARS


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_parameters_and_momenta_agree_at_every_step(oracle, dtype, tolerance):
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
