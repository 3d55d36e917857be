"""What a teacher's output becomes before a student learns it: centered, sharpened, balanced over the batch.

Every function takes logits and gives probabilities of the same shape. Source: section 3.1 and the appendix
"Relation to SwAV" of the paper.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.distributed import gather


class Center(nn.Module):
    """Running mean of the teacher's logits, subtracted so that no prototype wins (section 3.1, Eq. 4)."""

    value: Tensor

    def __init__(self, prototypes: int, momentum: float = 0.9) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("value", torch.zeros(1, prototypes))

    @torch.no_grad()
    def update(self, teacher_logits: Tensor) -> None:
        """Move towards the mean of the teacher's logits [..., K] over all views and images."""
        batch_mean = full_precision(teacher_logits).flatten(0, -2).mean(dim=0, keepdim=True)
        self.value.lerp_(batch_mean.to(self.value.dtype), 1 - self.momentum)


@torch.no_grad()
def sharpen(logits: Tensor, temperature: float) -> Tensor:
    """softmax(logits / temperature), [..., K]; at temperature 0 its limit, all weight on the largest."""
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(full_precision(logits).dtype)
    return F.softmax(full_precision(logits) / temperature, dim=-1)


@torch.no_grad()
def sinkhorn_knopp(logits: Tensor, temperature: float, iterations: int) -> Tensor:
    """Assignment of pictures to prototypes that uses all prototypes alike, as far as the iterations go.

    The paper's listing with logarithms, so that no exponential overflows: exp(logits / temperature), then in
    turn every prototype's weights over the pictures and every picture's over the prototypes are made to sum
    to 1. One iteration is the paper's "softmax(batch)".

    Args:
        logits: [..., pictures, K], the pictures of this rank; leading axes, such as views, are apart.
        temperature: the paper's tau, SwAV's epsilon.
        iterations: 1 or more.

    Returns:
        Probabilities of the same shape: every picture's sum to 1.
    """
    assignment = full_precision(logits) / temperature
    for _ in range(iterations):
        of_rank = assignment.logsumexp(dim=-2, keepdim=True)  # [..., 1, K]
        assignment = assignment - gather(of_rank[None]).logsumexp(dim=0)
        assignment = assignment.log_softmax(dim=-1)
    return assignment.exp()


def full_precision(tensor: Tensor) -> Tensor:
    """In fp32, or in double precision where it is that already."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
