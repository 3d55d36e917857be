"""Sums and batch normalization over ranks, of which the second one computes the same in this process."""

import pytest
import torch
from torch import nn

from training import distributed


@pytest.fixture
def twin(monkeypatch):
    """Patch the ranks: this is the second of two, and every sum has an equal summand of the first."""
    monkeypatch.setattr(distributed, "world", lambda: 2)
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    monkeypatch.setattr(distributed.dist, "all_reduce", lambda tensor: tensor.mul_(2))


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4, 5)])
def test_batch_norm_over_ranks_equals_that_of_the_whole_batch(twin, shape):
    plain = nn.BatchNorm1d(3) if len(shape) == 2 else nn.BatchNorm2d(3)
    plain.momentum, plain.eps = 0.3, 0.01
    nn.init.normal_(plain.weight)
    nn.init.normal_(plain.bias)
    own = type(plain)(3, eps=0.01, momentum=0.3)
    own.load_state_dict(plain.state_dict())
    distributed.synchronise_batch_norm(own)
    features, weights = 3 * torch.randn(2, *shape) + 1
    mine, whole = features.clone().requires_grad_(), torch.cat([features, features]).requires_grad_()
    for _ in range(2):
        found, expected = own(mine), plain(whole)
    torch.testing.assert_close(found, expected[len(found) :])
    torch.testing.assert_close(dict(own.state_dict()), dict(plain.state_dict()))
    (found * weights).sum().backward()
    (expected * torch.cat([weights, weights])).sum().backward()
    torch.testing.assert_close(mine.grad, whole.grad[len(found) :])
    own.eval()
    torch.testing.assert_close(own(features), plain.eval()(features))


def test_sums_and_rows_of_ranks_have_gradients(twin):
    rows = torch.arange(6.0).reshape(2, 3).requires_grad_()
    torch.testing.assert_close(distributed.all_mean(rows), rows.detach())
    gathered = distributed.gather_with_gradient(rows)
    assert gathered.tolist() == [[0, 0, 0], [0, 0, 0], [0, 2, 4], [6, 8, 10]]  # the first rank has none here
    (gathered * torch.arange(4.0)[:, None]).sum().backward()
    assert rows.grad is not None
    assert rows.grad[:, 0].tolist() == [4, 6]
    assert [distributed.any_rank(flag) for flag in (True, False)] == [True, False]
