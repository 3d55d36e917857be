"""Effective rank of features."""

import torch
from torch import Tensor


def rank_me(features: Tensor) -> float:
    """Compute RankMe: the exponential of the entropy of the singular values.

    Args:
        features: [n, width], not centered.

    Returns:
        1, for features on a line, to min(n, width).

    Source: equation 1 of Q. Garrido et al., arXiv:2210.02885.
    """
    values = torch.linalg.svdvals(features.float())
    shares = values / values.sum() + 1e-7
    return float(torch.exp(-(shares * shares.log()).sum()))
