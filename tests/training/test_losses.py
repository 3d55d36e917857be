import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from training import losses


def double_loop(student, targets, temperature):
    """Eq. 3 as the paper writes it: every teacher view with every other crop, one cross-entropy a pair."""
    pairs = []
    for v, target in enumerate(targets):
        for c, logits in enumerate(student):
            if c != v:
                pairs.append(-(target * F.log_softmax(logits / temperature, dim=-1)).sum(-1).mean())
    return torch.stack(pairs).mean(), len(pairs)


@given(
    crops=st.integers(2, 6), batch=st.integers(1, 4), prototypes=st.integers(2, 40), seed=st.integers(0, 1000)
)
@settings(max_examples=50, deadline=None)
def test_loss_and_gradient_equal_the_double_loop(crops, batch, prototypes, seed):
    generator = torch.Generator().manual_seed(seed)
    student = torch.randn(crops, batch, prototypes, generator=generator, dtype=torch.float64)
    targets = torch.randn(2, batch, prototypes, generator=generator, dtype=torch.float64).softmax(-1)
    ours, plain = student.clone().requires_grad_(), student.clone().requires_grad_()
    loss = losses.multi_crop_cross_entropy(ours, targets, 0.1)
    expected, pairs = double_loop(plain, targets, 0.1)
    assert pairs == 2 * (crops - 1)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss.double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.grad, plain.grad, rtol=1e-3, atol=1e-5)


def test_uniform_outputs_cost_ln_k():
    targets = torch.full((2, 3, 64), 1 / 64)
    loss = losses.multi_crop_cross_entropy(torch.zeros(5, 3, 64), targets, 0.1)
    assert loss.item() == pytest.approx(math.log(64), abs=1e-5)
    assert losses.entropy(targets).item() == pytest.approx(math.log(64), abs=1e-5)


def test_one_crop_alone_has_no_pair():
    with pytest.raises(ValueError, match="no pair"):
        losses.multi_crop_cross_entropy(torch.zeros(1, 3, 8), torch.zeros(1, 3, 8), 0.1)


def test_center_does_not_depend_on_how_the_batch_is_cut():
    logits = torch.randn(2, 6, 16)
    whole, parts = losses.Center(16, 0.9), losses.Center(16, 0.9)
    whole.update(logits)
    parts.update(torch.cat([logits[:, :3], logits[:, 3:]], dim=1))
    torch.testing.assert_close(whole.value, parts.value)
    torch.testing.assert_close(whole.value, 0.1 * logits.mean((0, 1))[None])


def test_one_hot_targets_have_no_entropy():
    assert losses.entropy(torch.eye(4)).item() == 0
