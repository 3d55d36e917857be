"""The class map of 1,000 classes, against t-SNE with exact gradients.

python -m benchmarks.class_map [--json FILE]
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import tyro
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from torch import Tensor

from benchmarks.measure import Result, median_seconds, report
from dino_model.class_map import files as class_map_files
from dino_model.class_map.layout import Origin, Protocol, draw, neighbour_overlap
from dino_model.views import View

WIDTH = 384  # of ViT-S
FAMILIES = 60  # classes come in families, as species do


@dataclass(frozen=True)
class ClassMapBenchmark:
    """From features to files: means, PCA, t-SNE, neighbours, thumbnails, figure."""

    classes: int = 1000
    """How many."""
    iterations: int = 5000
    """Of ours, the paper's; the exact one runs a twentieth of them and is scaled up."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Draw both maps, measure, print."""
        features = family_features(self.classes)
        protocol = Protocol(iterations=self.iterations)
        short = max(250, self.iterations // 20)
        with tempfile.TemporaryDirectory() as folder:
            ours = ours_into(Path(folder), features, protocol)
            exact = exact_plane(features, replace(protocol, iterations=short))
            # The map alone takes minutes the exact way: one turn each, no more.
            seconds, short_seconds = median_seconds(ours, exact, repeats=1)
            overlap = class_map_files.read(Path(folder)).overlap
        remarks = (
            f"{self.classes:,} classes × {WIDTH} features, {self.iterations} iterations, "
            f"{torch.get_num_threads()} threads; ours includes files, thumbnails and figure",
            f"reference: exact gradients, {short} iterations measured, scaled to {self.iterations}",
            str(overlap),
        )
        report(
            Result("class_map", seconds, short_seconds * self.iterations / short, remarks=remarks), self.json
        )


def family_features(classes: int) -> Tensor:
    """One feature for each class, scattered around its family's: [classes, WIDTH]."""
    rng = np.random.default_rng(0)
    families = rng.normal(size=(FAMILIES, WIDTH))
    features = families[rng.integers(0, FAMILIES, classes)] + rng.normal(size=(classes, WIDTH))
    return torch.tensor(features, dtype=torch.float32)


def ours_into(folder: Path, features: Tensor, protocol: Protocol) -> Callable[[], object]:
    """Everything that `python -m dino_model class-map` does after the features."""
    classes = len(features)
    origin = Origin("none", "none", "families", View(224, (0.5,) * 3, (0.5,) * 3))
    pictures = [np.zeros((224, 300, 3), np.uint8)] * classes
    keys = [f"class {index}" for index in range(classes)]

    def compute() -> object:
        drawn = draw(features, list(range(classes)), keys, protocol, origin)
        return class_map_files.write(folder, drawn, pictures)

    return compute


def exact_plane(features: Tensor, protocol: Protocol) -> Callable[[], object]:
    """PCA and t-SNE without Barnes and Hut's approximation, and how well it keeps neighbours."""

    def compute() -> object:
        reduced = PCA(protocol.components, svd_solver="full").fit_transform(features.numpy())
        tsne = TSNE(
            perplexity=protocol.perplexity,
            learning_rate=protocol.learning_rate,
            max_iter=protocol.iterations,
            n_iter_without_progress=protocol.iterations,
            min_grad_norm=0,
            init="pca",
            random_state=protocol.seed,
            method="exact",
        )
        return neighbour_overlap(features.numpy(), tsne.fit_transform(reduced))

    return compute


if __name__ == "__main__":
    tyro.cli(ClassMapBenchmark).run()
