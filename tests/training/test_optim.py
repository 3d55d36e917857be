import copy
import math

import pytest
import torch
from torch import nn

from tests.training.runs import RECIPE
from training.methods.network import create_network
from training.optim import clip_gradients, create_optimizer, decay_groups, set_rates

CPU = torch.device("cpu")


@pytest.mark.parametrize(("bf16", "tolerance"), [(True, 0.0), (False, 0.003)])
def test_muon_equals_torch_muon_on_matrices_of_blocks_and_adamw_elsewhere(bf16, tolerance, monkeypatch):
    """The bf16 of torch's Muon leaves the singular values uncertain by some percent."""
    monkeypatch.setattr("training.optim.has_bf16", lambda _device: bf16)
    network = create_network(RECIPE.backbone, RECIPE.method.head)
    plain = copy.deepcopy(network)
    trained = {n: p for n, p in plain.named_parameters() if p.requires_grad}
    inside = {n: p for n, p in trained.items() if ".blocks." in n and p.ndim == 2}
    others = [
        {"params": [p for n, p in trained.items() if n not in inside and (p.ndim > 1) == decayed]}
        | {"weight_decay": 0.5 * decayed}
        for decayed in (True, False)
    ]
    muon = torch.optim.Muon(inside.values(), 0.01, weight_decay=0.5, adjust_lr_fn="match_rms_adamw")
    ours = create_optimizer("muon", decay_groups(network), CPU)
    set_rates(ours, 0.01, 0.5)
    adamw = torch.optim.AdamW(others, 0.01, fused=True)
    for _ in range(3):
        for parameter, reference in zip(network.parameters(), plain.parameters(), strict=True):
            parameter.grad = torch.randn_like(parameter)
            reference.grad = parameter.grad.clone()
        for optimizer in (ours, muon, adamw):
            optimizer.step()
    for name, parameter in network.named_parameters():
        atol = tolerance if name in inside else 0.0
        torch.testing.assert_close(parameter, plain.get_parameter(name), atol=atol, rtol=0.0, msg=name)


def test_sgd_has_momentum_09():
    layer = nn.Linear(1, 1, bias=False)
    start = layer.weight.item()
    optimizer = create_optimizer("sgd", decay_groups(layer), CPU)
    set_rates(optimizer, 0.1, 0.0)
    for gradient in (1.0, 0.0):
        layer.weight.grad = torch.full((1, 1), gradient)
        optimizer.step()
    assert start - layer.weight.item() == pytest.approx(0.1 * (1 + 0.9), rel=1e-4)


def test_lars_moves_a_matrix_by_a_thousandth_of_its_norm_with_momentum_09():
    layer = nn.Linear(2, 1)
    nn.init.constant_(layer.weight, 3.0)
    optimizer = create_optimizer("lars", decay_groups(layer), CPU)
    set_rates(optimizer, 0.1, 0.0)
    for gradient, moved in ((1.0, 0.001), (0.0, 0.9 * 0.001)):
        before = layer.weight.detach().clone()
        layer.weight.grad = torch.full((1, 2), gradient)
        optimizer.step()
        torch.testing.assert_close(
            before - layer.weight, torch.full((1, 2), 0.1 * 3 * moved), rtol=1e-3, atol=0
        )


def test_gradients_are_clipped_to_their_own_norms_plus_1e_6_and_the_norms_of_both_parts_returned():
    values = {"head.a": 1e-6, "backbone.a": 0.5, "backbone.b": 50.0, "head.b": None}
    parameters = {name: nn.Parameter(torch.zeros(4)) for name in values}
    for name, value in values.items():
        if value:
            parameters[name].grad = torch.full((4,), value)  # of the norm 2 * value
    groups = [{"params": [*parameters.values()], "param_names": [*parameters], "decayed": False}]
    norms = {"gradient_norm_backbone": math.hypot(1, 100), "gradient_norm_head": 2e-6}
    for max_norm in (0.0, 1e-6):
        assert {n: v.item() for n, v in clip_gradients(groups, max_norm).items()} == pytest.approx(norms)
        for name, value in values.items():
            if value:
                factor = 1e-6 / (2 * value + 1e-6) if max_norm else 1
                assert parameters[name].grad[0].item() == pytest.approx(value * factor, rel=1e-5)
    before = parameters["backbone.a"].grad.clone()
    clip_gradients(groups, 3.0)
    assert torch.equal(parameters["backbone.a"].grad, before)
