"""Matching of two images: corresponding patches by the cosine similarity of their features.

Features are those of a patch grid, [rows, columns, D]; `centers` converts patches to pixels.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from dino_model.inference.quantities import principal_colors, unit_vectors

if TYPE_CHECKING:  # commands import this module before they need PyTorch
    from dino_model.inference.predictor import AttentionPredictor

Features = NDArray[np.floating]
Cells = NDArray[np.int64]
Positions = NDArray[np.float64]
Sides = tuple[tuple[int, int], tuple[int, int]]  # of A and B

Part = Literal["all", "foreground"]

BLOCKS = 4  # the last ones, whose tokens are compared
SCALES = (0.7, 1.0, 1.4)
"""Sizes of B that are tried, see `best_scale`."""
CHUNK = 2048  # patches whose similarities with all others are held at once
NEIGHBORHOOD = 2  # patches around the nearest one that are no rivals
LEAST_TEXTURE = 4.0  # standard deviation of a patch's gray values, of 255
NEIGHBORS = 8  # matches from which the position of one between them is predicted
FIRST, AFTERWARDS = 4, 6  # neighbors that must agree: among all matches, then among the kept matches


class MatchFeatures(NamedTuple):
    """Features of an image's patches."""

    features: Features  # [rows, columns, D]
    textured: NDArray[np.bool_]  # [rows, columns], see `textured_patches`


class NearestPatches(NamedTuple):
    """The most similar patch of another grid for each patch, in reading order."""

    patch: NDArray[np.int64]  # [patches], in reading order of the other grid; the first of equals
    cosine: NDArray[np.float32]  # [patches], -1 to 1
    ratio: NDArray[np.float32]  # [patches], see `nearest_patches`


@dataclass(frozen=True)
class Matches:
    """Corresponding patches of A and B, the surest first."""

    a: Cells  # [matches, 2]: row and column on A's grid
    b: Positions  # [matches, 2]: the same on B's, between patches where `keep_coherent` says so
    cosine: NDArray[np.float32]  # [matches]
    ratio: NDArray[np.float32]  # [matches], of the direction in which it is larger

    def __len__(self) -> int:
        return len(self.a)

    def __getitem__(self, chosen: NDArray[Any]) -> "Matches":
        return Matches(self.a[chosen], self.b[chosen], self.cosine[chosen], self.ratio[chosen])


def match_features(predictor: "AttentionPredictor", image: NDArray[np.uint8]) -> MatchFeatures:
    """Return the patch tokens after each of the last `BLOCKS` blocks, of the image [H, W, 3] set last."""
    parts = []  # of equal spread
    for block in range(max(0, predictor.blocks - BLOCKS), predictor.blocks):
        tokens = np.asarray(predictor.token_features(block), np.float32)
        spread = np.linalg.norm(tokens - tokens.mean(axis=(0, 1)), axis=-1).mean()
        parts.append(tokens / (spread or 1))
    features = np.concatenate(parts, axis=-1)
    return MatchFeatures(features, textured_patches(image, predictor.grid))


def is_flat(image: NDArray[np.uint8]) -> bool:
    """Return whether every pixel of an image [H, W, 3] has the same color."""
    return bool((image == image[0, 0]).all())


def textured_patches(image: NDArray[np.uint8], grid: tuple[int, int]) -> NDArray[np.bool_]:
    """Mark the patches of an image [H, W, 3] that have texture: [rows, columns].

    Patches without texture, such as a bright sky's, match whatever is at the same position.
    """
    gray = image.astype(np.float32).mean(axis=-1)
    mean, squares = (cv2.resize(one, grid[::-1], interpolation=cv2.INTER_AREA) for one in (gray, gray**2))
    return np.asarray(squares - mean**2 >= LEAST_TEXTURE**2)


def prepare_pair(a: Features, b: Features) -> tuple[Features, Features]:
    """Average features [rows, columns, D] with their eight neighbors; subtract the mean over both images."""
    from scipy.ndimage import uniform_filter  # half a second to import

    a, b = (uniform_filter(np.asarray(one, np.float32), (3, 3, 1), mode="nearest") for one in (a, b))
    mean = (a.mean(axis=(0, 1)) + b.mean(axis=(0, 1))) / 2
    return a - mean, b - mean


def similarities(a: Features, b: Features, patch: tuple[int, int]) -> NDArray[np.float32]:
    """Compute the cosine of one patch of A (row, column) with every patch of B: [rows, columns]."""
    cosines: NDArray[np.float32] = unit_vectors(b).reshape(-1, b.shape[-1]) @ unit_vectors(a[patch])
    return cosines.reshape(b.shape[:2])


def nearest_patches(a: Features, b: Features) -> NearestPatches:
    """Find for every patch of A the patch of B with the greatest cosine, and its ratio.

    The distance is 1 - cosine. The ratio is the distance of the nearest patch divided by that of its nearest
    rival: 0 is unambiguous, 1 is ambiguous. A rival is more than `NEIGHBORHOOD` patches away in B.

    Source: Lowe 2004, "Distinctive image features from scale-invariant keypoints", section 7.1.
    """
    units, others = (unit_vectors(one).reshape(-1, one.shape[-1]) for one in (a, b))
    parts = [_nearest(units[at : at + CHUNK], others, b.shape[:2]) for at in range(0, len(units), CHUNK)]
    return NearestPatches(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def mutual_matches(a: Features, b: Features, ratio: float) -> Matches:
    """Find patches that are each other's nearest, given features as `prepared` returns them.

    `ratio` is the largest `NearestPatches.ratio` of both directions; 1 keeps all mutual neighbors.
    """
    to_b, to_a = nearest_patches(a, b), nearest_patches(b, a)
    mutual = np.flatnonzero(to_a.patch[to_b.patch] == np.arange(len(to_b.patch)))
    partners = to_b.patch[mutual]
    larger = np.maximum(to_b.ratio[mutual], to_a.ratio[partners])
    cells_a, cells_b = (
        np.stack(np.divmod(patches, one.shape[1]), axis=-1) for patches, one in ((mutual, a), (partners, b))
    )
    matches = Matches(cells_a, cells_b.astype(np.float64), to_b.cosine[mutual], larger)
    order = np.argsort(larger, kind="stable")
    return matches[order[larger[order] <= ratio]]


def keep_coherent(matches: Matches) -> Matches:
    """Keep the matches that agree with their neighbors, at the positions that the neighbors predict.

    A robust affine map is fitted to the nearest other matches of each match. A match is kept if the map
    predicts it to within a patch and enough neighbors agree. The second pass has only kept matches as
    neighbors, and all matches as candidates.
    """
    places, agreeing = _expectation(matches, np.arange(len(matches)), FIRST)
    if agreeing.any():
        places, agreeing = _expectation(matches, np.flatnonzero(agreeing), AFTERWARDS)
    return replace(matches, b=places)[agreeing]


def matches_between(a: MatchFeatures, b: MatchFeatures, ratio: float) -> Matches:
    """Find coherent mutual matches of textured patches, the surest first; `ratio` as `mutual_matches`."""
    matches = mutual_matches(*prepare_pair(a.features, b.features), ratio=ratio)
    in_b = matches.b.astype(np.int64)
    kept = a.textured[matches.a[:, 0], matches.a[:, 1]] & b.textured[in_b[:, 0], in_b[:, 1]]
    return keep_coherent(matches[kept])


def best_scale(
    a: MatchFeatures, scaled: Mapping[float, MatchFeatures], ratio: float
) -> tuple[float, Matches]:
    """Return the scale of B with the most matches (ties: nearest to 1), and these matches.

    `scaled` has the features of B resized by each scale, at least one.
    """
    matches = {scale: matches_between(a, b, ratio) for scale, b in scaled.items()}
    best = max(matches, key=lambda scale: (len(matches[scale]), -abs(math.log(scale))))
    return best, matches[best]


def joint_colors(a: Features, b: Features, part: Part = "all") -> list[NDArray[np.float32]]:
    """Color the patches by three principal components over both images.

    `foreground` divides the patches by the sign of the first component. It keeps the side with the smaller
    share of the images' edges, and computes the three components of that side; the rest is black.

    Args:
        a, b: Features of both images, [rows, columns, D] with D at least 3.

    Returns:
        Red, green and blue of each image, float32 [rows, columns, 3] in [0, 1].

    Source: Oquab et al. 2023 ("DINOv2", figure 1); the rule for the foreground is our own.
    """
    both = np.concatenate([one.reshape(-1, one.shape[-1]) for one in (a, b)]).astype(np.float64)
    colors = principal_colors(both[None])[0]
    if part == "foreground":
        side = colors[:, 0] > colors[:, 0].mean(dtype=np.float64)  # the components have mean 0
        edges = [np.ones(one.shape[:2], dtype=bool) for one in (a, b)]
        for edge in edges:
            edge[1:-1, 1:-1] = False
        edge = np.concatenate([edge.ravel() for edge in edges])
        kept = side if side[edge].mean() <= side[~edge].mean() else ~side
        if kept.sum() >= 3:
            colors = np.zeros_like(colors)
            colors[kept] = principal_colors(both[kept][None])[0]
    parts = np.split(colors, [a.shape[0] * a.shape[1]])
    return [colors.reshape(*one.shape[:2], 3) for colors, one in zip(parts, (a, b), strict=True)]


def centers(cells: NDArray[np.number], grid: tuple[int, int], image: tuple[int, int]) -> NDArray[np.float64]:
    """Convert rows and columns of patches [..., 2] to y and x of their centers in pixels [..., 2]."""
    sides = np.array(image) / np.array(grid)
    return (np.asarray(cells) + 0.5) * sides - 0.5


def in_pixels(matches: Matches, grids: Sides, sizes: Sides) -> tuple[Positions, Positions]:
    """Return y and x [matches, 2] in both images, given rows and columns, and height and width of both."""
    return centers(matches.a, grids[0], sizes[0]), centers(matches.b, grids[1], sizes[1])


def matches_as_json(matches: Matches, grids: Sides, sizes: Sides) -> list[dict[str, Any]]:
    """List matches in pixels for JSON, with cosine and ratio; arguments as `in_pixels`."""
    places = (each.round(1).tolist() for each in in_pixels(matches, grids, sizes))
    figures = (each.astype(float).round(4).tolist() for each in (matches.cosine, matches.ratio))
    return [
        {"a": a, "b": b, "cosine": cosine, "ratio": ratio}
        for a, b, cosine, ratio in zip(*places, *figures, strict=True)
    ]


def _expectation(
    matches: Matches, sources: NDArray[np.int64], enough: int
) -> tuple[Positions, NDArray[np.bool_]]:
    """Predict each match from the nearest of the `sources`: position in B [matches, 2], and agreement."""
    from scipy.spatial import cKDTree

    here, there = matches.a.astype(np.float64), matches.b
    if len(sources) <= NEIGHBORS:
        return there, np.zeros(len(matches), dtype=bool)
    near = sources[cKDTree(here[sources]).query(here, NEIGHBORS + 1)[1]]
    itself_last = np.argsort(near == np.arange(len(matches))[:, None], axis=1, kind="stable")
    near = np.take_along_axis(near, itself_last, axis=1)[:, :NEIGHBORS]
    steps, went = here[near] - here[:, None], there[near] - there[:, None]  # [matches, neighbors, 2]
    design = np.concatenate([steps, np.ones_like(steps[..., :1])], axis=-1)
    shifts = went - steps  # the first weights assume that neighbors keep their distances
    off = np.linalg.norm(shifts - np.median(shifts, axis=1, keepdims=True), axis=-1)
    weights = 1 / (1 + off**2)
    for _ in range(5):
        weighted = (design * weights[..., None]).transpose(0, 2, 1)
        maps = np.linalg.solve(weighted @ design + 1e-3 * np.eye(3), weighted @ went)  # [matches, 3, 2]
        off = np.linalg.norm(design @ maps - went, axis=-1)
        weights = 1 / (1 + (2 * off) ** 2) ** 2
    shift = maps[:, 2]
    return there + shift, (np.abs(shift).max(axis=-1) <= 1) & ((off <= 1).sum(axis=1) >= enough)


def _nearest(
    units: NDArray[np.float32], others: NDArray[np.float32], grid: tuple[int, ...]
) -> NearestPatches:
    """`NearestPatches` of a few patches: unit vectors [patches, D] among [others, D] on a grid."""
    cosines = units @ others.T
    index = cosines.argmax(axis=1)
    every = np.arange(len(units))
    best = cosines[every, index]
    rows, columns = np.divmod(index, grid[1])
    reach = range(-NEIGHBORHOOD, NEIGHBORHOOD + 1)
    for down in reach:  # exclude the nearest patch and its neighborhood; the greatest left is the rival
        for right in reach:
            row = (rows + down).clip(0, grid[0] - 1)
            column = (columns + right).clip(0, grid[1] - 1)
            cosines[every, row * grid[1] + column] = -1
    rival = 1 - cosines.max(axis=1)
    ratio = np.where(rival > 0, (1 - best) / np.where(rival > 0, rival, 1), 1).clip(0, 1)
    return NearestPatches(index, best, ratio.astype(np.float32))
