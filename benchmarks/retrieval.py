"""Ranking with mAP against the released way: every ranking sorted whole, queries and lists in loops.

python -m benchmarks.retrieval [--json FILE]
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from numpy.typing import NDArray

from benchmarks.measure import Result, report
from training.evaluation.retrieval import judge


@dataclass(frozen=True)
class Retrieval:
    """mAP of 5,000 queries over 100,000 pictures."""

    queries: int = 5_000
    """Queries that ours judges; the similarities of a part are in memory at once."""
    pictures: int = 100_000
    """Of the database."""
    part: int = 250
    """Queries that the plain way judges; its time is told for as many as ours."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Judge by both, compare, print."""
        random = np.random.default_rng(0)
        lists = [random.choice(self.pictures, 40, replace=False) for _ in range(self.part)]
        right, ignored = [one[:25].tolist() for one in lists], [one[25:].tolist() for one in lists]
        similarity = random.standard_normal((self.part, self.pictures)).astype(np.float32)
        seconds = 0.0
        for _ in range(self.queries // self.part):  # parts alike: 5,000 × 100,000 similarities would be 2 GB
            started = time.perf_counter()
            result = judge(torch.from_numpy(similarity), right, ignored)
            seconds += time.perf_counter() - started
        started = time.perf_counter()
        plain = plain_map(similarity, right, ignored)
        reference = (time.perf_counter() - started) * self.queries / self.part
        remarks = (
            f"{self.queries:,} queries over {self.pictures:,} pictures, 25 right and 15 ignored each",
            f"the plain way judged {self.part}; the mAP differs by {abs(result.map / 100 - plain):.1e}",
        )
        report(Result("retrieval", seconds, reference, remarks=remarks), self.json)


def plain_map(similarity: NDArray[np.float32], right: list[list[int]], ignored: list[list[int]]) -> float:
    """As the released code does it: sort, look the pictures up, take junk out, add trapezoids."""
    rankings = np.argsort(-similarity, axis=1)
    averages = []
    for ranking, good, junk in zip(rankings, right, ignored, strict=True):
        places = np.arange(len(ranking))[np.isin(ranking, good)]
        junk_places = np.arange(len(ranking))[np.isin(ranking, junk)]
        places = np.array([place - (junk_places < place).sum() for place in places])
        area = 0.0
        for found, place in enumerate(places):
            before = 1.0 if place == 0 else found / place
            area += (before + (found + 1) / (place + 1)) / (2 * len(good))
        averages.append(area)
    return float(np.mean(averages))


if __name__ == "__main__":
    tyro.cli(Retrieval).run()
