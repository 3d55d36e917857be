import torch

from training import losses
from training.methods.dino import update_center


def test_center_does_not_depend_on_how_the_batch_is_cut():
    logits = torch.randn(2, 6, 16)
    whole, parts = torch.zeros(1, 16), torch.zeros(1, 16)
    update_center(whole, logits, 0.9)
    update_center(parts, torch.cat([logits[:, :3], logits[:, 3:]], dim=1), 0.9)
    torch.testing.assert_close(whole, parts)
    torch.testing.assert_close(whole, 0.1 * logits.mean((0, 1))[None])


def test_center_ignores_logits_that_overflow_in_fp16():
    center = torch.ones(1, 3)
    update_center(center, torch.tensor([[[2.0, float("inf"), float("nan")]]]), 0.9)
    torch.testing.assert_close(center, torch.tensor([[1.1, 1.0, 1.0]]))


def test_sinkhorn_balances_both_ways_and_one_iteration_is_the_papers_softmax_over_the_batch():
    logits = torch.randn(2, 12, 5, dtype=torch.float64)
    one = torch.softmax(logits / 0.3, dim=-2)
    one = one / one.sum(-1, keepdim=True)
    torch.testing.assert_close(losses.sinkhorn_knopp(logits, 0.3, 1), one)
    many = losses.sinkhorn_knopp(logits, 0.3, 200)
    torch.testing.assert_close(many.sum(-1), torch.ones(2, 12, dtype=torch.float64))
    torch.testing.assert_close(many.sum(-2), torch.full((2, 5), 12 / 5, dtype=torch.float64))


def test_sinkhorn_bears_logits_whose_exponentials_overflow():
    assert losses.sinkhorn_knopp(1000 * torch.randn(8, 4), 0.05, 3).isfinite().all()


def test_temperature_zero_is_the_limit_of_small_temperatures():
    logits = torch.tensor([[0.3, -1.0, 0.9], [2.0, 1.9, 0.0]])
    hard = losses.sharpen(logits, 0)
    torch.testing.assert_close(hard, torch.tensor([[0.0, 0, 1], [1, 0, 0]]))
    torch.testing.assert_close(hard, losses.sharpen(logits, 1e-3))
