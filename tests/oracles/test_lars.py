"""LARS agrees with the official code's, tensor by tensor and step by step."""

import pytest
import torch
from torch import nn

from training.optim import LARS


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_parameters_and_momenta_agree_at_every_step(oracle, dtype, tolerance):
    file = {name: torch.as_tensor(array) for name, array in oracle("lars").items()}
    parameters = {
        key.removeprefix("initial/"): nn.Parameter(value.to(dtype))
        for key, value in file.items()
        if key.startswith("initial/")
    }
    optimizer = LARS(
        [{"params": list(parameters.values())}], momentum=float(file["momentum"]), eta=float(file["eta"])
    )
    compared = 0
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
                expected = file[f"step{step}/{kind}/{name}"]
                scale = max(expected.abs().max().item(), 1e-3)
                torch.testing.assert_close(
                    tensor.double(),
                    expected,
                    atol=tolerance * scale,
                    rtol=0,
                    msg=lambda text, where=(step, kind, name): f"{where}: {text}",
                )
                compared += 1
    assert compared == 2 * len(parameters) * int(file["steps"])
