"""Place the classes of a collection in the plane, near classes with similar features.

The mean feature of each class is reduced to 30 dimensions by PCA and laid out by t-SNE (appendix, "Class
Representation", and the figure "t-SNE visualization of ImageNet classes"). `neighbor_overlap` measures how
much of the feature space survives in the plane.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dino_model.class_map.names import describe
from dino_model.device import ComputePrecision, autocast
from dino_model.views import View
from dino_model.weights import LoadedModel

FEWEST_CLASSES = 3
NEIGHBOURS = 10

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Protocol:
    """Dimensions of the PCA, and parameters of t-SNE, which starts from the principal components."""

    components: int = 30
    perplexity: float = 20.0
    learning_rate: float = 200.0
    iterations: int = 5000
    seed: int = 0

    def fitted(self, classes: int, width: int) -> "Protocol":
        """Limit the components to the classes and features, and adapt the perplexity.

        t-SNE uses three times as many neighbors as the perplexity.
        """
        perplexity = min(self.perplexity, max(1.0, (classes - 1) / 3))
        return replace(self, components=min(self.components, classes, width), perplexity=perplexity)

    def __str__(self) -> str:
        return (
            f"mean [CLS] feature of each class, PCA to {self.components}, t-SNE with perplexity "
            f"{self.perplexity:g}, learning rate {self.learning_rate:g}, {self.iterations} iterations, "
            f"seed {self.seed}"
        )


@dataclass(frozen=True)
class Overlap:
    """Share of a class's nearest neighbors by features that are nearest on the map, mean over classes.

    `neighbours` is their number, `chance` the expected share of random points.
    """

    neighbours: int
    share: float
    chance: float

    def __str__(self) -> str:
        return (
            f"{100 * self.share:.1f} % of the {self.neighbours} nearest neighbors by features (cosine) are "
            f"among the {self.neighbours} nearest on the map (chance {100 * self.chance:.1f} %)"
        )


@dataclass(frozen=True)
class MappedClass:
    """Point of a class on a map.

    Attributes:
        key: Name of the class's folder.
        name: Name in words.
        group: One of `names.GROUPS`.
        pictures: Number of images of the mean feature.
        neighbours: Index and cosine distance (0 to 2) of the nearest classes by features, nearest first.
    """

    key: str
    name: str
    group: str
    pictures: int
    x: float
    y: float
    neighbours: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Sprite:
    """Square thumbnails of all classes in one image, row after row; `side` of one in pixels."""

    side: int
    columns: int


@dataclass(frozen=True)
class Origin:
    """Model (its name and `weights_fingerprint`), name of the collection and view of a map."""

    model: str
    weights: str
    data: str
    view: View


@dataclass(frozen=True)
class ClassMap:
    """A map, with everything that places another image on it; `features` are [classes, width]."""

    origin: Origin
    protocol: Protocol
    overlap: Overlap
    classes: tuple[MappedClass, ...]
    features: NDArray[np.float16]
    thumbnails: Sprite | None = None


@dataclass(frozen=True)
class Placement:
    """Position of another image: the mean of its nearest classes, as t-SNE has no transform."""

    x: float
    y: float
    neighbours: tuple[tuple[int, float], ...]


def draw(features: Tensor, labels: Sequence[str], protocol: Protocol, origin: Origin) -> ClassMap:
    """Compute the map of labeled images, without thumbnails.

    Args:
        features: [images, width].
        labels: Folder name of the class of every image. The classes of the map are sorted by it.
        protocol: Adapted to few classes, see `Protocol.fitted`.
        origin: Origin of the features.

    Raises:
        ValueError: Fewer than three classes, or features beyond float16.
    """
    check_classes(labels)
    keys, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    means = class_means(features, numbers, len(keys))
    with np.errstate(over="ignore"):
        small = means.astype(np.float16)
    if not np.isfinite(small).all():
        raise ValueError("features are not finite in float16: the model is broken, or needs --precision fp32")
    protocol = protocol.fitted(*means.shape)
    points = plane(means, protocol)
    nearest, distances = nearest_classes(means, NEIGHBOURS)
    columns = (keys.tolist(), describe(keys.tolist()), counts, points, nearest, distances)
    classes = tuple(
        MappedClass(key, name, group, int(count), float(x), float(y), _pairs(indices, far))
        for key, (name, group), count, (x, y), indices, far in zip(*columns, strict=True)
    )
    return ClassMap(origin, protocol, neighbor_overlap(means, points), classes, small)


def check_classes(labels: Sequence[str]) -> None:
    """Raise ValueError for labels of fewer than three classes."""
    if (found := len(set(labels))) < FEWEST_CLASSES:
        raise ValueError(
            f"found {found or 'no'} classes, expected at least {FEWEST_CLASSES}: "
            "put the images of each class into a folder of its own"
        )


def class_means(features: Tensor, labels: NDArray[np.intp], classes: int) -> Vectors:
    """Compute the mean feature of every class: [images, width], [images] -> [classes, width]."""
    sums = torch.zeros(classes, features.shape[1], dtype=torch.float64)
    sums.index_add_(0, torch.as_tensor(labels), features.double())
    means: Vectors = (sums / torch.as_tensor(np.bincount(labels))[:, None]).float().numpy()
    return means


def plane(vectors: Vectors, protocol: Protocol) -> Vectors:
    """Compute PCA, then t-SNE: [classes, width] -> [classes, 2]; equal for equal seeds.

    On one thread: with few points, threads spend more time waiting than computing.
    """
    from sklearn.decomposition import PCA  # seconds to import
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    reduced = PCA(protocol.components, svd_solver="full").fit_transform(vectors)
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
        points: Vectors = tsne.fit_transform(reduced)
    return points


def nearest_classes(vectors: Vectors, count: int) -> tuple[NDArray[np.intp], Vectors]:
    """Find the `count` other vectors at the least cosine distance from each vector.

    Returns:
        Indices and distances (0 to 2), nearest first, each [vectors, min(count, vectors - 1)]. Ties go to the
        lower index.
    """
    distances = cosine_distances(vectors, vectors)
    np.fill_diagonal(distances, np.inf)
    return _smallest(distances, min(count, len(vectors) - 1))


def neighbor_overlap(vectors: Vectors, points: Vectors, count: int = NEIGHBOURS) -> Overlap:
    """Compute the share of nearest classes by features (cosine) that are nearest in the plane (Euclidean).

    Args:
        vectors: [classes, width].
        points: [classes, 2].
        count: Number of nearest neighbors, at most half of the other classes.
    """
    others = len(vectors) - 1
    count = min(count, max(1, others // 2))
    by_features, _ = nearest_classes(vectors, count)
    gaps = np.linalg.norm(points[:, None].astype(np.float64) - points, axis=-1)
    np.fill_diagonal(gaps, np.inf)
    on_map, _ = _smallest(gaps, count)
    common = (by_features[:, :, None] == on_map[:, None]).sum()
    return Overlap(count, float(common / by_features.size), count / others)


def place(feature: Vectors, drawn: ClassMap) -> Placement:
    """Place an image's feature [width] on a map."""
    distances = cosine_distances(feature[None], drawn.features.astype(np.float32))
    indices, far = _smallest(distances, min(NEIGHBOURS, len(drawn.classes)))
    near = [drawn.classes[index] for index in indices[0]]
    x, y = (float(np.mean(values)) for values in zip(*((point.x, point.y) for point in near), strict=True))
    return Placement(x, y, _pairs(indices[0], far[0]))


def feature_of(
    model: LoadedModel, picture: NDArray[np.uint8], view: View, precision: ComputePrecision
) -> Vectors:
    """Compute the feature [width] of an image, uint8 [height, width, 3], with a map's view."""
    device = next(model.backbone.parameters()).device
    with torch.no_grad(), autocast(precision, device):
        image = view.normalize(view.crop(picture)[None].to(device))
        feature: Vectors = model.backbone(image)[0].float().cpu().numpy()
    return feature


def cosine_distances(one: Vectors, other: Vectors) -> NDArray[np.float64]:
    """Compute 1 - cosine of every pair: [n, width], [m, width] -> [n, m]; 1 for a zero vector."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    lengths = (np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (one, other))
    a, b = (np.maximum(length, np.finfo(np.float64).tiny) for length in lengths)
    return np.clip(1 - (one / a) @ (other / b).T, 0, 2)


def _smallest(values: NDArray[np.float64], count: int) -> tuple[NDArray[np.intp], Vectors]:
    indices = np.argsort(values, axis=1, kind="stable")[:, :count]
    return indices, np.take_along_axis(values, indices, axis=1).astype(np.float32)


def _pairs(indices: NDArray[np.intp], distances: Vectors) -> tuple[tuple[int, float], ...]:
    return tuple((int(index), round(float(far), 5)) for index, far in zip(indices, distances, strict=True))
