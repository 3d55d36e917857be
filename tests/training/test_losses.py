import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from training import losses


def cross_entropy(student, teacher, shared):
    return losses.multi_crop_cross_entropy(student, teacher.detach().softmax(-1), 0.1, shared)


def info_nce(student, teacher, shared):
    return losses.multi_crop_info_nce(student, teacher, 0.2, shared=shared)


def nce_of_pair(student, teacher):
    similarities = F.normalize(student, dim=-1) @ F.normalize(teacher, dim=-1).T
    return F.cross_entropy(similarities / 0.2, torch.arange(len(student)))


LOSSES = {
    "cross-entropy": (cross_entropy, lambda s, t: F.cross_entropy(s / 0.1, t.softmax(-1))),
    "mse": (losses.multi_crop_mse, lambda s, t: 2 - 2 * F.cosine_similarity(s, t).mean()),
    "infonce": (info_nce, nce_of_pair),
}
"""Each loss, and the loss of one teacher view and one crop."""


@pytest.mark.parametrize("name", LOSSES)
@given(
    crops=st.integers(2, 6),
    batch=st.integers(1, 4),
    prototypes=st.integers(2, 40),
    shared=st.integers(0, 2),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_multi_crop_losses_and_gradients_equal_the_double_loop(name, crops, batch, prototypes, shared, seed):
    """Eq. 3 as the paper writes it: every teacher view with every other crop."""
    loss, loss_of_pair = LOSSES[name]
    shared = 2 * (shared // 2) if name == "infonce" else shared  # its mean is over views first
    generator = torch.Generator().manual_seed(seed)
    student = torch.randn(crops, batch, prototypes, generator=generator, dtype=torch.float64)
    teacher = torch.randn(2, batch, prototypes, generator=generator, dtype=torch.float64).requires_grad_()
    ours, plain = student.clone().requires_grad_(), student.clone().requires_grad_()
    pairs = [
        loss_of_pair(logits, view.detach())
        for v, view in enumerate(teacher)
        for c, logits in enumerate(plain)
        if c != v or v >= shared
    ]
    found, expected = loss(ours, teacher, shared), torch.stack(pairs).mean()
    found.backward()
    expected.backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours.grad, plain.grad)
    assert teacher.grad is None


def test_coding_rate_equals_the_determinant_of_the_other_matrix():
    views = F.normalize(torch.randn(2, 4, 6), dim=-1)
    expected = [torch.logdet(torch.eye(6) + 6 / (4 * 0.5) * z.T @ z) / 2 for z in views]  # Sylvester
    torch.testing.assert_close(losses.coding_rate(views, error=0.5), torch.stack(expected))
    torch.testing.assert_close(losses.coding_rate(views), losses.coding_rate(views, error=0.25))


def test_losses_and_targets_under_autocast_are_computed_in_fp32():
    logits = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    targets, negatives = losses.sharpen(logits.float(), 0.04), F.normalize(torch.randn(99, 16), dim=-1)
    for compute in (
        lambda x: losses.sharpen(x, 0.04),
        lambda x: losses.multi_crop_cross_entropy(x, targets, 0.1, 2),
        lambda x: losses.info_nce(x, x[0], 0.07, negatives),
        losses.coding_rate,
    ):
        expected = compute(logits.float())
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(compute(logits), expected)


def test_spread_is_one_for_random_and_zero_for_equal_directions():
    assert losses.spread(torch.randn(2, 4000, 64)).item() == pytest.approx(1, abs=0.01)
    views = F.normalize(torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0)), dim=-1)
    views[1] = views[1, :1]  # of a view whose directions are equal
    expected = torch.stack([(1 - view.mean(0).norm() ** 2).clamp(min=0) ** 0.5 for view in views]).mean()
    torch.testing.assert_close(losses.spread(views * 7), expected, atol=1e-3, rtol=0)
    same = torch.randn(64).expand(10, 64)
    assert losses.spread(same * torch.arange(1.0, 11)[:, None]).item() == pytest.approx(0, abs=1e-3)


def test_sinkhorn_with_large_logits_is_finite():
    assert losses.sinkhorn_knopp(1000 * torch.randn(8, 4), 0.05, 3).isfinite().all()


def test_usage_is_the_exponential_of_the_entropy_of_the_mean_of_16_targets_or_more():
    targets = torch.rand(2, 8, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    mean = targets.mean((0, 1))
    expected = (-(mean * mean.log()).sum()).exp()
    torch.testing.assert_close(losses.observe_usage(targets), {"prototypes": expected})
    logs = losses.observe_targets(torch.tensor(3.0), targets, "teacher_entropy")
    entropy = -(targets * targets.log()).sum(-1).mean()
    torch.testing.assert_close(
        logs, {"teacher_entropy": entropy, "kl": 3 - entropy, "ln_k": torch.tensor(5.0).log()}
    )
    assert losses.observe_usage(targets[0]) == {}
    assert losses.observe_usage(targets.flatten(0, 1)[:15]) == {}
