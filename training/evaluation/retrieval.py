"""Ranking by similarity, and how right it is: the revisited Oxford and Paris benchmark (section 4.2.1).

Source: Radenović et al. 2018; figures as the released code computes them, on arrays instead of loops.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PLACES = (1, 5, 10)
"""Of mP@k."""
_FEW = 300  # pictures of a query that are placed by counting

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Relevance:
    """What is right for one query: numbers of pictures of the database."""

    easy: tuple[int, ...]
    hard: tuple[int, ...]
    junk: tuple[int, ...]

    def medium(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Right and ignored pictures of the Medium setting."""
        return (*self.easy, *self.hard), self.junk

    def difficult(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Right and ignored pictures of the Hard setting."""
        return self.hard, (*self.junk, *self.easy)


@dataclass(frozen=True)
class RetrievalResult:
    """How right rankings are, in percent; queries without a right picture do not count."""

    map: float
    """Mean average precision."""
    precision: tuple[float, ...]
    """Mean precision at `PLACES`: of the first k, or of the places to the last right picture if those are
    fewer."""
    queries: int
    """That count."""
    average_precisions: tuple[float, ...]
    """Of every query, out of 1; nan where none is right."""

    def __str__(self) -> str:
        at = ", ".join(f"mP@{k} {value:.1f}" for k, value in zip(PLACES, self.precision, strict=True))
        return f"mAP {self.map:.1f} %, {at} ({self.queries} queries)"


def ranks_of(similarity: Tensor, wanted: Sequence[Sequence[int]]) -> list[Numbers]:
    """Places, from 0, that pictures have in the rankings of queries, best first.

    Of equal similarities the picture with the smaller number comes first.

    Args:
        similarity: [queries, database].
        wanted: of each query, numbers of pictures.

    Returns:
        Of each query int64 [wanted], in the order of `wanted`.
    """
    rows = zip(similarity.numpy(), wanted, strict=True)
    return [_sorted(row, some) if len(some) > _FEW else _counted(row, some) for row, some in rows]


def _counted(row: NDArray[np.floating], wanted: Sequence[int]) -> Numbers:
    """Places by counting what comes before: earlier pictures as similar, later ones more similar."""
    before = np.empty(len(row), dtype=bool)
    counts = np.empty(len(wanted), dtype=np.int64)
    for place, number in enumerate(wanted):
        np.greater_equal(row[:number], row[number], out=before[:number])
        np.greater(row[number:], row[number], out=before[number:])
        counts[place] = np.count_nonzero(before)
    return counts


def _sorted(row: NDArray[np.floating], wanted: Sequence[int]) -> Numbers:
    """Places by sorting the whole ranking: sooner done for many pictures."""
    places = np.empty(len(row), dtype=np.int64)
    places[np.argsort(-row, kind="stable")] = np.arange(len(row))
    return places[list(wanted)]


def average_precision(ranks: Numbers) -> float:
    """Area under precision over recall, by trapezoids; precision before the first place is 1.

    Args:
        ranks: places of the right pictures, from 0, ascending, at least one.

    Returns:
        In [0, 1].
    """
    found = np.arange(len(ranks))
    before = np.where(ranks == 0, 1.0, found / np.maximum(ranks, 1))
    return float(((before + (found + 1) / (ranks + 1)) / 2).mean())


def judge(
    similarity: Tensor, right: Sequence[Sequence[int]], ignored: Sequence[Sequence[int]]
) -> RetrievalResult:
    """How right the rankings are when some pictures are taken out of them.

    Args:
        similarity: [queries, database], finite.
        right: of each query the right pictures.
        ignored: of each query those that are taken out before.

    Raises:
        ValueError: lists that do not fit, similarities that are not finite, no query with a right picture.
    """
    check(similarity, right, ignored)
    precisions, averages = [], []
    places = ranks_of(similarity, [[*r, *i] for r, i in zip(right, ignored, strict=True)])
    for mine, found in zip(right, places, strict=True):
        if not mine:
            averages.append(float("nan"))
            continue
        ranks, out = np.sort(found[: len(mine)]), np.sort(found[len(mine) :])
        ranks = ranks - np.searchsorted(out, ranks)
        averages.append(average_precision(ranks))
        ends = np.minimum(PLACES, ranks[-1] + 1)
        precisions.append([(ranks < end).sum() / end for end in ends])
    if not precisions:
        raise ValueError("no query has a right picture: is the ground truth of another data set?")
    means = tuple(100 * float(value) for value in np.mean(precisions, axis=0))
    return RetrievalResult(100 * float(np.nanmean(averages)), means, len(precisions), tuple(averages))


def medium_and_hard(
    similarity: Tensor, relevance: Sequence[Relevance]
) -> tuple[RetrievalResult, RetrievalResult]:
    """The benchmark's two settings. Arguments and errors as `judge`."""
    medium, hard = (
        judge(similarity, *zip(*pairs, strict=True))
        for pairs in ([one.medium() for one in relevance], [one.difficult() for one in relevance])
    )
    return medium, hard


def check(similarity: Tensor, *lists: Sequence[Sequence[int]]) -> None:
    """Refuse lists that name what is not there."""
    queries, database = similarity.shape
    if not similarity.sum(dtype=torch.float64).isfinite():
        raise ValueError("similarities hold NaN or infinity: the model is broken, or needs precision fp32")
    for many in lists:
        if len(many) != queries:
            raise ValueError(
                f"{len(many)} lists for {queries} queries: the ground truth is of another data set"
            )
        if (largest := max((max(one) for one in many if len(one)), default=-1)) >= database:
            raise ValueError(
                f"the ground truth names picture {largest} of {database}: it is of another data set"
            )
