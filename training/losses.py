"""Losses and targets: pure functions of the outputs of student and teacher, in fp32 or better.

A multi-crop loss compares every teacher view with every other crop of the same image (Eq. 3 of the paper) and
is the mean over these pairs and the batch. A student's outputs are [crops, batch, K], global crops first; a
teacher's are [views, batch, K]. Of the teacher's views the first `shared` (None: all) are also the student's
crops of the same number, with which they are not compared.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from training.distributed import all_mean, gather, gather_with_gradient

SMALLEST_DISTANCE = 1e-8
"""Distance of equal features in `koleo`, whose logarithm is finite."""
MIN_OUTPUTS_FOR_USAGE = 16
"""Smallest number of outputs in a micro-batch for which the number of used prototypes is logged."""


def multi_crop_cross_entropy(
    student_logits: Tensor, targets: Tensor, temperature: float, shared: int | None = None
) -> Tensor:
    """Compute the mean cross-entropy of targets and the student's softmax at `temperature` (tau_s), Eq. 3.

    Let s be the student's logits divided by the temperature. The loss of a pair is logsumexp(s) - p.s. A crop
    therefore needs one logsumexp and one product with the sum of its targets. With codes as targets this is
    SwAV's swapped prediction (Eq. 1 and the appendix on multi-crop of arXiv:2006.09882).
    """
    pairs, shared = count_pairs(student_logits, targets, shared)
    teachers = torch.full((len(student_logits), 1), len(targets), device=student_logits.device)
    teachers[:shared] -= 1  # a view is not compared with itself
    logits = full_precision(student_logits) / temperature
    log_partition = torch.logsumexp(logits, dim=-1)  # [crops, batch]
    total = (teachers * log_partition).sum(0) - _agreement(logits, targets, shared)  # [batch]
    return total.mean() / pairs


def multi_crop_mse(student: Tensor, teacher: Tensor, shared: int | None = None) -> Tensor:
    """Mean squared distance of l2-normalized outputs, 2 - 2 cos; the teacher gets no gradient.

    With two views the symmetric loss of BYOL (Eq. 2 of arXiv:2006.07733) is the sum over the two pairs, twice
    this mean.
    """
    pairs, shared = count_pairs(student, teacher, shared)
    return 2 - 2 * _agreement(unit(student), unit(teacher.detach()), shared).mean() / pairs


def info_nce(queries: Tensor, keys: Tensor, temperature: float, negatives: Tensor | None = None) -> Tensor:
    """Cross-entropy of classifying each query as its own key among others (Eq. 1 of arXiv:1911.05722).

    Args:
        queries: [..., batch, width], not normalized; leading axes, such as crops, share the keys.
        keys: [batch, width], not normalized; they get no gradient.
        temperature: divisor of the similarities.
        negatives: l2-normalized keys of other images [negatives, width]; None: the other keys of the batch,
            on all ranks.

    Returns:
        Scalar, mean over all queries.
    """
    queries, keys = unit(queries), unit(keys.detach())
    with torch.autocast(queries.device.type, enabled=False):
        own = (queries * keys).sum(-1, keepdim=True)  # [..., batch, 1]
        others = queries @ (gather(keys) if negatives is None else negatives.to(keys.dtype)).T
    logits = others if negatives is None else torch.cat([own, others], dim=-1)  # both contain the own key
    return ((logits / temperature).logsumexp(-1) - own.squeeze(-1) / temperature).mean()


def multi_crop_info_nce(
    student: Tensor,
    teacher: Tensor,
    temperature: float,
    negatives: Tensor | None = None,
    shared: int | None = None,
) -> Tensor:
    """Mean over the teacher's views of `info_nce`, with all other crops as queries."""
    _, shared = count_pairs(student, teacher, shared)
    losses = []
    for view, keys in enumerate(teacher):
        others = torch.cat([student[:view], student[view + 1 :]]) if view < shared else student
        losses.append(info_nce(others, keys, temperature, negatives))
    return torch.stack(losses).mean()


def coding_rate(features: Tensor, error: float = 0.25) -> Tensor:
    """Coding rate of a batch, half logdet(I + d / (B error) Z Z^T): larger for more diverse directions.

    Args:
        features: Z, l2-normalized [..., B, d]; gathered from all ranks.
        error: squared distortion.

    Returns:
        nats [...]: half ln(1 + d / error) if all features are equal, the maximum if they are orthogonal.

    Source: Y. Yu et al. (arXiv:2006.08558), Eq. 3; next to DINO's loss in SimDINO (arXiv:2502.10385).
    """
    with torch.autocast(features.device.type, enabled=False):
        features = gather_with_gradient(features.float().movedim(-2, 0)).movedim(0, -2)
        batch, width = features.shape[-2:]
        gram = features @ features.mT  # [..., B, B]
        identity = torch.eye(batch, device=features.device)
        return torch.logdet(identity + width / (batch * error) * gram) / 2


def koleo(features: Tensor) -> Tensor:
    """Compute -mean_i ln(min_j |x_i - x_j|) of l2-normalized features, j other than i.

    Args:
        features: x before normalization [..., batch, width], gathered from all ranks; leading axes, such as
            crops, are independent. The batch has 2 images or more.

    Returns:
        [...]: lower if neighbors are farther apart.

    Source: A. Sablayrolles et al. (arXiv:1806.03198). DINOv2 (M. Oquab et al., arXiv:2304.07193, section 4)
        adds it with the weight 0.1 for each global crop.
    """
    with torch.autocast(features.device.type, enabled=False):
        points = gather_with_gradient(unit(features).movedim(-2, 0)).movedim(0, -2)
        with torch.no_grad():
            cosines = points @ points.mT  # [..., batch, batch]
            cosines.diagonal(dim1=-2, dim2=-1).fill_(-2)  # below every cosine
            nearest = cosines.argmax(-1, keepdim=True)
        neighbors = points.take_along_dim(nearest, dim=-2)
        distances = torch.linalg.vector_norm(points - neighbors, dim=-1)
        return -distances.clamp(min=SMALLEST_DISTANCE).log().mean(-1)


def entropy(probabilities: Tensor) -> Tensor:
    """Mean entropy in nats of distributions [..., K]; ln K for uniform ones."""
    return -torch.xlogy(probabilities, probabilities).sum(-1).mean()


@torch.no_grad()
def observe_targets(loss: Tensor, targets: Tensor, entropy_name: str) -> dict[str, Tensor]:
    """Split a cross-entropy into the entropy of its targets and the divergence from them (section 5.3).

    Args:
        loss: entropy(targets) + KL(targets, student), averaged over pairs.
        targets: Probabilities, [..., K].
        entropy_name: Name of the entropy in the log.

    Returns:
        Scalars in nats: the entropy, `kl`, and `ln_k`, the largest entropy.
    """
    mean = entropy(targets)
    ln_k = torch.full((), math.log(targets.shape[-1]), device=loss.device)
    return {entropy_name: mean, "kl": loss - mean, "ln_k": ln_k}


@torch.no_grad()
def observe_usage(targets: Tensor) -> dict[str, Tensor]:
    """Count the `prototypes` that targets [..., K] use: exp(entropy of their mean). Empty for few targets."""
    outputs = targets.flatten(0, -2)
    if len(outputs) < MIN_OUTPUTS_FOR_USAGE:
        return {}
    return {"prototypes": entropy(outputs.mean(dim=0)).exp()}


def spread(vectors: Tensor) -> Tensor:
    """Spread of directions [..., images, width] on all ranks: 0 if all are equal, 1 for random directions."""
    mean = all_mean(unit(vectors).mean(dim=-2))
    return (1 - mean.square().sum(-1)).clamp(min=0).sqrt().mean()


def unit(vectors: Tensor) -> Tensor:
    """Normalize vectors along the last axis to length 1."""
    return F.normalize(full_precision(vectors), dim=-1)


def count_pairs(student: Tensor, teacher: Tensor, shared: int | None) -> tuple[int, int]:
    """Count the pairs of a teacher view and another crop; return also the number of shared views."""
    shared = len(teacher) if shared is None else shared
    return len(teacher) * len(student) - shared, shared


def _agreement(student: Tensor, teacher: Tensor, shared: int) -> Tensor:
    """Sum over the pairs of the scalar product of their outputs: [batch]."""
    own = (student[:shared] * teacher[:shared]).sum((0, -1))
    return (student.sum(0) * teacher.sum(0)).sum(-1) - own


@torch.no_grad()
def sharpen(logits: Tensor, temperature: float) -> Tensor:
    """Targets softmax(logits / temperature), [..., K]; at temperature 0 the limit, one-hot."""
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(full_precision(logits).dtype)
    return F.softmax(full_precision(logits) / temperature, dim=-1)


@torch.no_grad()
def sinkhorn_knopp(logits: Tensor, temperature: float, iterations: int) -> Tensor:
    """Targets that assign images to prototypes in nearly equal shares.

    The paper's listing in the log domain, so that no exponential overflows: exp(logits / temperature) is
    normalized over the images and over the prototypes in turn. One iteration is the paper's "softmax(batch)".

    Args:
        logits: [..., images, K], the images of this rank; leading axes, such as views, are independent.
        temperature: tau of the paper, epsilon of SwAV.
        iterations: 1 or more.

    Returns:
        Probabilities of the same shape; those of each image sum to 1.
    """
    assignment = full_precision(logits) / temperature
    for _ in range(iterations):
        of_rank = assignment.logsumexp(dim=-2, keepdim=True)  # [..., 1, K]
        assignment = assignment - gather(of_rank[None]).logsumexp(dim=0)
        assignment = assignment.log_softmax(dim=-1)
    return assignment.exp()


def full_precision(tensor: Tensor) -> Tensor:
    """Convert to fp32; a tensor in double precision stays."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
