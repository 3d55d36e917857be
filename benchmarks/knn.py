"""k-NN votes against scikit-learn's brute force: 200,000 stored features, k = 200.

python -m benchmarks.knn [--queries 50000] [--json FILE]
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import tyro
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from benchmarks.measure import Benchmark, Computation
from dino_model.inference.classifier import vote
from training.evaluation.knn import neighbors

STORED, WIDTH, CLASSES, K, TEMPERATURE = 200_000, 384, 1_000, 200, 0.07
LABELS = torch.arange(STORED) % CLASSES


@dataclass(frozen=True, kw_only=True)
class Knn(Benchmark):
    """Votes of the 200 nearest of 200,000 features."""

    queries: int = 5_000
    """Number of queries."""
    repeats: int = 1
    """Timed turns of each side, after one to warm up."""

    def peers(self) -> dict[str, tuple[Computation, Computation]]:
        """Vote by our nearest neighbors, and by those of scikit-learn."""
        return {"scikit-learn, brute force": self.votes(self.queries)}

    def votes(self, count: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        """Votes for this number of queries by our neighbors, and by those of scikit-learn."""
        stored, queries = features(STORED, 0), features(count, 1)

        def classify() -> Tensor:
            search = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(stored.numpy())
            distances, indices = (torch.from_numpy(array) for array in search.kneighbors(queries.numpy()))
            return vote(1 - distances.float() ** 2 / 2, LABELS[indices], TEMPERATURE, CLASSES)

        return lambda: vote(*neighbors(stored, LABELS, queries, K), TEMPERATURE, CLASSES), classify

    def compare(self) -> tuple[str, ...]:
        """Compare the classes of a tenth of the queries."""
        count = max(1, self.queries // 10)
        package, reference = (compute().argmax(1) for compute in self.votes(count))
        return (
            f"{self.queries:,} × {WIDTH} against {STORED:,}, k = {K}, {torch.get_num_threads()} threads",
            f"the same class for {(package == reference).double().mean():.2%} of {count:,} queries",
        )


def features(count: int, seed: int) -> Tensor:
    """Draw unit vectors around a thousand centers, as features of classes lie: [count, WIDTH]."""
    centers = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(99))
    noise = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(centers[torch.arange(count) % CLASSES] + 2 * noise, dim=1)


if __name__ == "__main__":
    tyro.cli(Knn).run()
