import copy

import pytest
import torch
from torch import nn

from tests.training.runs import RECIPE
from training.methods.network import create_network
from training.optim import (
    clip_grad_per_tensor,
    create_optimizer,
    decay_groups,
    move_average,
    set_rates,
)

CPU = torch.device("cpu")


def test_clip_grad_per_tensor_uses_the_norm_of_each_tensor():
    small, large, untouched = (nn.Parameter(torch.zeros(shape)) for shape in ((3,), (4, 4), (2,)))
    small.grad, large.grad = torch.full((3,), 0.1), torch.full((4, 4), 5.0)
    clip_grad_per_tensor([small, large, untouched], max_norm=2.0)
    torch.testing.assert_close(small.grad, torch.full((3,), 0.1))
    torch.testing.assert_close(large.grad, torch.full((4, 4), 5.0) * 2 / (20 + 1e-6))
    assert untouched.grad is None


def test_move_average_has_its_closed_form():
    teacher, student = [torch.zeros(3)], [torch.ones(3)]
    for _ in range(5):
        move_average(teacher, student, 0.9)
    torch.testing.assert_close(teacher[0], torch.full((3,), 1 - 0.9**5))


def test_set_rates_decays_the_decayed_group_only():
    optimizer = torch.optim.AdamW(decay_groups(nn.Linear(3, 2)), lr=0.0)
    set_rates(optimizer, 0.5, 0.3)
    rates = [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    assert rates == [(0.5, 0.3), (0.5, 0.0)]


@pytest.mark.parametrize(("bf16", "tolerance"), [(True, 0.0), (False, 0.003)])
def test_muon_equals_torch_muon_on_matrices_of_blocks_and_adamw_elsewhere(bf16, tolerance, monkeypatch):
    """The bf16 of torch's Muon leaves the singular values uncertain by some percent."""
    monkeypatch.setattr("training.optim.has_bf16", lambda _device: bf16)
    network = create_network(RECIPE.backbone, RECIPE.method.head)
    plain = copy.deepcopy(network)
    trained = {n: p for n, p in plain.named_parameters() if p.requires_grad}
    inside = {n: p for n, p in trained.items() if ".blocks." in n and p.ndim == 2}
    others = [p for n, p in trained.items() if n not in inside]
    muon = torch.optim.Muon(inside.values(), 0.01, weight_decay=0, adjust_lr_fn="match_rms_adamw")
    ours = create_optimizer("muon", decay_groups(network), CPU)
    set_rates(ours, 0.01, 0.0)
    adamw = torch.optim.AdamW(others, 0.01, weight_decay=0, fused=True)
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
