"""Object discovery without labels or training: LOST, TokenCut, MaskCut; and their metrics.

The algorithms work on features of a patch grid; `Placement` converts masks and boxes to pixels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.masks import Box, Mask, bounding_box, component_at, components, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard

if TYPE_CHECKING:  # commands import this module before they need PyTorch
    from dino_model.predictor import AttentionPredictor

Features = NDArray[np.floating]
FConvention = Literal["tokencut", "found"]
Method = Literal["lost", "tokencut", "maskcut", "attention"]


class Discovery(NamedTuple):
    """One object on the patch grid."""

    mask: Mask  # [rows, columns]; empty where nothing stands out
    seed: tuple[int, int]  # row and column of the patch it grew from
    confidence: float = 1.0  # see cut_confidence; 1 where nobody computed it


@dataclass(frozen=True)
class Placement:
    """Position of a patch grid on an image."""

    image: tuple[int, int]
    """Height and width of the image in pixels."""
    covered: tuple[int, int]
    """Height and width in pixels that the grid covers from the top left corner, padding included."""

    def mask(self, on_grid: Mask) -> Mask:
        """Enlarge a mask [rows, columns] to pixels by nearest: [height, width]."""
        height, width = self.image
        return enlarge(on_grid, self.covered)[..., :height, :width]

    def box(self, on_grid: Mask) -> Box | None:
        """Return the box around a mask [rows, columns] in pixels of the image; None if it is empty."""
        return bounding_box(self.mask(on_grid)) if on_grid.any() else None


def key_features(keys: NDArray[np.floating], prefix: int, grid: tuple[int, int]) -> Features:
    """Concatenate the patch keys of all heads: [heads, tokens, d] -> float32 [rows, columns, heads * d]."""
    patches = keys[:, prefix:].astype(np.float32).transpose(1, 0, 2)  # [patches, heads, d]
    return patches.reshape(*grid, -1)


def find(method: Method, features: Features, count: int = 3) -> list[Discovery]:
    """Find objects on the patch grid by the named method, without empty ones, with their confidence.

    Args:
        method: lost, tokencut or maskcut, with their published settings.
        features: Keys of the last block: [rows, columns, D].
        count: Largest number of objects of MaskCut.
    """
    if method == "maskcut":
        found = maskcut(features, count)
    else:
        found = [lost(features) if method == "lost" else tokencut(features)]
    return with_confidence([each for each in found if each.mask.any()], features)


def with_confidence(found: Sequence[Discovery], features: Features) -> list[Discovery]:
    """Return the objects with their confidence on the features [rows, columns, D]."""
    return [each._replace(confidence=cut_confidence(features, each.mask)) for each in found]


def cut_confidence(features: Features, mask: Mask, tau: float = 0.2, chunk: int = 2048) -> float:
    """Rate how clearly an object is cut off from the rest of the image: 1 minus the normalized cut.

    The graph is TokenCut's: patches with a cosine similarity above `tau` are connected. The value is 1 if no
    connection leaves the object, 0 for any part of an image whose patches are all connected, and negative
    if the object is connected with the rest more than within itself. All methods share this scale.

    Args:
        features: [rows, columns, D].
        mask: The object: [rows, columns].
        tau: Cosine similarity above which two patches are connected.
        chunk: Number of patches that are compared with all at once; bounds memory.

    Returns:
        A value in [-1, 1]; 0 for an empty mask and for one that holds all patches.

    Source: Shi and Malik 2000, "Normalized cuts and image segmentation", equation 2.
    """
    inside = mask.ravel()
    if inside.all() or not inside.any():
        return 0.0
    flat = np.asarray(features, dtype=np.float32).reshape(len(inside), -1)
    unit = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12)
    links = np.zeros((2, 2))  # numbers of edges between outside (0) and inside (1)
    for start in range(0, len(unit), chunk):
        linked = unit[start : start + chunk] @ unit.T > tau
        rows = inside[start : start + chunk]
        for one, other in product((0, 1), repeat=2):
            links[one, other] += np.count_nonzero(linked[rows == one][:, inside == other])
    totals = np.maximum(links.sum(axis=1), 1)
    return float(1 - links[0, 1] / totals[0] - links[1, 0] / totals[1])


def lost(features: Features, candidates: int = 100) -> Discovery:
    """Find one object by LOST: it holds the patch that is similar to the fewest others.

    That patch is the seed. The `candidates` patches with the fewest positive similarities join it if they are
    similar to it. A patch belongs to the object if the sum of its similarities to all of them is positive and
    it is connected with the seed.

    Args:
        features: Keys of the last block: [rows, columns, D].
        candidates: Number of patches that may join the seed.

    Source: Siméoni et al. 2021, "Localizing objects with self-supervised transformers and no labels", sec. 3.
    """
    rows, columns, _ = features.shape
    flat = np.asarray(features, dtype=np.float32).reshape(rows * columns, -1)
    fewest = np.argsort(_positive_similarities(flat), kind="stable")[:candidates]
    seed = int(fewest[0])
    similar = fewest[flat[fewest] @ flat[seed] > 0]
    summed = flat @ flat[similar].sum(axis=0)
    return _component_of_seed(summed.reshape(rows, columns) > 0, divmod(seed, columns))


def _positive_similarities(flat: Features, chunk: int = 2048) -> NDArray[np.int64]:
    """Count the other patches with a positive product, [patches]; in chunks, to bound memory."""
    parts = (flat[start : start + chunk] for start in range(0, len(flat), chunk))
    counts = [np.count_nonzero(part @ flat.T > 0, axis=1) for part in parts]
    with_itself = (flat * flat).sum(axis=1) > 0
    return np.concatenate(counts) - with_itself


def tokencut(features: Features, tau: float = 0.2) -> Discovery:
    """Find one object by TokenCut: a normalized cut of the graph of similar patches.

    The cut divides the eigenvector at its mean. The object is the side with the element of largest magnitude,
    more precisely the connected component of that patch.

    Args:
        features: Keys of the last block: [rows, columns, D].
        tau: Cosine similarity above which two patches are connected.

    Source: Wang et al. 2022, "Self-supervised transformers for unsupervised object discovery using normalized
    cut", section 3.
    """
    rows, columns, _ = features.shape
    cut = _cut(features.reshape(rows * columns, -1), tau).reshape(rows, columns)
    return _component_of_seed(*_side_of_extreme(cut))


def maskcut(
    features: Features, count: int = 3, tau: float = 0.15, least_area: float = 0.01, overlap: float = 0.5
) -> list[Discovery]:
    """Find up to `count` objects by repeated cuts: each object's patches are removed from the graph.

    The idea of MaskCut (Wang et al. 2023), on a grid of any shape. MaskCut keeps the patches of an object as
    isolated nodes instead.

    Args:
        features: Keys of the last block: [rows, columns, D].
        count: Largest number of objects.
        tau: Cosine similarity above which two patches are connected.
        least_area: Share of the image below which a piece is left out.
        overlap: Jaccard similarity with an earlier object above which a piece is left out.

    Returns:
        The objects in the order in which they were found; possibly none.
    """
    rows, columns, _ = features.shape
    flat = features.reshape(rows * columns, -1)
    left, found = np.arange(len(flat)), list[Discovery]()
    for _ in range(count):
        if len(left) < 2:
            break
        cut = np.full(rows * columns, np.nan)
        cut[left] = _cut(flat[left], tau)
        mask, seed = _side_of_extreme(cut.reshape(rows, columns), background_in_corners=True)
        piece = _component_of_seed(mask, seed)
        if not piece.mask.any():
            break
        again = any(jaccard(piece.mask, earlier.mask) > overlap for earlier in found)
        if piece.mask.mean() > least_area and not again:
            found.append(piece)
        left = np.setdiff1d(left, np.flatnonzero(piece.mask))
    return found


def attention_object(attention: NDArray[np.floating], mass: float = 0.6) -> Discovery:
    """Return the largest component of the kept mass of one head [rows, columns]: the baseline."""
    mask = components(keep_mass_of_maps(attention, mass)) == 1
    strongest = int(np.where(mask, attention, -1).argmax())
    return Discovery(mask, divmod(strongest, attention.shape[1]))


def _cut(flat: Features, tau: float) -> NDArray[np.float64]:
    """Return the vector that cuts the patch graph, [patches]; zeros if all or no patches are connected."""
    weights = affinity(flat, tau)
    return np.zeros(len(flat)) if weights.min() == weights.max() else second_eigenvector(weights)


def affinity(features: NDArray[np.floating], tau: float, faint: float = 1e-5) -> NDArray[np.float64]:
    """Compute the edge weights of a patch graph: 1 where the cosine exceeds `tau`, `faint` elsewhere.

    Args:
        features: [nodes, D]. A zero vector has cosine 0 with all others.
        tau: Threshold in (-1, 1).
        faint: Small positive weight that keeps the graph connected.

    Returns:
        float64 [nodes, nodes], symmetric.
    """
    unit = np.asarray(features, dtype=np.float32)
    unit = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    return np.where(unit @ unit.T > tau, 1.0, faint)


def second_eigenvector(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve (D - W) y = lambda D y for the second smallest lambda: the normalized cut of a graph.

    With S = D^(-1/2) W D^(-1/2), y is D^(-1/2) z for the second largest eigenvector z of S. The largest
    eigenvector, D^(1/2) 1, is known and projected out, so that Lanczos iterations return z first.

    Args:
        weights: Symmetric edge weights W with positive row sums D, [nodes, nodes].

    Returns:
        [nodes], of unit length; its element of largest magnitude is positive.

    """
    root = np.sqrt(weights.sum(axis=1))
    found = None if len(weights) < _DENSE_BELOW else _lanczos(weights, root)
    vector = second_eigenvector_dense(weights) if found is None else found / root
    vector = vector / np.linalg.norm(vector)
    return vector * np.sign(vector[np.abs(vector).argmax()])


def second_eigenvector_dense(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve the same problem, apart from sign and length, by the dense generalized solver: [nodes]."""
    from scipy.linalg import eigh

    degrees = weights.sum(axis=1)
    _, vectors = eigh(np.diag(degrees) - weights, np.diag(degrees), subset_by_index=[1, 1])
    return vectors[:, 0]


_DENSE_BELOW = 200  # nodes; the dense solver is faster there
_LEAST_GAP = 1e-7  # between eigenvalues; below, rounding decides the eigenvector


def _lanczos(weights: NDArray[np.float64], root: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the second largest eigenvector of S, or None if the solver does not converge."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    known = root / np.linalg.norm(root)

    def apply(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        vector = vector.ravel() - known * (known @ vector.ravel())
        image = (weights @ (vector / root)) / root
        return image - known * (known @ image)

    start = np.random.default_rng(0).standard_normal(len(weights))
    operator = LinearOperator(weights.shape, matvec=apply, dtype=np.float64)
    try:
        values, vectors = eigsh(operator, k=2, which="LA", v0=start - known * (known @ start), tol=1e-9)
    except ArpackNoConvergence:
        return None
    return vectors[:, 1] if values[1] - values[0] > _LEAST_GAP else None


def _side_of_extreme(
    cut: NDArray[np.float64], background_in_corners: bool = False
) -> tuple[Mask, tuple[int, int]]:
    """Return the side of a cut that holds the object, and its patch of largest magnitude.

    NaN marks patches outside of the graph. With `background_in_corners`, a side that holds three corners of
    the image or more is the background, and the other side the object.
    """
    inside = ~np.isnan(cut)
    strength = np.where(inside, np.abs(cut), 0)
    above = cut > np.nanmean(cut)  # cells outside of the graph are not
    foreground = above == above.flat[strength.argmax()]
    if background_in_corners and foreground[[0, 0, -1, -1], [0, -1, 0, -1]].sum() >= 3:
        foreground = ~foreground
    foreground &= inside & (strength > 0)
    seed = int(np.where(foreground, strength, -1).argmax())
    return foreground, divmod(seed, cut.shape[1])


def _component_of_seed(mask: Mask, seed: tuple[int, int]) -> Discovery:
    return Discovery(component_at(mask, *seed), seed)


def refine_edges(
    masks: Mask, image: NDArray[np.uint8], radius: int, smoothness: float = 1e-3
) -> NDArray[np.float32]:
    """Align the edges of masks with those of their image by the color-guided filter.

    Args:
        masks: [..., height, width].
        image: [height, width, 3].
        radius: Largest shift of an edge in pixels, about the side of a patch.
        smoothness: Variance of color (on a scale of 0 to 1) below which a region counts as flat.

    Returns:
        Soft masks in [0, 1]: [..., height, width]; above 0.5 is inside.

    Raises:
        ValueError: masks and image differ in size.

    Source: He, Sun, Tang 2013, "Guided image filtering", equations 14-16.
    """
    height, width = masks.shape[-2:]
    if (height, width) != image.shape[:2]:
        raise ValueError(
            f"the masks are {(height, width)}, the image {image.shape[:2]}: enlarge the masks first"
        )
    soft = np.empty(masks.shape, dtype=np.float32)
    rows = max(2 * radius, _PIXELS_AT_A_TIME // width)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        # Means of means depend on pixels up to two windows away.
        first, last = max(0, top - 2 * radius), min(height, bottom + 2 * radius)
        strip = _guided(masks[..., first:last, :], image[first:last], radius, smoothness)
        soft[..., top:bottom, :] = strip[..., top - first : bottom - first, :]
    return soft


_PIXELS_AT_A_TIME = 1 << 19  # of a strip that is filtered at once: about 150 MB


def _guided(
    masks: Mask, image: NDArray[np.uint8], radius: int, smoothness: float
) -> NDArray[np.floating[Any]]:
    """Filter a strip; pixels within two windows of a cut are wrong."""

    def mean(values: NDArray[np.floating]) -> NDArray[np.float64]:
        window = (2 * radius + 1, 2 * radius + 1)
        return np.asarray(cv2.blur(values, window, borderType=cv2.BORDER_REFLECT), dtype=np.float64)

    guide = [np.ascontiguousarray(image[..., channel]) / 255.0 for channel in range(3)]
    means = [mean(channel) for channel in guide]
    rr, rg, rb, gg, gb, bb = (
        mean(guide[one] * guide[other]) - means[one] * means[other] + smoothness * (one == other)
        for one, other in combinations_with_replacement(range(3), 2)
    )
    # Inverse of the covariance of red, green and blue at each pixel, by cofactors.
    first = (gg * bb - gb * gb, gb * rb - rg * bb, rg * gb - gg * rb)
    second, third = (first[1], rr * bb - rb * rb, rg * rb - rr * gb), rr * gg - rg * rg
    determinant = rr * first[0] + rg * first[1] + rb * first[2]
    cofactors = (first, second, (first[2], second[2], third))
    soft = np.empty(masks.shape)
    for place in np.ndindex(masks.shape[:-2]):
        wanted = masks[place].astype(np.float64)
        wanted_mean = mean(wanted)
        joint = [
            mean(channel * wanted) - middle * wanted_mean
            for channel, middle in zip(guide, means, strict=True)
        ]
        slope = [sum(map(np.multiply, row, joint)) / determinant for row in cofactors]
        offset = wanted_mean - sum(map(np.multiply, slope, means))
        soft[place] = sum(mean(part) * channel for part, channel in zip(slope, guide, strict=True)) + mean(
            offset
        )
    return soft.clip(0, 1)


def box_jaccard(box: Box, other: Box) -> float:
    """Compute the intersection over union of two boxes, in [0, 1]."""
    width = min(box.right, other.right) - max(box.left, other.left)
    height = min(box.bottom, other.bottom) - max(box.top, other.top)
    shared = max(width, 0) * max(height, 0)
    areas = sum((one.right - one.left) * (one.bottom - one.top) for one in (box, other))
    return shared / (areas - shared) if areas > shared else 0.0


def localized(box: Box | None, objects: Sequence[Box]) -> bool:
    """Return whether a box is correct for CorLoc: Jaccard of at least 0.5 with any object."""
    return box is not None and any(box_jaccard(box, one) >= 0.5 for one in objects)


def f_curve(score: NDArray[np.floating], truth: Mask, convention: FConvention) -> NDArray[np.float64]:
    """Compute the F measure of one soft mask at 255 thresholds from 0 to 1: [255], in [0, 1].

    Args:
        score: Values in [0, 1]; a pixel at the threshold is inside: [height, width].
        truth: [height, width].
        convention: Weight beta squared of recall, 0.3 (tokencut) or 0.09 (found, which squares it once more).
    """
    weight = {"tokencut": 0.3, "found": 0.3**2}[convention]
    thresholds = np.linspace(0, 1 - 1e-10, 255)
    passed = np.searchsorted(thresholds, score.astype(np.float64), side="right")  # of each pixel
    inside, correct = (
        np.bincount(passed[chosen], minlength=256)[::-1].cumsum()[::-1][1:]
        for chosen in (np.ones_like(truth), truth)
    )
    precision = correct / np.maximum(inside, 1)
    recall = correct / max(int(truth.sum()), 1)
    return (1 + weight) * precision * recall / np.maximum(weight * precision + recall, 1e-20)


def max_f(curves: NDArray[np.float64], convention: FConvention) -> float:
    """Compute maxF of a data set in [0, 1] from the F curves of its images, [images, 255].

    `tokencut` averages the images first and takes the best common threshold; `found` takes the best threshold
    of each image. Published values of the two cannot be compared.
    """
    return float(curves.mean(axis=0).max() if convention == "tokencut" else curves.max(axis=1).mean())


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Average the scores of one method over all images, in percent.

    Args:
        rows: For each image `objects`, with boxes `localized`, with masks `iou`, `accuracy`, `f_tokencut` and
            `f_found`.
    """
    means: dict[str, float] = {}
    for key, name in (("localized", "corloc"), ("iou", "iou"), ("accuracy", "accuracy")):
        if key in rows[0]:
            means[name] = 100 * float(np.mean([row[key] for row in rows]))
    conventions: tuple[FConvention, ...] = ("tokencut", "found") if "f_found" in rows[0] else ()
    for convention in conventions:
        curves = np.stack([row[f"f_{convention}"] for row in rows])
        means[f"max_f_{convention}"] = 100 * max_f(curves, convention)
    return means | {"objects_per_image": float(np.mean([row["objects"] for row in rows]))}


PUBLISHED_CORLOC = {
    "voc07": {"lost": 61.9, "tokencut": 68.8},
    "voc12": {"lost": 64.0, "tokencut": 72.1},
}
"""Percent on trainval with DINO ViT-S/16, from the methods' own repositories."""


def set_resized(predictor: "AttentionPredictor", image: NDArray[np.uint8]) -> Placement:
    """Encode an image, resized by the predictor; the grid covers the image exactly."""
    predictor.set_image(image)
    return Placement(predictor.image_size, predictor.image_size)


def set_padded(predictor: "AttentionPredictor", image: NDArray[np.uint8]) -> Placement:
    """Encode an image at its own size, padded at the right and bottom to whole patches.

    The padding has the model's mean color, which normalization turns into 0, as in LOST and TokenCut.

    Args:
        predictor: Predictor with resize='native', which keeps whole patches.
        image: [height, width, 3].

    Raises:
        ValueError: The predictor has another `resize`.
    """
    if predictor.resize != "native":
        raise ValueError(
            f"the predictor resizes {predictor.resize!r}; padding needs one with resize='native'"
        )
    height, width = image.shape[:2]
    side = predictor.patch_size
    covered = -(-height // side) * side, -(-width // side) * side
    fed = np.empty((*covered, 3), dtype=np.uint8)
    fed[:] = np.rint(255 * np.array(predictor.model.mean)).astype(np.uint8)
    fed[:height, :width] = image
    predictor.set_image(fed)
    return Placement((height, width), covered)


def image_features(predictor: "AttentionPredictor", kind: Literal["keys", "tokens"] = "keys") -> Features:
    """Return keys or normed tokens of the last block, of the image set last: float32 [rows, columns, D]."""
    if kind == "tokens":
        return predictor.token_features()
    return key_features(predictor.keys(), predictor.prefix_tokens, predictor.grid)
