"""The class map: every class of a collection as a point in the plane, near those that a model finds alike.

The mean feature of each class is reduced to 30 dimensions by PCA and laid out by t-SNE (appendix, "Class
Representation", and the figure "t-SNE visualization of ImageNet classes"). How much of the feature space
survives in the plane is told by `neighbour_overlap`.
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
    """How features become a map."""

    components: int = 30
    """Dimensions left by the PCA."""
    perplexity: float = 20.0
    """Of t-SNE: about how many neighbours a class tries to keep."""
    learning_rate: float = 200.0
    """Of t-SNE."""
    iterations: int = 5000
    """Of t-SNE; all of them are run."""
    seed: int = 0
    """Of t-SNE, which starts from the first two principal components and draws nothing else."""

    def __post_init__(self) -> None:
        # scikit-learn spends the first 250 iterations on early exaggeration.
        least = {"components": 2, "perplexity": 1, "learning_rate": 1e-6, "iterations": 250, "seed": 0}
        for name, low in least.items():
            if not getattr(self, name) >= low:  # refuses NaN too
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least {low}")

    def fitted(self, classes: int, width: int) -> "Protocol":
        """With no more components than classes or features, and a perplexity that suits few classes.

        t-SNE looks at three times as many neighbours as the perplexity says: it is lowered to a third of the
        other classes.
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
    """Share of a class's nearest neighbours by features that are nearest on the map, mean over classes."""

    neighbours: int
    """How many nearest are compared."""
    share: float
    """0 to 1."""
    chance: float
    """What points thrown at random would reach on average."""

    def __str__(self) -> str:
        return (
            f"{100 * self.share:.1f} % of the {self.neighbours} nearest neighbours by features (cosine) are "
            f"among the {self.neighbours} nearest on the map (chance {100 * self.chance:.1f} %)"
        )


@dataclass(frozen=True)
class MappedClass:
    """One point of a map."""

    key: str
    """Name of the class's folder."""
    name: str
    """In words."""
    group: str
    """One of `names.GROUPS`."""
    pictures: int
    """Behind the mean feature."""
    x: float
    y: float
    neighbours: tuple[tuple[int, float], ...]
    """The nearest classes by features: index and cosine distance (1 - cosine, 0 to 2), nearest first."""


@dataclass(frozen=True)
class Sprite:
    """Square thumbnails of all classes in one picture, row after row."""

    side: int
    """Of one thumbnail, in pixels."""
    columns: int


@dataclass(frozen=True)
class Origin:
    """What a map was made from, so that another picture can be seen in the same way."""

    model: str
    """Name of the model, as it was asked for."""
    weights: str
    """`weights_fingerprint` of the model."""
    data: str
    """Name of the collection."""
    view: View
    """How pictures were shown to the model."""


@dataclass(frozen=True)
class ClassMap:
    """A finished map, with all that places another picture on it."""

    origin: Origin
    protocol: Protocol
    """What was done, with the perplexity that was used."""
    overlap: Overlap
    classes: tuple[MappedClass, ...]
    features: NDArray[np.float16]
    """Mean features: [classes, width]."""
    thumbnails: Sprite | None = None


@dataclass(frozen=True)
class Placement:
    """Where a further picture lies: at the mean of its nearest classes, for t-SNE has no transform."""

    x: float
    y: float
    neighbours: tuple[tuple[int, float], ...]
    """As in `MappedClass`."""


def draw(
    features: Tensor, labels: Sequence[int], keys: Sequence[str], protocol: Protocol, origin: Origin
) -> ClassMap:
    """The map of labelled pictures, without thumbnails.

    Args:
        features: of every picture: [pictures, width].
        labels: of every picture, index into `keys`.
        keys: folder names of the classes, each with a picture at least.
        protocol: made to suit few classes, see `Protocol.fitted`.
        origin: where the features come from.

    Raises:
        ValueError: fewer than three classes, one without pictures, or features beyond float16.
    """
    if len(keys) < FEWEST_CLASSES:
        raise ValueError(
            f"found {len(keys)} classes, a map needs at least {FEWEST_CLASSES}: a folder of pictures for each"
        )
    means = class_means(features, labels, len(keys))
    with np.errstate(over="ignore"):
        small = means.astype(np.float16)
    if not np.isfinite(small).all():
        raise ValueError("features are not finite in float16: the model is broken, or needs --precision fp32")
    protocol = protocol.fitted(*means.shape)
    points = plane(means, protocol)
    nearest, distances = nearest_classes(means, NEIGHBOURS)
    counts = np.bincount(labels)
    classes = tuple(
        MappedClass(key, told.name, told.group, int(count), float(x), float(y), _pairs(indices, far))
        for key, told, count, (x, y), indices, far in zip(
            keys, describe(keys), counts, points, nearest, distances, strict=True
        )
    )
    return ClassMap(origin, protocol, neighbour_overlap(means, points), classes, small)


def class_means(features: Tensor, labels: Sequence[int], classes: int) -> Vectors:
    """Mean feature of every class: [pictures, width], [pictures] -> [classes, width].

    Raises:
        ValueError: a class without pictures.
    """
    of = torch.tensor(labels)
    counts = torch.bincount(of, minlength=classes)
    if (counts == 0).any():
        raise ValueError(f"class {int(counts.argmin())} has no pictures")
    sums = torch.zeros(classes, features.shape[1], dtype=torch.float64).index_add_(0, of, features.double())
    means: Vectors = (sums / counts[:, None]).float().numpy()
    return means


def plane(vectors: Vectors, protocol: Protocol) -> Vectors:
    """PCA, then t-SNE: [classes, width] -> [classes, 2]. The same for the same seed.

    On one thread: of so few points each step is short, and threads that wait for each other at every one of
    them, beside other work, take several times as long.

    Raises:
        ValueError: a perplexity that is not below the number of classes, or more components than these.
    """
    from sklearn.decomposition import PCA  # seconds to import, wanted only when a map is drawn
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    reduced = PCA(protocol.components, svd_solver="full").fit_transform(vectors)
    tsne = TSNE(
        perplexity=protocol.perplexity,
        learning_rate=protocol.learning_rate,
        max_iter=protocol.iterations,
        n_iter_without_progress=protocol.iterations,  # the paper's number, not an early end
        min_grad_norm=0,
        init="pca",
        random_state=protocol.seed,
    )
    with threadpool_limits(1):
        points: Vectors = tsne.fit_transform(reduced)
    return points


def nearest_classes(vectors: Vectors, count: int) -> tuple[NDArray[np.intp], Vectors]:
    """Of every vector, the `count` others at the least cosine distance, and those distances.

    Returns:
        Indices and distances (0 to 2), nearest first, each [vectors, min(count, vectors - 1)]. Ties go to the
        lower index.
    """
    distances = cosine_distances(vectors, vectors)
    np.fill_diagonal(distances, np.inf)
    return _smallest(distances, min(count, len(vectors) - 1))


def neighbour_overlap(vectors: Vectors, points: Vectors, count: int = NEIGHBOURS) -> Overlap:
    """How many of the nearest by features (cosine) are the nearest in the plane (Euclidean).

    Args:
        vectors: [classes, width]
        points: [classes, 2]
        count: nearest neighbours; at most half of the other classes, so that chance stays below one half.
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
    """Where a picture's feature [width] lies on a map."""
    distances = cosine_distances(feature[None], drawn.features.astype(np.float32))
    indices, far = _smallest(distances, min(NEIGHBOURS, len(drawn.classes)))
    near = [drawn.classes[index] for index in indices[0]]
    x, y = (float(np.mean(values)) for values in zip(*((point.x, point.y) for point in near), strict=True))
    return Placement(x, y, _pairs(indices[0], far[0]))


def feature_of(
    model: LoadedModel, picture: NDArray[np.uint8], view: View, precision: ComputePrecision
) -> Vectors:
    """The model's feature of one picture, uint8 [height, width, 3], seen as those of a map were: [width]."""
    device = next(model.backbone.parameters()).device
    with torch.no_grad(), autocast(precision, device):
        seen = view.normalise(view.crop(picture)[None].to(device))
        feature: Vectors = model.backbone(seen)[0].float().cpu().numpy()
    return feature


def cosine_distances(one: Vectors, other: Vectors) -> NDArray[np.float64]:
    """1 - cosine of every pair: [n, width], [m, width] -> [n, m]. A zero vector is at 1 from all."""

    def unit(vectors: Vectors) -> NDArray[np.float64]:
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        return vectors / np.maximum(lengths, np.finfo(np.float64).tiny)

    return np.clip(1 - unit(one) @ unit(other).T, 0, 2)


def _smallest(values: NDArray[np.float64], count: int) -> tuple[NDArray[np.intp], Vectors]:
    indices = np.argsort(values, axis=1, kind="stable")[:, :count]
    return indices, np.take_along_axis(values, indices, axis=1).astype(np.float32)


def _pairs(indices: NDArray[np.intp], distances: Vectors) -> tuple[tuple[int, float], ...]:
    return tuple((int(index), round(float(far), 5)) for index, far in zip(indices, distances, strict=True))
