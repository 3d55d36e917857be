import pytest
import torch
from torch import nn

from training.optim import clip_each, decay_groups, move_average, set_rates


def test_every_tensor_is_clipped_to_its_own_norm():
    small, large = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(4, 4))
    small.grad, large.grad = torch.full((3,), 0.1), torch.full((4, 4), 5.0)
    untouched = nn.Parameter(torch.zeros(2))
    clip_each([small, large, untouched], max_norm=2.0)
    torch.testing.assert_close(small.grad, torch.full((3,), 0.1))
    torch.testing.assert_close(large.grad, torch.full((4, 4), 5.0) * 2 / (20 + 1e-6))
    assert untouched.grad is None


def test_clipping_without_gradients_does_nothing():
    clip_each([nn.Parameter(torch.zeros(2))], max_norm=1.0)


def test_average_has_its_closed_form():
    teacher, student = [torch.zeros(3)], [torch.ones(3)]
    for _ in range(5):
        move_average(teacher, student, 0.9)
    torch.testing.assert_close(teacher[0], torch.full((3,), 1 - 0.9**5))


def test_momentum_one_freezes_the_teacher():
    teacher = [torch.randn(3)]
    before = teacher[0].clone()
    move_average(teacher, [torch.randn(3)], 1.0)
    assert torch.equal(teacher[0], before)


def test_weight_decay_reaches_the_decayed_group_only():
    optimizer = torch.optim.AdamW(decay_groups(nn.Linear(3, 2)), lr=0.0)
    set_rates(optimizer, 0.5, 0.3)
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [
        (0.5, 0.3),
        (0.5, 0.0),
    ]


def test_frozen_tensors_are_in_no_group():
    layer = nn.Linear(3, 2).requires_grad_(False)
    assert sum(len(group["params"]) for group in decay_groups(layer)) == pytest.approx(0)
