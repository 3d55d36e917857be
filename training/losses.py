"""Loss functions, pure and in fp32: from what students and teachers give to one number.

Several crops are compared as the paper's Eq. 3 does it: every teacher view with every other crop of the same
picture. A student's outputs are [crops, batch, K], global crops first; a teacher's are [views, batch, K], and
its view g is the student's crop g.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from training.distributed import GatherOverRanks, gather
from training.targets import full_precision


def multi_crop_cross_entropy(
    student_logits: Tensor, targets: Tensor, temperature: float, shared: int | None = None
) -> Tensor:
    """Mean cross-entropy over all pairs of a teacher view and another student crop (Eq. 3).

    The double loop over pairs collapses: with s the student's logits over the temperature, every pair costs
    logsumexp(s) - p.s, so a crop needs one logsumexp and one product with the sum of its targets. With codes
    as targets this is SwAV's swapped prediction (Eq. 1 and the appendix on multi-crop of arXiv:2006.09882).

    Args:
        student_logits: [crops, batch, K], those of the teacher's views first and in its order.
        targets: teacher probabilities [views, batch, K].
        temperature: tau_s.
        shared: how many of the teacher's views the student has as well; None: all.

    Returns:
        Scalar: mean over the views * crops - shared pairs (the paper's Eq. 3 is their sum) and the batch.

    Raises:
        ValueError: no pair of different crops, or fewer crops than shared views.
    """
    shared = len(targets) if shared is None else shared
    pairs = _pairs(student_logits, targets, shared)
    views, crops = len(targets), len(student_logits)
    teachers = torch.full((crops, 1), views, device=student_logits.device)  # that a crop has: all views …
    teachers[:shared] -= 1  # … but itself
    logits = full_precision(student_logits) / temperature
    log_partition = torch.logsumexp(logits, dim=-1)  # [crops, batch]
    total = (teachers * log_partition).sum(0) - _agreement(logits, targets, shared)  # [batch]
    return total.mean() / pairs


def multi_crop_mse(student: Tensor, teacher: Tensor, shared: int | None = None) -> Tensor:
    """Mean squared distance of l2-normalised outputs, 2 - 2 cos, over the same pairs.

    With two views BYOL's published symmetric loss (Eq. 2 of arXiv:2006.07733) is the sum of the two pairs,
    twice this mean.

    Args:
        student: [crops, batch, width], not normalised.
        teacher: [views, batch, width], not normalised; no gradient flows into it.
        shared: how many of the teacher's views the student has as well; None: all.

    Raises:
        ValueError: no pair of different crops, or fewer crops than shared views.
    """
    shared = len(teacher) if shared is None else shared
    pairs = _pairs(student, teacher, shared)
    return 2 - 2 * _agreement(unit(student), unit(teacher.detach()), shared).mean() / pairs


def info_nce(queries: Tensor, keys: Tensor, temperature: float, negatives: Tensor | None = None) -> Tensor:
    """Cross-entropy of finding each query's own key among others (Eq. 1 of arXiv:1911.05722).

    Args:
        queries: [..., batch, width], not normalised; leading axes, such as crops, share the keys.
        keys: [batch, width], not normalised; no gradient flows into them.
        temperature: that similarities are divided by.
        negatives: l2-normalised keys of other pictures [negatives, width]; None: the other keys of the batch,
            on all ranks.

    Returns:
        Scalar, mean over all queries.
    """
    queries, keys = unit(queries), unit(keys.detach())
    with torch.autocast(queries.device.type, enabled=False):
        own = (queries * keys).sum(-1, keepdim=True)  # [..., batch, 1]
        others = queries @ (gather(keys) if negatives is None else negatives.to(keys.dtype)).T
    logits = others if negatives is None else torch.cat([own, others], dim=-1)  # both hold the own key
    return ((logits / temperature).logsumexp(-1) - own.squeeze(-1) / temperature).mean()


def multi_crop_info_nce(
    student: Tensor,
    teacher: Tensor,
    temperature: float,
    negatives: Tensor | None = None,
    shared: int | None = None,
) -> Tensor:
    """`info_nce` of every teacher view with all other crops as its queries, mean over the views.

    Arguments and errors are those of `info_nce` and of `multi_crop_mse`, whose pairs these are.
    """
    shared = len(teacher) if shared is None else shared
    _pairs(student, teacher, shared)
    found = []
    for view, keys in enumerate(teacher):
        others = torch.cat([student[:view], student[view + 1 :]]) if view < shared else student
        found.append(info_nce(others, keys, temperature, negatives))
    return torch.stack(found).mean()


def coding_rate(features: Tensor, error: float = 0.25) -> Tensor:
    """Half logdet(I + d / (B error) Z Z^T): how many directions a batch takes up; an addition to DINO.

    Args:
        features: Z, of length 1 each [..., B, d]; of several ranks together.
        error: squared distortion at which the directions are counted.

    Returns:
        nats [...]: half ln(1 + d / error) where all are alike, most where they are orthogonal.

    Source: Y. Yu et al. (arXiv:2006.08558), Eq. 3; beside DINO's loss as in SimDINO (arXiv:2502.10385).
    """
    with torch.autocast(features.device.type, enabled=False):
        features = GatherOverRanks.apply(features.float().movedim(-2, 0)).movedim(0, -2)
        batch, width = features.shape[-2:]
        gram = features @ features.mT  # [..., B, B]
        identity = torch.eye(batch, device=features.device)
        return torch.logdet(identity + width / (batch * error) * gram) / 2


def entropy(probabilities: Tensor) -> Tensor:
    """Mean entropy in nats of distributions [..., K]; ln K for uniform ones."""
    return -torch.xlogy(probabilities, probabilities).sum(-1).mean()


def spread(vectors: Tensor) -> Tensor:
    """How different the directions [..., pictures, width] are: 0 all the same, 1 as random ones."""
    return unit(vectors).var(dim=-2, correction=0).sum(-1).sqrt().mean()


def unit(vectors: Tensor) -> Tensor:
    """Vectors along the last axis at length 1."""
    return F.normalize(full_precision(vectors), dim=-1)


def _pairs(student: Tensor, teacher: Tensor, shared: int) -> int:
    """Number of pairs of a teacher view and another crop, where both networks have `shared` views."""
    views, crops = len(teacher), len(student)
    if crops < shared or views * crops <= shared:
        raise ValueError(
            f"{crops} student crops for {views} teacher views: no pair of different crops is left"
        )
    return views * crops - shared


def _agreement(student: Tensor, teacher: Tensor, shared: int) -> Tensor:
    """Scalar product of every pair's outputs, summed over the pairs: [batch]."""
    own = (student[:shared] * teacher[:shared]).sum((0, -1))
    return (student.sum(0) * teacher.sum(0)).sum(-1) - own
