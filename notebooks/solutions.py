"""Solutions to the exercises, in the order of the lessons. Try each exercise first."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# --- T Tensors

STORED_VALUE = 1 * 12 + 2 * 4 + 0
"""T.1: a step of the first axis skips 3 × 4 values, a step of the second axis skips 4."""


def tiles(image: Tensor, size: int) -> Tensor:
    """Divide an image [H, W] into tiles [tiles, size, size], row by row."""
    divided = image.unflatten(1, (-1, size)).unflatten(0, (-1, size))
    return divided.permute(0, 2, 1, 3).flatten(0, 1)


def split_heads(tokens: Tensor, heads: int) -> Tensor:
    """Divide the width of tokens [B, tokens, heads * d] among heads: [B, heads, tokens, d]."""
    return tokens.unflatten(2, (heads, -1)).transpose(1, 2)


# --- 1 Build a vision transformer


def patchify(images: Tensor, patch_size: int) -> Tensor:
    """Divide images [B, C, H, W] into patches: [B, patches, C * size²], channels first."""
    batch, channels, height, width = images.shape
    rows, columns = height // patch_size, width // patch_size
    patches = images.reshape(batch, channels, rows, patch_size, columns, patch_size)
    return patches.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, -1)


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return output [B, heads, tokens, d] and weights [B, heads, tokens, tokens]."""
    products = queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5
    weights = torch.softmax(products, dim=-1)  # over the keys
    return weights @ values, weights


Layer = Callable[[Tensor], Tensor]


def block(tokens: Tensor, attend: Layer, mlp: Layer, norm1: Layer, norm2: Layer) -> Tensor:
    """Add attention, then the MLP, each of normalized tokens [B, tokens, width]."""
    tokens = tokens + attend(norm1(tokens))
    return tokens + mlp(norm2(tokens))


TOKENS = 60 * 60 + 1
"""1.2: 480 / 8 = 60 patches on each side, and [CLS]."""

# --- 2 Does attention find objects?


def keep_mass(attention: NDArray[np.floating], mass: float) -> NDArray[np.bool_]:
    """Keep the strongest patches of a map [rows, columns] that hold a share `mass` of it."""
    shares = attention.ravel() / attention.sum()
    strongest_first = np.argsort(shares)[::-1]
    # the share of all stronger patches
    before = np.cumsum(shares[strongest_first]) - shares[strongest_first]
    count = int(np.sum(before < mass * (1 - 1e-12)))
    kept = np.zeros(shares.size, bool)
    kept[strongest_first[:count]] = True
    return kept.reshape(attention.shape)


def jaccard(mask: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """Divide the number of pixels in both masks by the number of pixels in either mask."""
    return float((mask & truth).sum() / (mask | truth).sum())


def best_head_gain(scores: NDArray[np.floating]) -> float:
    """Subtract head 0's mean score from the best head's mean score: scores [images, heads]."""
    return float(scores.max(axis=1).mean() - scores[:, 0].mean())


# --- 3 Self-distillation

PAIRS = 2 * (2 + 8) - 2
"""3.1: 2 crops of the teacher with 10 of the student, without the 2 pairs of the same crop."""


def sharpen(logits: Tensor, center: Tensor, temperature: float) -> Tensor:
    """Compute the teacher's distributions from logits [crops, B, K] and the center [K]."""
    return torch.softmax((logits - center) / temperature, dim=-1)


def dino_loss(targets: Tensor, logits: Tensor, temperature: float) -> Tensor:
    """Compute the mean cross-entropy of targets and logits [2, B, K] of different crops."""
    log_probabilities = torch.log_softmax(logits / temperature, dim=-1)
    return -(targets * log_probabilities.flip(0)).sum(dim=-1).mean()


def ema(teacher: Tensor, student: Tensor, momentum: float) -> Tensor:
    """Move a weight of the teacher toward the student's."""
    return momentum * teacher + (1 - momentum) * student


# --- 4 Collapse and the teacher

UNIFORM_ENTROPY = np.log(256)
"""4.1: 256 times -1/256 · ln(1/256)."""


def entropy_and_kl(targets: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the teacher's mean entropy and mean divergence from the student, both [B, K]."""
    entropy = -(targets * targets.log()).sum(dim=-1).mean()
    cross_entropy = -(targets * outputs.log()).sum(dim=-1).mean()
    return entropy, cross_entropy - entropy


HALF_LIFE = np.log(0.5) / np.log(0.98)
"""4.3: 0.98 to the power of n is one half."""

# --- 5 Are the features good?


def vote(
    feature: NDArray[np.floating],
    stored: NDArray[np.floating],
    labels: NDArray[np.integer],
    k: int,
    temperature: float,
) -> NDArray[np.floating]:
    """Sum exp(cosine / temperature) per class over the k nearest vectors [stored, width]."""
    cosines = stored @ feature
    nearest = np.argsort(cosines)[-k:]
    weights = np.exp(cosines[nearest] / temperature)
    return np.bincount(labels[nearest], weights, minlength=int(labels.max()) + 1).astype(float)


BALANCED_ACCURACY = 100 / 3
"""5.2: one class of three is always correct, the other two never."""

# --- 6 Emergence over training


def lift(attention: NDArray[np.floating], mask: NDArray[np.bool_]) -> float:
    """Divide the object's share of attention by its share of patches; both [rows, columns]."""
    return float(attention[mask].sum() / attention.sum() / mask.mean())


LARGEST_LIFT = 1 / 0.2
"""6.2: all of the attention is on the object, which covers 20 % of the patches."""


def half_gain_step(steps: NDArray[np.integer], scores: NDArray[np.floating]) -> int:
    """Return the first step at which the scores [checkpoints] have half of their gain."""
    return int(steps[np.argmax(scores >= (scores[0] + scores[-1]) / 2)])


# --- A Video


def propagate_label(
    cosines: NDArray[np.floating], labels: NDArray[np.floating], k: int, temperature: float
) -> NDArray[np.floating]:
    """Average the labels [patches, objects] of the k most similar patches by a softmax."""
    nearest = np.argsort(cosines)[-k:]
    weights = np.exp(cosines[nearest] / temperature)
    return np.asarray(weights @ labels[nearest] / weights.sum())


CANDIDATES = 25 * 25 * 8
"""A.2: 12 patches on either side and its own place give windows of 25 × 25 in 8 frames."""

# --- B Objects


def positive_similarities(features: NDArray[np.floating]) -> NDArray[np.integer]:
    """Count for each of the features [patches, width] the others with a positive product."""
    products = features @ features.T
    np.fill_diagonal(products, 0)
    return np.asarray((products > 0).sum(axis=1))


NORMALIZED_CUT = 1 / 1 + 1 / 7
"""B.2: one edge is cut; w(A, V) = 1, and the nodes of the rest have 2 + 2 + 3 edges."""

BOX_IOU = 30 * 20 / (40 * 20 + 30 * 30 - 30 * 20)
"""B.3: the boxes share 30 × 20 pixels. CorLoc counts 0.545 as found."""

# --- C What attention is not


def hide(image: Tensor, scores: NDArray[np.floating], share: float) -> Tensor:
    """Set a share of the patches, those with the largest scores, of an image [3, H, W] to 0."""
    rows, columns = scores.shape
    shown = np.ones(scores.size, np.float32)
    shown[np.argsort(-scores.ravel())[: round(share * scores.size)]] = 0
    grid = torch.from_numpy(shown.reshape(rows, columns))
    grid = grid.repeat_interleave(image.shape[1] // rows, 0).repeat_interleave(
        image.shape[2] // columns, 1
    )
    return image * grid


# --- D Distillation


def standardize(tokens: Tensor) -> Tensor:
    """Bring each channel of tokens [B, tokens, width] to a mean of 0 and a deviation of 1."""
    return (tokens - tokens.mean(dim=(0, 1))) / tokens.std(dim=(0, 1))


def token_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Compute the mean of 1 - cosine of tokens [B, tokens, width]."""
    cosines = torch.nn.functional.cosine_similarity(student, teacher, dim=-1)
    return 1 - cosines.mean()


def attention_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Compute the mean KL of the teacher's and the student's attention [B, heads, patches]."""
    return (teacher * (teacher.log() - student.log())).sum(dim=-1).mean()


LARGEST_KL = np.log(196)
"""D.4: one patch has the share 1 in the teacher and 1 / 196 in the student."""

# --- E DINO among its neighbors


def contrast_loss(queries: Tensor, keys: Tensor, temperature: float) -> Tensor:
    """Compute the cross-entropy of classifying each of the queries [B, width] as its own key."""
    products = queries @ keys.T / temperature
    return -torch.log_softmax(products, dim=1).diagonal().mean()


COLLAPSED_CONTRAST = np.log(32)
"""E.2: all 32 keys have the same probability."""


def equal_shares(scores: Tensor, rounds: int) -> Tensor:
    """Give prototypes equal shares of positive scores [B, K]; each image keeps a sum of 1."""
    for _ in range(rounds):
        scores = scores / scores.sum(dim=0)  # of each prototype, over the images
        scores = scores / scores.sum(dim=1, keepdim=True)  # of each image
    return scores


# --- F Your own images


def divide(labels: NDArray[np.integer], every: int) -> NDArray[np.bool_]:
    """Select every n-th image of each class for the test: labels [images] -> bool [images]."""
    is_test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        is_test[np.flatnonzero(labels == label)[every - 1 :: every]] = True
    return is_test


def standard_error(is_correct: NDArray[np.bool_]) -> float:
    """Compute the standard error of an accuracy, in percent."""
    accuracy = np.mean(is_correct)
    return float(100 * np.sqrt(accuracy * (1 - accuracy) / len(is_correct)))
