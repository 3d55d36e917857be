"""Copies of pictures found by descriptor: whitening, rankings, groups of near-duplicates (section 4.2.1)."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps
from torch import Tensor

from training.evaluation.retrieval import average_precision, ranks_of
from training.evaluation.search import nearest, unit

Formula = Literal["corrected", "released"]
LEAST_VARIANCE = 1e-5
"""Of the largest: smaller ones are raised to it before whitening."""
DEPTH = 20
"""Places that the released evaluation looks at."""


@dataclass(frozen=True)
class Whitening:
    """Descriptors moved and stretched so that those it was learnt from vary alike in every direction."""

    mean: Tensor  # float64 [width]
    projection: Tensor  # float64 [width, width], a row for each direction, the widest first
    variances: Tensor  # float64 [width] of these directions, the small ones raised

    def __call__(self, descriptors: Tensor) -> Tensor:
        """[pictures, width] -> the same shape, float64, not normalised."""
        return (descriptors.double() - self.mean) @ self.projection.T


def learn_whitening(descriptors: Tensor, formula: Formula = "corrected") -> Whitening:
    """Whitening from descriptors of other pictures.

    Args:
        descriptors: [pictures, width].
        formula: released takes second moments about zero though it then subtracts the mean, as the released
            code does: what comes out is not white.

    Raises:
        ValueError: fewer than two, or not finite.
    """
    if len(descriptors) < 2 or not descriptors.isfinite().all():
        raise ValueError(f"whitening needs two finite descriptors or more, found {len(descriptors)}")
    x = descriptors.double()
    mean = x.mean(dim=0)
    centred = x - mean if formula == "corrected" else x
    variances, directions = torch.linalg.eigh(centred.T @ centred / len(x))
    variances, directions = variances.flip(0), directions.flip(1)
    variances = variances.clamp(min=LEAST_VARIANCE * float(variances[0]))
    return Whitening(mean, (directions / variances.sqrt()).T, variances)


def similarity(queries: Tensor, database: Tensor, whitening: Whitening | None = None) -> Tensor:
    """Cosines of descriptors, whitened or not: [queries, width], [pictures, width] -> [queries, pictures]."""
    if whitening is not None:
        queries, database = whitening(queries), whitening(database)
    return unit(queries) @ unit(database).T


def average_precisions(
    similarity: Tensor, positives: Sequence[Sequence[int]], *, depth: int | None = None
) -> NDArray[np.float64]:
    """Average precision of every query, out of 1.

    Args:
        similarity: [queries, pictures].
        positives: of each query the pictures that it is a copy of, at least one.
        depth: places that are looked at; a positive behind them adds nothing. None: all.

    Raises:
        ValueError: a query without a positive.
    """
    if any(not len(one) for one in positives):
        raise ValueError("a query has no original among the pictures: it cannot be scored")
    found = []
    for ranks in ranks_of(similarity, positives):
        seen = np.sort(ranks if depth is None else ranks[ranks < depth])
        found.append(average_precision(seen) * len(seen) / len(ranks) if len(seen) else 0.0)
    return np.array(found)


def duplicate_groups(descriptors: Tensor, least: float, *, neighbours: int = 50) -> list[list[int]]:
    """Pictures that are alike, directly or by way of others.

    Args:
        descriptors: [pictures, width].
        least: cosine from which two are alike.
        neighbours: of each picture that are looked at.

    Returns:
        Groups of two pictures or more, the largest first, each in the order of the pictures.
    """
    parent = list(range(len(descriptors)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    cosines, numbers = nearest(descriptors, descriptors, neighbours + 1)
    for one, place in (cosines >= least).nonzero().tolist():
        low, high = sorted((root(one), root(int(numbers[one, place]))))
        parent[high] = low
    groups: dict[int, list[int]] = {}
    for index in range(len(parent)):
        groups.setdefault(root(index), []).append(index)
    return sorted((group for group in groups.values() if len(group) > 1), key=lambda g: (-len(g), g[0]))


@dataclass(frozen=True)
class Alike:
    """What a least cosine of near-duplicates finds, and what it mistakes."""

    least: float
    """The cosine."""
    found: float
    """Copies that are that close to their original, in percent."""
    mistaken: float
    """Pairs of different pictures that are that close, for every thousand pictures."""

    def __str__(self) -> str:
        told = f"cosine {self.least:g}: {self.found:.1f} % of the copies"
        return f"{told}, and {self.mistaken:.1f} pairs of others for every thousand pictures"


def alike(own: Tensor, among: Tensor, least: float) -> Alike:
    """How far copies and different pictures are told apart by a least cosine.

    Args:
        own: cosine of every copy with its original: [copies].
        among: cosines of all pictures with each other: [pictures, pictures].
        least: from which two count as alike.
    """
    pairs = int((among >= least).triu(diagonal=1).sum())
    return Alike(least, 100 * float((own >= least).double().mean()), 1000 * pairs / len(among))


COPIES = ("crop", "jpeg 10", "blur", "mirrored", "print")
"""Ways in which `copy_of` changes a picture."""


def copy_of(picture: NDArray[np.uint8], how: str, seed: int) -> NDArray[np.uint8]:
    """A picture as somebody might pass it on.

    Args:
        picture: uint8 [height, width, 3].
        how: one of `COPIES`: half of the area; JPEG of quality 10; a Gaussian blur of 2 % of the short side;
            left and right exchanged; as printed and scanned: turned, faded, noisy, with paper around.
        seed: the same makes the same copy.

    Returns:
        uint8 [height, width, 3], perhaps of another size.
    """
    random = np.random.default_rng(seed)
    image = Image.fromarray(picture)
    width, height = image.size
    if how == "crop":
        across, down = round(width * 0.5**0.5), round(height * 0.5**0.5)
        left, top = random.integers(0, width - across + 1), random.integers(0, height - down + 1)
        image = image.crop((left, top, left + across, top + down))
    elif how == "jpeg 10":
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=10)
        image = Image.open(buffer).convert("RGB")
    elif how == "blur":
        image = image.filter(ImageFilter.GaussianBlur(0.02 * min(width, height)))
    elif how == "mirrored":
        image = ImageOps.mirror(image)
    elif how == "print":
        paper = ImageOps.expand(image, round(0.05 * min(width, height)), (245, 242, 235))
        paper = paper.rotate(random.uniform(-4, 4), Image.Resampling.BICUBIC, fillcolor=(245, 242, 235))
        faded = 30 + np.asarray(paper, np.float64) * 0.8 + random.normal(0, 12, (*paper.size[::-1], 1))
        return faded.clip(0, 255).round().astype(np.uint8)
    else:
        raise ValueError(f"no copy is made by {how!r}: choose one of {', '.join(COPIES)}")
    return np.asarray(image)
