"""k-NN votes against scikit-learn's brute force: 50,000 queries, 200,000 stored features, k = 200.

python -m benchmarks.knn [--json FILE]
"""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from benchmarks.measure import Result, report
from training.evaluation.knn import neighbors, votes

STORED, WIDTH, CLASSES, K, TEMPERATURE = 200_000, 384, 1_000, 200, 0.07


@dataclass(frozen=True)
class Knn:
    """Votes of the 200 nearest of 200,000 features."""

    queries: int = 50_000
    """Queries of ours."""
    part: int = 2_000
    """Queries of scikit-learn; its time is scaled up."""
    json: Path | None = None
    """Write the results to this file."""

    def run(self) -> None:
        """Classify by both, compare the classes, print."""
        stored, labels = features(STORED, 0), torch.arange(STORED) % CLASSES
        queries = features(self.queries, 1)
        started = time.perf_counter()
        ours = votes(*neighbors(stored, labels, queries, K), TEMPERATURE, CLASSES)
        seconds = time.perf_counter() - started
        some = queries[: self.part]
        started = time.perf_counter()
        search = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(stored.numpy())
        distances, indices = (torch.from_numpy(found) for found in search.kneighbors(some.numpy()))
        reference = (time.perf_counter() - started) * self.queries / len(some)
        theirs = votes(1 - distances.float() ** 2 / 2, labels[indices], TEMPERATURE, CLASSES)
        same = (ours[: len(some)].argmax(1) == theirs.argmax(1)).double().mean()
        remarks = (
            f"{self.queries:,} × {WIDTH} against {STORED:,}, k = {K}, {torch.get_num_threads()} threads",
            f"scikit-learn: {len(some):,} queries timed, scaled up; the same class in {same:.2%}",
        )
        report(Result("knn", seconds, reference, remarks=remarks), self.json)


def features(count: int, seed: int) -> Tensor:
    """Draw unit vectors around a thousand centers, as features of classes lie: [count, WIDTH]."""
    centers = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(99))
    noise = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(centers[torch.arange(count) % CLASSES] + 2 * noise, dim=1)


if __name__ == "__main__":
    tyro.cli(Knn).run()
