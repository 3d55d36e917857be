"""How many dimensions features fill."""

import torch
from torch import Tensor


def rank_me(features: Tensor) -> float:
    """RankMe: the exponential of the entropy of the singular values, 1 for a line to min(n, width).

    Args:
        features: [n, width], as the backbone gives them, not centered.

    Source: equation 1 of Q. Garrido et al., arXiv:2210.02885.
    """
    values = torch.linalg.svdvals(features.float())
    shares = values / values.sum() + 1e-7
    return float(torch.exp(-(shares * shares.log()).sum()))
