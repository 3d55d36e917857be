import copy

import pytest
import torch
from torch import nn

from dino_model.backbones import BackboneConfig, create_backbone
from training.optim import (
    clip_grad_per_tensor,
    create_optimizer,
    decay_groups,
    move_average,
    set_rates,
)


def test_clip_grad_per_tensor_uses_the_norm_of_each_tensor():
    small, large = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(4, 4))
    small.grad, large.grad = torch.full((3,), 0.1), torch.full((4, 4), 5.0)
    untouched = nn.Parameter(torch.zeros(2))
    clip_grad_per_tensor([small, large, untouched], max_norm=2.0)
    torch.testing.assert_close(small.grad, torch.full((3,), 0.1))
    torch.testing.assert_close(large.grad, torch.full((4, 4), 5.0) * 2 / (20 + 1e-6))
    assert untouched.grad is None


def test_move_average_has_its_closed_form():
    teacher, student = [torch.zeros(3)], [torch.ones(3)]
    for _ in range(5):
        move_average(teacher, student, 0.9)
    torch.testing.assert_close(teacher[0], torch.full((3,), 1 - 0.9**5))


def test_weight_decay_reaches_the_decayed_group_only():
    optimizer = torch.optim.AdamW(decay_groups(nn.Linear(3, 2)), lr=0.0)
    set_rates(optimizer, 0.5, 0.3)
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [
        (0.5, 0.3),
        (0.5, 0.0),
    ]


@pytest.fixture
def vit():
    torch.manual_seed(0)
    return create_backbone(BackboneConfig("vit_tiny", 8, image_size=16, width=12, depth=2, heads=2))


def stepped(vit, name, steps=1):
    """Parameters by name after steps along fixed gradients, and the optimizer."""
    optimizer = create_optimizer(name, decay_groups(vit), torch.device("cpu"))
    set_rates(optimizer, 0.01, 0.0)
    for step in range(steps):
        torch.manual_seed(step)
        for parameter in vit.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    return {name: p.detach().clone() for name, p in vit.named_parameters()}, optimizer


def test_muon_updates_matrices_of_blocks_only(vit):
    before = {name: p.detach().clone() for name, p in vit.named_parameters()}
    start = {name: tensor.clone() for name, tensor in vit.state_dict().items()}
    with_muon, _ = stepped(vit, "muon")
    vit.load_state_dict(start)
    with_adamw, _ = stepped(vit, "adamw")
    for name, parameter in before.items():
        inside = name.startswith("blocks.") and parameter.ndim == 2
        assert torch.equal(with_muon[name], with_adamw[name]) != inside, name


@pytest.mark.parametrize(("bf16", "tolerance"), [(True, 0.0), (False, 0.003)])
def test_muon_equals_torch_muon(vit, monkeypatch, bf16, tolerance):
    """The bf16 of torch's Muon leaves the singular values uncertain by some percent."""
    monkeypatch.setattr("training.optim.has_bf16", lambda _device: bf16)
    plain = copy.deepcopy(vit)
    ours, _ = stepped(vit, "muon", steps=3)
    inside = {n: p for n, p in plain.named_parameters() if n.startswith("blocks.") and p.ndim == 2}
    optimizer = torch.optim.Muon(inside.values(), 0.01, weight_decay=0, adjust_lr_fn="match_rms_adamw")
    for step in range(3):
        torch.manual_seed(step)
        for parameter in plain.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    for name, parameter in inside.items():
        torch.testing.assert_close(ours[name], parameter.detach(), atol=tolerance, rtol=0.0, msg=name)


def test_sgd_has_momentum_09():
    layer = nn.Linear(1, 1, bias=False)
    optimizer = create_optimizer("sgd", decay_groups(layer), torch.device("cpu"))
    set_rates(optimizer, 0.1, 0.0)
    moves = []
    for gradient in (1.0, 0.0):
        before = layer.weight.item()
        layer.weight.grad = torch.full((1, 1), gradient)
        optimizer.step()
        moves.append(layer.weight.item() - before)
    assert moves[1] == pytest.approx(0.9 * moves[0], rel=1e-4)
