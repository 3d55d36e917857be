"""Quantities of one block: relations between tokens, and principal components as colors.

All functions take the arrays of `AttentionPredictor.queries_keys` and `tokens`, prefix tokens ([CLS],
registers) first.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dino_model.inference.resize import resample_nearest

Vectors = NDArray[np.floating[Any]]


def logits(queries: Vectors, keys: Vectors, token: int) -> NDArray[np.float32]:
    """Compute q · k / √d of one token's query with every key: [heads, tokens, d] -> [heads, tokens]."""
    query = queries[:, token].astype(np.float32)
    products = np.einsum("hd,htd->ht", query, keys.astype(np.float32))
    return products / np.float32(np.sqrt(keys.shape[-1]))


def attention(queries: Vectors, keys: Vectors, token: int) -> NDArray[np.float32]:
    """Compute the softmax of `logits` over all tokens: [heads, tokens]; Vaswani et al. 2017, Eq. 1."""
    from scipy.special import softmax  # half a second to import

    return softmax(logits(queries, keys, token), axis=-1)


def attention_rollout(blocks: Iterable[tuple[Vectors, Vectors]]) -> NDArray[np.float32]:
    """Follow attention through several blocks: how much of every token each token has received.

    In each block a token keeps half of itself, the residual connection. It takes the other half from the
    tokens that it attends to, averaged over the heads.

    Args:
        blocks: Queries and keys of each block, [heads, tokens, d], from the first block on.

    Returns:
        float32 [tokens, tokens]; each row sums to 1.

    Source: Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", Section 3.
    """
    from scipy.special import softmax

    rollout = None
    for queries, keys in blocks:
        mixing = np.eye(keys.shape[1], dtype=np.float32)
        scale = np.float32(1 / np.sqrt(keys.shape[-1]))
        for query, key in zip(queries.astype(np.float32), keys.astype(np.float32), strict=True):
            mixing += softmax(query @ key.T * scale, axis=-1) / len(keys)
        mixing /= 2
        rollout = mixing if rollout is None else mixing @ rollout
    if rollout is None:
        raise ValueError("expected at least one block")
    return rollout


def unit_vectors(vectors: Vectors) -> NDArray[np.float32]:
    """Scale vectors [..., d] to length 1; zeros stay zeros."""
    vectors = vectors.astype(np.float32, copy=False)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def cosines(vectors: Vectors, token: int) -> NDArray[np.float32]:
    """Compute the cosine of one token's vector with every token's: [..., tokens, d] -> [..., tokens].

    A vector of zeros has cosine 0 with all.
    """
    units = unit_vectors(vectors)
    return np.einsum("...td,...d->...t", units, units[..., token, :])


def key_similarity(keys: Vectors, prefix: int, token: int) -> NDArray[np.float32]:
    """Compute the cosine of one token's centered key, over all heads, with every token's: float32 [tokens].

    Args:
        keys: [heads, tokens, d], of which the first `prefix` tokens are no patches.
        prefix, token: Number of prefix tokens, and index of the token; 0 is [CLS].
    """
    vectors = np.moveaxis(keys.astype(np.float32), 0, 1).reshape(keys.shape[1], -1)  # [tokens, heads * d]
    return cosines(vectors - vectors[prefix:].mean(axis=0), token)


def outlier_patches(norms: Vectors) -> NDArray[np.bool_]:
    """Mark patch tokens of unusually high norm, which hold global instead of local information.

    Their norm [rows, columns] is above the median by six robust standard deviations (1.4826 times the median
    absolute deviation).

    Source: Darcet et al. 2024, "Vision Transformers Need Registers", Section 2, with a fixed threshold for
        each model.
    """
    above = norms.astype(np.float64) - np.median(norms)
    return np.asarray(above > 6 * 1.4826 * np.median(np.abs(above)))


def share_inside(weights: Vectors, mask: NDArray[np.bool_]) -> float:
    """Compute the share of a map's mass that lies inside a mask, in [0, 1].

    Args:
        weights: Non-negative, [rows, columns]; ValueError if a value is not finite, or all are zero.
        mask: [height, width]; a patch belongs to it if the mask covers its center.
    """
    total = float(weights.sum(dtype=np.float64))
    if not np.isfinite(total) or total <= 0 or weights.min() < 0:
        raise ValueError("expected a map with finite, non-negative values that are not all zero")
    return float(weights[resample_nearest(mask, weights.shape)].sum(dtype=np.float64)) / total


def lift(attention: Vectors, mask: NDArray[np.bool_]) -> float | None:
    """Compute the object's share of the mean attention over heads, divided by its share of the patches.

    1 means that the object gets no more attention than any other area. None: it covers no patch center.

    Args:
        attention: After the softmax, [heads, rows, columns].
        mask: The object, [height, width].
    """
    inside = resample_nearest(mask, attention.shape[1:])
    share = share_inside(attention.mean(axis=0, dtype=np.float64), mask)
    return share / float(inside.mean()) if inside.any() else None


def principal_colors(features: Vectors) -> NDArray[np.float32]:
    """Compute the first three principal components of features [rows, columns, d] as red, green and blue.

    Each component runs from 0, its least value in the image, to 1: float32 [rows, columns, 3]. The largest
    coefficient of a component is made positive, so that equal features always have equal colors.
    """
    centered, _, axes = _principal_axes(features)
    axes = axes[:, :-4:-1]  # [d, 3], the greatest eigenvalue first
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), range(3)])
    components = centered @ axes
    low, high = components.min(axis=(0, 1)), components.max(axis=(0, 1))
    return ((components - low) / np.where(high > low, high - low, 1)).astype(np.float32)


def explained_variance(features: Vectors) -> NDArray[np.float32]:
    """Compute the shares of the variance that the components of `principal_colors` explain: float32 [3]."""
    _, variances, _ = _principal_axes(features)
    return (variances[:-4:-1] / (variances.sum() or 1)).astype(np.float32)


def _principal_axes(features: Vectors) -> tuple[NDArray[np.float64], ...]:
    """Return centered features, and rising variances with their axes: [r, c, d], [d], [d, d]."""
    centered = features.astype(np.float64) - features.mean(axis=(0, 1), dtype=np.float64)
    variances, axes = np.linalg.eigh(np.einsum("rcd,rce->de", centered, centered, optimize=True))
    return centered, variances, axes
