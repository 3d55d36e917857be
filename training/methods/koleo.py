"""KoLeo: a regularizer that spreads the features of a batch (A. Sablayrolles et al., arXiv:1806.03198).

DINOv2 (M. Oquab et al., arXiv:2304.07193, section 4) adds it with the weight 0.1 for each global crop.
"""

import torch
from torch import Tensor

from training import losses
from training.distributed import gather_with_gradient

SMALLEST_DISTANCE = 1e-8
"""Distance of equal features, whose logarithm is finite."""


def koleo(features: Tensor) -> Tensor:
    """Compute -mean_i ln(min_j |x_i - x_j|) of l2-normalized features, j other than i.

    Args:
        features: x before normalization [..., batch, width], gathered from all ranks; leading axes, such as
            crops, are independent. The batch has 2 images or more.

    Returns:
        [...]: lower if neighbors are farther apart.
    """
    with torch.autocast(features.device.type, enabled=False):
        points = gather_with_gradient(losses.unit(features).movedim(-2, 0)).movedim(0, -2)
        with torch.no_grad():
            cosines = points @ points.mT  # [..., batch, batch]
            cosines.diagonal(dim1=-2, dim2=-1).fill_(-2)
            nearest = cosines.argmax(-1, keepdim=True)
        neighbors = points.take_along_dim(nearest, dim=-2)
        distances = torch.linalg.vector_norm(points - neighbors, dim=-1)
        return -distances.clamp(min=SMALLEST_DISTANCE).log().mean(-1)
