"""Place the classes of a collection in the plane, near classes with similar features.

The mean feature of each class is reduced to 30 dimensions by PCA and laid out by t-SNE. `neighbor_overlap`
measures the share of nearest neighbors that the plane keeps.

Source: Appendix "Class Representation", figure "t-SNE visualization of ImageNet classes".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dino_model.data.framing import Framing
from dino_model.inference.class_map.names import describe
from dino_model.inference.search import UnitVectors, nearest

FEWEST_CLASSES = 3
NUM_NEIGHBORS = 10
Neighbors = tuple[tuple[int, float], ...]
"""Index and cosine distance (0 to 2) of the nearest classes by features, nearest first."""


@dataclass(frozen=True)
class Protocol:
    """Dimensions of the PCA, and parameters of t-SNE, which starts from the principal components."""

    components: int = 30
    perplexity: float = 20.0
    learning_rate: float = 200.0
    iterations: int = 5000
    seed: int = 0

    def fit_to(self, classes: int, width: int) -> "Protocol":
        """Limit the components to the classes and features, and adapt the perplexity.

        t-SNE uses three times as many neighbors as the perplexity.
        """
        perplexity = min(self.perplexity, max(1.0, (classes - 1) / 3))
        return replace(self, components=min(self.components, classes, width), perplexity=perplexity)

    def __str__(self) -> str:
        return (
            f"mean feature of each class, PCA to {self.components}, t-SNE with perplexity "
            f"{self.perplexity:g}, learning rate {self.learning_rate:g}, {self.iterations} iterations, "
            f"seed {self.seed}"
        )


@dataclass(frozen=True)
class Overlap:
    """Share of a class's nearest neighbors by features that are nearest on the map, mean over classes.

    `num_neighbors` is their number, `chance` the expected share of random points.
    """

    num_neighbors: int
    share: float
    chance: float

    def __str__(self) -> str:
        return (
            f"{100 * self.share:.1f} % of the {self.num_neighbors} nearest neighbors by features (cosine) "
            f"are among the {self.num_neighbors} nearest on the map (chance {100 * self.chance:.1f} %)"
        )


@dataclass(frozen=True)
class MappedClass:
    """Point of a class: its folder, its name in words, one of `names.GROUPS`, its number of images."""

    key: str
    name: str
    group: str
    num_images: int
    x: float
    y: float
    neighbors: Neighbors


@dataclass(frozen=True)
class Origin:
    """Model (its name, `weights_fingerprint` and output), name of the collection and framing of a map."""

    model: str
    weights: str
    feature: str
    data: str
    framing: Framing


@dataclass(frozen=True)
class ClassMap:
    """A map, with everything that places another image on it; `features` are [classes, width]."""

    origin: Origin
    protocol: Protocol
    overlap: Overlap
    classes: tuple[MappedClass, ...]
    features: NDArray[np.float16]


@dataclass(frozen=True)
class PlacedImage:
    """Position of another image: the weighted mean of its nearest classes, as t-SNE has no transform."""

    x: float
    y: float
    neighbors: Neighbors


def tsne_seconds(points: int, iterations: int) -> float:
    """Estimate the time of t-SNE (Barnes-Hut) on one core; measured with 500 to 3,000 points."""
    return 5e-7 * iterations * points * math.log2(points)


def draw(features: Tensor, labels: Sequence[str], protocol: Protocol, origin: Origin) -> ClassMap:
    """Compute the map of images by their features [images, width] and the folder name of each one's class.

    The protocol is adapted to few classes, see `Protocol.fit_to`. The classes of the map are sorted by name.

    Raises:
        ValueError: Fewer than three classes, or features beyond float16.
    """
    check_classes(labels)
    keys, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(keys), features.shape[1], dtype=torch.float64)
    sums.index_add_(0, torch.from_numpy(numbers), features.double())
    means = (sums / torch.from_numpy(counts)[:, None]).float()
    small = means.half()
    if not small.isfinite().all():
        raise ValueError("features are not finite in float16: the model is broken, or needs --precision fp32")
    protocol = protocol.fit_to(*means.shape)
    points, near = plane(means, protocol), nearest_classes(means, NUM_NEIGHBORS)
    columns = zip(keys.tolist(), describe(keys.tolist()), counts.tolist(), points.tolist(), near, strict=True)
    classes = tuple(
        MappedClass(key, name, group, count, x, y, others)
        for key, (name, group), count, (x, y), others in columns
    )
    return ClassMap(origin, protocol, neighbor_overlap(means, points), classes, small.numpy())


def check_classes(labels: Sequence[str]) -> None:
    """Raise ValueError for labels of fewer than three classes."""
    if (count := len(set(labels))) < FEWEST_CLASSES:
        raise ValueError(
            f"found {count or 'no'} classes, expected at least {FEWEST_CLASSES}: "
            "put the images of each class into a folder of its own"
        )


def plane(vectors: Tensor, protocol: Protocol) -> Tensor:
    """Compute PCA, then t-SNE: [classes, width] -> [classes, 2]; equal for equal seeds.

    On one thread: with few points, threads spend more time waiting than computing.
    """
    from sklearn.decomposition import PCA  # seconds to import
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    reduced = PCA(protocol.components, svd_solver="full").fit_transform(vectors.numpy())
    tsne = TSNE(
        perplexity=protocol.perplexity,
        learning_rate=protocol.learning_rate,
        max_iter=protocol.iterations,
        n_iter_without_progress=protocol.iterations,  # no early end
        min_grad_norm=0,
        init="pca",
        random_state=protocol.seed,
    )
    with threadpool_limits(1):
        return torch.from_numpy(tsne.fit_transform(reduced))


def nearest_classes(vectors: Tensor, count: int) -> list[Neighbors]:
    """Find the other vectors, at most `count`, at the least cosine distance from each."""
    return _neighbors(vectors, min(count, len(vectors) - 1), "cosine")


def _neighbors(vectors: Tensor, count: int, metric: str) -> list[Neighbors]:
    """Return numbers and distances of the other vectors that are nearest to each."""
    from sklearn import config_context  # a second to import
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=count, metric=metric, algorithm="brute")
    with config_context(working_memory=64):  # megabytes of distances at once
        found = search.fit(vectors.double().numpy()).kneighbors()
    rows = zip(*(part.tolist() for part in found), strict=True)
    return [tuple((number, round(far, 5)) for far, number in zip(*row, strict=True)) for row in rows]


def neighbor_overlap(vectors: Tensor, points: Tensor) -> Overlap:
    """Compute the share of nearest classes by features (cosine) that are nearest in the plane (Euclidean).

    Takes [classes, width] and [classes, 2]. Neighbors are at most half of the other classes.
    """
    others = len(vectors) - 1
    count = min(NUM_NEIGHBORS, max(1, others // 2))
    on_map = _neighbors(points, count, "euclidean")
    pairs = zip(nearest_classes(vectors, count), on_map, strict=True)
    common = sum(len(dict(by_features).keys() & dict(near)) for by_features, near in pairs)
    return Overlap(count, common / (len(vectors) * count), count / others)


def place(feature: Tensor, drawn: ClassMap) -> PlacedImage:
    """Place an image's feature [width] on a map, at the mean position of its nearest classes.

    Their weights are inverse squares of the cosine distance: an image lands among its kind.
    """
    known = UnitVectors(torch.from_numpy(drawn.features).float())
    cosines, numbers = (found[0].tolist() for found in nearest(feature[None], known, NUM_NEIGHBORS))
    neighbors = tuple((i, round(max(0.0, 1 - one), 5)) for i, one in zip(numbers, cosines, strict=True))
    near = [(drawn.classes[index].x, drawn.classes[index].y) for index, _ in neighbors]
    weights = [max(distance, 1e-3) ** -2 for _, distance in neighbors]
    x, y = np.average(near, axis=0, weights=weights).tolist()
    return PlacedImage(x, y, neighbors)
