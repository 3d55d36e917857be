"""What there is to see in a block: what one token has to do with the others, principal components as colours.

Pure functions of the arrays that `AttentionPredictor.queries_keys` and `tokens` hand out, in which the prefix
tokens ([CLS], registers) come first.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.floating[Any]]


def logits(queries: Vectors, keys: Vectors, token: int) -> NDArray[np.float32]:
    """q · k / √d of one token's query with every key, before the softmax: float32 [heads, tokens].

    Args:
        queries, keys: [heads, tokens, d].
        token: whose query; 0 is [CLS].
    """
    query = queries[:, token].astype(np.float32)
    products = np.einsum("hd,htd->ht", query, keys.astype(np.float32))
    return products / np.float32(np.sqrt(keys.shape[-1]))


def attention(queries: Vectors, keys: Vectors, token: int) -> NDArray[np.float32]:
    """Softmax of `logits` over all tokens: [heads, tokens], each head sums to 1.

    Source: Vaswani et al. 2017, equation 1; arguments as `logits`.
    """
    scores = logits(queries, keys, token)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def rollout(blocks: Sequence[tuple[Vectors, Vectors]]) -> NDArray[np.float32]:
    """How much of every token comes from which token of the picture, through all blocks together.

    A block's attention is the mean of its heads; half of every token is what the attention brings, half is
    the token itself. The blocks' matrices are multiplied, the last one first.

    Args:
        blocks: queries and keys, each [heads, tokens, d], of the first block and those after it.

    Returns:
        float32 [tokens, tokens]; every row sums to 1.

    Raises:
        ValueError: no block.

    Source: Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", equation 1.
    """
    if not blocks:
        raise ValueError("rollout goes through at least one block, found none")
    whole: NDArray[np.float32] = np.eye(blocks[0][0].shape[1], dtype=np.float32)
    for queries, keys in blocks:
        mean = np.zeros_like(whole)
        for query, key in zip(queries.astype(np.float32), keys.astype(np.float32), strict=True):
            scores = query @ key.T / np.float32(np.sqrt(key.shape[-1]))  # [tokens, tokens]
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mean += weights / weights.sum(axis=-1, keepdims=True)
        whole = (mean @ whole / np.float32(len(queries)) + whole) / np.float32(2)
    return whole


def cosines(vectors: Vectors, token: int) -> NDArray[np.float32]:
    """Cosine of one token's vector with every token's: [..., tokens, d] -> float32 [..., tokens], in [-1, 1].

    Keys give one row per head, tokens [tokens, width] a single one. A vector of zeros has cosine 0 with all.
    """
    vectors = vectors.astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    units = vectors / np.where(lengths > 0, lengths, 1)
    return np.einsum("...td,...d->...t", units, units[..., token, :])


def likeness(keys: Vectors, prefix: int, token: int) -> NDArray[np.float32]:
    """Cosine of one token's key with every token's, of all heads at once and without what all patches share.

    The patches' mean key is subtracted first: it is common to the whole image. Among the quantities of one
    block this one separates objects from their surroundings best.

    Args:
        keys: [heads, tokens, d].
        prefix: tokens before the patches.
        token: whose key; 0 is [CLS].

    Returns:
        float32 [tokens], in [-1, 1].
    """
    vectors = np.moveaxis(keys.astype(np.float32), 0, 1).reshape(keys.shape[1], -1)  # [tokens, heads * d]
    return cosines(vectors - vectors[prefix:].mean(axis=0), token)


def outlier_patches(norms: Vectors, deviations: float = 6.0) -> NDArray[np.bool_]:
    """Mark patch tokens of unusually high norm, which hold global instead of local information.

    A token is an outlier if its norm exceeds the image's median by more than `deviations` robust standard
    deviations (1.4826 times the median absolute deviation).

    Args:
        norms: Norms of the patch tokens, as `AttentionPredictor.token_norms` returns them: [rows, columns].
        deviations: Threshold, above 0.

    Returns:
        Boolean [rows, columns].

    Raises:
        ValueError: `deviations` is not above 0.

    Source: Darcet et al. 2024, "Vision Transformers Need Registers", Section 2. They choose a fixed threshold
        for each model by hand.
    """
    if not deviations > 0:
        raise ValueError(f"deviations is {deviations}, expected a number above 0")
    above = norms.astype(np.float64) - np.median(norms)
    return np.asarray(above > deviations * 1.4826 * np.median(np.abs(above)))


def above_least(maps: Vectors) -> NDArray[np.float32]:
    """Maps of any sign as weights, a share of which can be kept: how far each value lies above the least.

    Adding a constant to a map changes nothing, as it changes nothing of a softmax. A constant map weighs all
    patches alike.

    Args:
        maps: [..., rows, columns].
    """
    above = maps - maps.min(axis=(-2, -1), keepdims=True)
    constant = above.max(axis=(-2, -1), keepdims=True) == 0
    return np.where(constant, 1, above).astype(np.float32)


def on_patches(mask: NDArray[np.bool_], grid: tuple[int, int]) -> NDArray[np.bool_]:
    """A mask brought to the patch grid by nearest: the pixel under each patch's centre decides.

    Args:
        mask: [height, width].
        grid: rows and columns of patches.

    Returns:
        Boolean [rows, columns].
    """
    rows, columns = (
        (2 * np.arange(patches) + 1) * pixels // (2 * patches)
        for patches, pixels in zip(grid, mask.shape, strict=True)
    )
    return mask[np.ix_(rows, columns)]


def share_inside(weights: Vectors, mask: NDArray[np.bool_]) -> float:
    """Which share of a map's mass lies inside a mask, in [0, 1].

    Args:
        weights: non-negative, [rows, columns].
        mask: [height, width], brought to the patches by `on_patches`.

    Raises:
        ValueError: a map with a negative or non-finite value, or of zeros.
    """
    total = float(weights.sum(dtype=np.float64))
    if not np.isfinite(total) or total <= 0 or weights.min() < 0:
        raise ValueError("a map whose mass is to be shared out must be finite, non-negative and not all zero")
    inside = on_patches(mask, (weights.shape[0], weights.shape[1]))
    return float(weights[inside].sum(dtype=np.float64)) / total


def lift(attention: Vectors, mask: NDArray[np.bool_]) -> float | None:
    """How many times more attention an object gets than its size would give it.

    The mean over heads, renormalised over the patches; the object's share of it divided by the object's share
    of the patches. 1 means that the object is attended to no more than anything else.

    Args:
        attention: after the softmax, [heads, rows, columns].
        mask: the object, [height, width].

    Returns:
        At least 0; None where the object lies between the centres of the patches.

    Raises:
        ValueError: as `share_inside`.
    """
    patches = on_patches(mask, (attention.shape[1], attention.shape[2])).mean()
    share = share_inside(attention.mean(axis=0, dtype=np.float64), mask)
    return share / float(patches) if patches else None


def principal_colors(features: Vectors) -> NDArray[np.float32]:
    """The first three principal components as red, green and blue.

    Each component runs from 0, its least value in the picture, to 1. The sign of a component is free: the
    largest coefficient is made positive, so that the same features always have the same colours.

    Args:
        features: one vector per patch: [rows, columns, d].

    Returns:
        float32 [rows, columns, 3].

    Raises:
        ValueError: fewer than three dimensions.
    """
    if features.shape[-1] < 3:
        raise ValueError(f"features have {features.shape[-1]} dimensions, expected at least 3")
    centred = features.astype(np.float64) - features.mean(axis=(0, 1), dtype=np.float64)
    _, axes = np.linalg.eigh(np.einsum("rcd,rce->de", centred, centred, optimize=True))
    axes = axes[:, :-4:-1]  # [d, 3], the greatest eigenvalue first
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), range(3)])
    components = centred @ axes
    low, high = components.min(axis=(0, 1)), components.max(axis=(0, 1))
    return ((components - low) / np.where(high > low, high - low, 1)).astype(np.float32)
