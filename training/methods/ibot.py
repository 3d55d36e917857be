"""iBOT's loss: predict the teacher's output at masked patches (J. Zhou et al., arXiv:2111.07832, section 3).

A view is masked with probability 1/2, by a share drawn from 0.1 to 0.5. The patches share the projection head
with [CLS]. Here one block of patches is masked, where the paper masks several.
"""

import math

import numpy as np
import torch
from torch import Tensor

from training import losses
from training.augmentation.randomness import Randomness

MASKED_VIEWS = 0.5
"""Probability that a view is masked."""
MASKED_SHARE = (0.1, 0.5)
"""Smallest and largest share of the patches of a masked view that are masked."""
SMALLEST_ASPECT = 0.3
"""Smallest ratio of the height and the width of a block of masked patches; the largest is its inverse."""


def random_blocks(randomness: Randomness, views: int, rows: int, columns: int) -> Tensor:
    """Draw a block of patches for every view, or none: bool [views, batch, rows * columns].

    The block depends on the position in the global batch, and not on earlier draws.
    """
    draws = randomness.uniform("blocks", 5, views)  # [5, views, batch]
    is_masked, share, aspect, row, column = draws
    area = rows * columns * (MASKED_SHARE[0] + (MASKED_SHARE[1] - MASKED_SHARE[0]) * share)
    ratio = ((1 - 2 * aspect) * math.log(SMALLEST_ASPECT)).exp()
    height = (area * ratio).sqrt().round().clamp(1, rows)
    width = (area / height).round().clamp(1, columns)
    masks = []
    for size, length, place in ((rows, height, row), (columns, width, column)):
        start = (place * (size - length + 1)).floor()
        offsets = torch.arange(size) - start[..., None]  # [views, batch, rows or columns]
        masks.append((offsets >= 0) & (offsets < length[..., None]))
    block = masks[0][..., :, None] & masks[1][..., None, :]
    return (block & (is_masked < MASKED_VIEWS)[..., None, None]).flatten(-2)


def masked_places(masked: Tensor) -> tuple[Tensor, Tensor]:
    """List the masked patches of views.

    Args:
        masked: bool [views, batch, patches] on the CPU.

    Returns:
        Numbers of the masked patches among all patches, int64 [masked]; and their weights in the loss, fp32
        [masked]. The weights of a view sum to 1 / (views * batch).
    """
    rows = masked.flatten(0, -2).numpy()  # the host knows its values without reading a tensor
    views, patches = rows.nonzero()
    weights = 1 / (rows.sum(1)[views] * len(rows))
    places = torch.from_numpy(views * rows.shape[1] + patches)
    return places, torch.from_numpy(weights.astype(np.float32))


def masked_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Mean cross-entropy at the masked patches of a view (L_MIM), averaged over views and images.

    A view without masked patches counts with 0.

    Args:
        logits: Of the student at the masked patches of masked views, [masked, K].
        targets: Probabilities of the teacher for the whole views, same shape.
        weights: From `masked_places`, [masked].
        temperature: tau_s.
    """
    logits = losses.full_precision(logits) / temperature
    of_patches = logits.logsumexp(-1) - (targets * logits).sum(-1)  # [masked]
    return (of_patches * weights).sum()
