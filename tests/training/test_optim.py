import copy

import pytest
import torch
from torch import nn

from tests.training.runs import RECIPE
from training.methods.network import create_network
from training.optim import clip_grad_per_tensor, create_optimizer, decay_groups, gradient_norms, set_rates

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


def test_each_gradient_is_clipped_to_its_own_norm_plus_1e_6():
    parameters = [nn.Parameter(torch.zeros(4)) for _ in range(3)]
    for parameter, value in zip(parameters, (1e-6, 0.5, 50.0), strict=True):
        parameter.grad = torch.full((4,), value)  # of the norm 2 * value
    clip_grad_per_tensor([*parameters, nn.Parameter(torch.zeros(4))], 1e-6)
    found = [parameter.grad[0].item() for parameter in parameters]
    expected = [value * 1e-6 / (2 * value + 1e-6) for value in (1e-6, 0.5, 50.0)]
    assert found == pytest.approx(expected, rel=1e-5)
    clip_grad_per_tensor(parameters, 3.0)
    assert [parameter.grad[0].item() for parameter in parameters] == found


def test_gradient_norms_are_those_of_the_backbone_and_of_the_rest():
    network = create_network(RECIPE.backbone, RECIPE.method.head)
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    parts = {"backbone": network.backbone, "head": network.head}
    counts = {
        name: sum(p.numel() for p in part.parameters() if p.requires_grad) for name, part in parts.items()
    }
    found = gradient_norms(decay_groups(network))
    assert {name: value.item() for name, value in found.items()} == pytest.approx(
        {f"gradient_norm_{name}": 0.5 * count**0.5 for name, count in counts.items()}
    )
