import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from training import losses


def double_loop(student, targets, temperature, shared=2):
    """Eq. 3 as the paper writes it: every teacher view with every other crop, one cross-entropy a pair."""
    pairs = []
    for v, target in enumerate(targets):
        for c, logits in enumerate(student):
            if c != v or v >= shared:
                pairs.append(-(target * F.log_softmax(logits / temperature, dim=-1)).sum(-1).mean())
    return torch.stack(pairs).mean(), len(pairs)


@given(
    crops=st.integers(2, 6),
    batch=st.integers(1, 4),
    prototypes=st.integers(2, 40),
    shared=st.integers(0, 2),
    seed=st.integers(0, 1000),
)
@settings(max_examples=50, deadline=None)
def test_loss_and_gradient_equal_the_double_loop(crops, batch, prototypes, shared, seed):
    generator = torch.Generator().manual_seed(seed)
    student = torch.randn(crops, batch, prototypes, generator=generator, dtype=torch.float64)
    targets = torch.randn(2, batch, prototypes, generator=generator, dtype=torch.float64).softmax(-1)
    ours, plain = student.clone().requires_grad_(), student.clone().requires_grad_()
    loss = losses.multi_crop_cross_entropy(ours, targets, 0.1, shared)
    expected, pairs = double_loop(plain, targets, 0.1, shared)
    assert pairs == 2 * crops - shared
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss.double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.grad, plain.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("views", "shared"), [(2, 2), (1, 0), (2, 0)])
def test_mse_with_shared_views_compares_other_crops_only(views, shared):
    student = F.normalize(torch.randn(4, 3, 8), dim=-1)
    teacher = F.normalize(torch.randn(views, 3, 8), dim=-1)
    plain = [
        2 - 2 * F.cosine_similarity(student[c], teacher[v]).mean()
        for v in range(views)
        for c in range(4)
        if c != v or v >= shared
    ]
    torch.testing.assert_close(losses.multi_crop_mse(student, teacher, shared), torch.stack(plain).mean())


def test_coding_rate_counts_directions():
    """Both extremes in closed form; between them the determinant of the other, d x d matrix (Sylvester)."""
    alike, apart = F.normalize(torch.ones(4, 6), dim=-1), torch.eye(6)[:4]
    assert losses.coding_rate(alike).item() == pytest.approx(math.log(1 + 6 / 0.25) / 2, rel=1e-5)
    assert losses.coding_rate(apart).item() == pytest.approx(4 * math.log(1 + 6 / (4 * 0.25)) / 2, rel=1e-5)
    views = F.normalize(torch.randn(2, 4, 6), dim=-1)
    other = [torch.linalg.slogdet(torch.eye(6) + 6 / (4 * 0.5) * z.T @ z)[1] / 2 for z in views]
    torch.testing.assert_close(losses.coding_rate(views, error=0.5), torch.stack(other))
    with torch.autocast("cpu", torch.bfloat16):
        assert losses.coding_rate(apart).dtype == torch.float32


@pytest.mark.parametrize(
    "loss", [losses.multi_crop_mse, lambda s, t: losses.multi_crop_info_nce(s, t, 0.2)], ids=["mse", "nce"]
)
def test_no_gradient_reaches_the_teacher(loss):
    student, teacher = torch.randn(3, 4, 8, requires_grad=True), torch.randn(2, 4, 8, requires_grad=True)
    loss(student, teacher).backward()
    assert student.grad is not None
    assert teacher.grad is None


def test_info_nce_is_in_full_precision_under_autocast():
    queries, keys, negatives = (
        torch.randn(6, 32),
        torch.randn(6, 32),
        F.normalize(torch.randn(99, 32), dim=-1),
    )
    expected = losses.info_nce(queries, keys, 0.07, negatives)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(losses.info_nce(queries, keys, 0.07, negatives), expected)


def test_loss_and_targets_of_bf16_logits_are_computed_in_fp32():
    logits = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    targets = losses.sharpen(logits, 0.04)
    torch.testing.assert_close(targets, F.softmax(logits.float() / 0.04, dim=-1))
    loss = losses.multi_crop_cross_entropy(logits, targets, 0.1, 2)
    torch.testing.assert_close(loss, losses.multi_crop_cross_entropy(logits.float(), targets, 0.1, 2))


def test_spread_is_one_for_random_and_zero_for_equal_directions():
    assert losses.spread(torch.randn(2, 4000, 64)).item() == pytest.approx(1, abs=0.01)
    same = torch.randn(64).expand(10, 64)
    assert losses.spread(same * torch.arange(1.0, 11)[:, None]).item() == pytest.approx(0, abs=1e-3)


def test_sinkhorn_with_large_logits_is_finite():
    assert losses.sinkhorn_knopp(1000 * torch.randn(8, 4), 0.05, 3).isfinite().all()
