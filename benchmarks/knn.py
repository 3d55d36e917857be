"""k-NN votes against scikit-learn's brute force on the same cores: 50,000 queries, 200,000 stored, k = 200.

python -m benchmarks.knn [--json FILE]
"""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from benchmarks.measure import Result, extra_memory, report
from training.evaluation.knn import neighbors, votes

QUERIES, STORED, WIDTH, CLASSES, K = 50_000, 200_000, 384, 1_000, 200
PART = 2_000  # queries that scikit-learn answers; its time for all follows


@dataclass(frozen=True)
class Knn:
    """Votes of the 200 nearest of 200,000 features for 50,000 queries."""

    queries: int = QUERIES
    """Queries that ours answers."""
    part: int = PART
    """Queries that scikit-learn answers; its time is told for as many as ours."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Answer by both, compare votes, print."""
        stored, labels, queries = features(STORED, 0), classes(STORED), features(self.queries, 1)
        started = time.perf_counter()
        cosines, near = neighbors(stored, labels, queries, K)
        ours = votes(cosines, near, 0.07, CLASSES)
        seconds = time.perf_counter() - started
        some = queries[: self.part]
        started = time.perf_counter()
        search = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(stored.numpy())
        distances, numbers = search.kneighbors(some.numpy())
        reference = (time.perf_counter() - started) * self.queries / len(some)
        theirs = votes(
            1 - torch.from_numpy(distances).float() ** 2 / 2, labels[torch.from_numpy(numbers)], 0.07, CLASSES
        )
        same = (ours[: len(some)].argmax(1) == theirs.argmax(1)).double().mean()
        remarks = (
            f"{self.queries:,} × {WIDTH} against {STORED:,}, k = {K}, {torch.get_num_threads()} threads",
            f"scikit-learn answered {len(some):,} queries, its time is told for all",
            f"the same class in {same:.2%}; greatest difference of a vote, of the greatest:"
            f" {float((ours[: len(some)] - theirs).abs().max() / theirs.max()):.1e}",
        )
        memory = extra_memory(_ours)
        report(Result("knn", seconds, reference, ours_memory=memory, remarks=remarks), self.json)
        if memory is not None:
            print(f"  our memory above features and labels: {memory / 1e6:,.0f} MB")


def features(count: int, seed: int) -> Tensor:
    """Unit vectors around a thousand centres, as features of classes lie."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(99))
    around = centres[torch.arange(count) % CLASSES]
    return torch.nn.functional.normalize(around + 2 * torch.randn(count, WIDTH, generator=random), dim=1)


def classes(count: int) -> Tensor:
    """The centre of each."""
    return torch.arange(count) % CLASSES


def _ours():  # type: ignore[no-untyped-def]
    stored, labels, queries = features(STORED, 0), classes(STORED), features(2_000, 1)
    return lambda: neighbors(stored, labels, queries, K)


if __name__ == "__main__":
    tyro.cli(Knn).run()
