"""Weighted k-nearest-neighbour classification of frozen features (section 4.1 of the paper, "k-NN").

Functions on tensors come first, then the protocol on collections of pictures.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dino_model.device import Precision
from dino_model.features import FeatureCache, cls_features
from dino_model.images import Images
from dino_model.weights import LoadedModel

BACKGROUND = "BACKGROUND_Google"
"""Caltech-101's folder of pictures that belong to no class."""
_AT_ONCE = 2**25  # similarities in memory: 128 MB
_COLDEST = 0.012  # exp(1 / temperature) is a float32
_NO_ANSWER = 2**31 - 1  # a rank behind every other


@dataclass(frozen=True)
class KnnResult:
    """How many test pictures a vote of neighbours names rightly, in percent."""

    k: int
    """Neighbours that vote."""
    top1: float
    """Test pictures whose own class has most votes."""
    top5: float
    """Test pictures whose own class is among the five with most votes."""
    per_class_top1: float
    """Mean over the classes of the test pictures of the top-1 within each."""

    def __str__(self) -> str:
        top1 = f"top-1 {self.top1:.1f} % (mean of the classes {self.per_class_top1:.1f})"
        return f"k = {self.k}: {top1}, top-5 {self.top5:.1f} %"


def knn_scores(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.07,
    classes: int | None = None,
) -> Tensor:
    """Votes for every class: each of the k nearest training features gives its own exp(cosine / temperature).

    Args:
        train_features: [train, width], of any length: they are L2-normalised here.
        train_labels: int64 [train], from 0.
        test_features: [test, width], on the same device.
        k: neighbours. Which of several equally near ones is the k-th is left open.
        temperature: how much more the nearer ones weigh: the smaller, the more.
        classes: how many there are; None: the largest label + 1.

    Returns:
        float32 [test, classes]; 0 for a class without a vote.

    Raises:
        ValueError: k below 1 or above the number of training features, a temperature below 0.012 (votes
            overflow), shapes that do not fit, labels beyond `classes`, features that are not finite.

    Source: section 4.1, after Wu et al. 2018; votes as in the official evaluation.
    """
    near, labels = nearest(train_features, train_labels, test_features, k)
    return _votes(near, labels, temperature, _count_classes(train_labels, classes))


def knn_predict(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.07,
) -> Tensor:
    """The class with most votes, the first of equal ones: int64 [test]. Arguments as in `knn_scores`."""
    return knn_scores(train_features, train_labels, test_features, k=k, temperature=temperature).argmax(dim=1)


def knn_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.07,
) -> KnnResult:
    """Share of test features whose own class wins the vote. Arguments and errors as in `knn_accuracies`."""
    return knn_accuracies(
        train_features, train_labels, test_features, test_labels, ks=[k], temperature=temperature
    )[0]


def knn_accuracies(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    ks: Sequence[int],
    temperature: float = 0.07,
) -> tuple[KnnResult, ...]:
    """`knn_accuracy` for each k of `ks`, with one search for neighbours.

    Of classes with equal votes the one with the smaller number comes first. A class without a vote is no
    answer, so that for k below 5 no more than k classes count for the top-5.

    Args:
        train_features, train_labels, test_features, temperature: as in `knn_scores`.
        test_labels: int64 [test], numbered as `train_labels`.
        ks: numbers of neighbours.

    Raises:
        ValueError: as `knn_scores`; no test features.
    """
    _check_ks(ks, len(train_features))
    if not 0 < len(test_features) == len(test_labels):
        raise ValueError(f"{len(test_features)} test features with {len(test_labels)} labels")
    near, labels = nearest(train_features, train_labels, test_features, max(ks))
    classes = _count_classes(torch.cat([train_labels, test_labels]))
    return tuple(
        _result(k, _ranks(_votes(near[:, :k], labels[:, :k], temperature, classes), test_labels), test_labels)
        for k in ks
    )


def nearest(train: Tensor, labels: Tensor, test: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Cosine and label of the k nearest training features, nearest first: [test, k] both.

    Arguments and errors as in `knn_scores`. Never holds more than 128 MB of similarities.
    """
    _check_features(train, labels, test)
    _check_ks([k], len(train))
    train = F.normalize(train.float(), dim=1)
    cosines, indices = [], []
    for chunk in test.split(max(1, _AT_ONCE // len(train))):
        cosine, index = (F.normalize(chunk.float(), dim=1) @ train.T).topk(k, dim=1)
        cosines.append(cosine)
        indices.append(index)
    return torch.cat(cosines), labels[torch.cat(indices)]


def _votes(cosines: Tensor, labels: Tensor, temperature: float, classes: int) -> Tensor:
    """Cosines and labels of neighbours, [test, k] both -> [test, classes]."""
    _check_temperature(temperature)
    votes = cosines.new_zeros(len(cosines), classes)
    return votes.scatter_add_(1, labels, (cosines / temperature).exp())


def _ranks(votes: Tensor, truth: Tensor) -> Tensor:
    """How many classes come before the true one: int64 [test]; `_NO_ANSWER` if it has no vote."""
    own = votes.gather(1, truth[:, None])  # [test, 1]
    earlier = torch.arange(votes.shape[1], device=votes.device) < truth[:, None]
    ranks = ((votes > own) | ((votes == own) & earlier)).sum(dim=1)
    return ranks.where(own[:, 0] > 0, _NO_ANSWER)


def _result(k: int, ranks: Tensor, truth: Tensor) -> KnnResult:
    right = (ranks == 0).double()
    per_class = torch.stack([right[truth == label].mean() for label in truth.unique()])
    top5 = (ranks < 5).double()
    return KnnResult(k, *(100 * float(share.mean()) for share in (right, top5, per_class)))


def _count_classes(labels: Tensor, classes: int | None = None) -> int:
    needed = int(labels.max()) + 1
    if classes is not None and classes < needed:
        raise ValueError(f"label {needed - 1} is none of {classes} classes")
    return needed if classes is None else classes


def _check_ks(ks: Sequence[int], count: int) -> None:
    if not ks or not 1 <= min(ks) <= max(ks) <= count:
        found = ", ".join(map(str, ks)) or "missing"
        raise ValueError(f"k is {found}: choose 1 to {count}, the number of training pictures")


def _check_temperature(temperature: float) -> None:
    if not temperature >= _COLDEST:
        raise ValueError(f"temperature is {temperature}, expected at least {_COLDEST}: below, votes overflow")


def _check_features(train: Tensor, labels: Tensor, test: Tensor) -> None:
    if train.ndim != 2 or test.ndim != 2 or train.shape[1] != test.shape[1]:
        found = f"{tuple(train.shape)} and {tuple(test.shape)}"
        raise ValueError(
            f"training and test features have shapes {found}, expected [count, width] of one width"
        )
    if labels.shape != train.shape[:1]:
        raise ValueError(f"{len(train)} training features with {len(labels)} labels")
    if not (train.isfinite().all() and test.isfinite().all()):
        raise ValueError("features hold NaN or infinity: the model is broken, or needs precision fp32")


# --- the protocol


@dataclass(frozen=True)
class KnnProtocol:
    """What decides a k-NN figure, apart from the model and the pictures."""

    size: int = 112
    """Side of the centre crop, in pixels."""
    resize_to: int | None = None
    """Short side before the crop; None: `size`. ImageNet's protocol is 256 and 224."""
    k: tuple[int, ...] = (20,)
    """Numbers of neighbours."""
    temperature: float = 0.07
    """Of the votes."""

    def __post_init__(self) -> None:
        _check_temperature(self.temperature)

    def __str__(self) -> str:
        view = f"short side {self.resize_to or self.size} (bicubic), centre crop {self.size}"
        vote = f"k = {', '.join(map(str, self.k))}, temperature {self.temperature}"
        return f"{view}; [CLS] after the final norm, L2; {vote}"


def split_every_fifth(
    images: Images, leave_out: Collection[str] = (BACKGROUND,)
) -> tuple[list[int], list[int]]:
    """Indices of training and of test pictures: of each class, sorted by name, every fifth is tested.

    Args:
        images: with classes. On Caltech-101 this gives 6,982 and 1,695.
        leave_out: classes that go to neither part.

    Raises:
        ValueError: pictures without classes, a class to leave out that does not exist (but for Caltech's
            background, which other collections lack), or nothing left to test.

    Source: the project's protocol, docs/embedded-model.md.
    """
    by_class: defaultdict[int, list[int]] = defaultdict(list)
    for index in sorted(kept(images, leave_out), key=lambda index: images.names[index]):
        by_class[_labels(images)[index]].append(index)
    places = [(place, index) for members in by_class.values() for place, index in enumerate(members)]
    train = sorted(index for place, index in places if place % 5 != 4)
    test = sorted(index for place, index in places if place % 5 == 4)
    if not test:
        raise ValueError(f"none of the {len(by_class)} classes has five pictures: there is none to test")
    return train, test


def evaluate_knn(
    model: LoadedModel,
    train: Images,
    test: Images,
    protocol: KnnProtocol,
    *,
    batch_size: int = 64,
    precision: Precision = "auto",
    device: str | torch.device = "auto",
    cache: FeatureCache | None = None,
) -> tuple[KnnResult, ...]:
    """k-NN accuracy of a model's features on labelled pictures, for each k of the protocol.

    Args:
        model: whose feature is compared: [CLS] after the final norm, or a ResNet's pooled feature.
        train: the pictures that vote.
        test: the pictures that are named; their classes are matched with the training classes by name.
        protocol: sizes and numbers.
        batch_size, precision, device, cache: as in `cls_features`.

    Raises:
        ImageError: a picture that cannot be read.
        ValueError: pictures without classes, test classes that are not trained on, more neighbours than
            training pictures.
    """
    train_labels, test_labels = _matched_labels(train, test)
    _check_ks(protocol.k, len(train))  # before the long part
    train_features, test_features = (
        cls_features(
            model.backbone,
            images,
            size=protocol.size,
            resize_to=protocol.resize_to,
            mean=model.mean,
            std=model.std,
            batch_size=batch_size,
            precision=precision,
            device=device,
            cache=cache,
        )
        for images in (train, test)
    )
    return knn_accuracies(
        train_features,
        train_labels,
        test_features,
        test_labels,
        ks=protocol.k,
        temperature=protocol.temperature,
    )


def _matched_labels(train: Images, test: Images) -> tuple[Tensor, Tensor]:
    """Labels of both in the training classes' numbering, [train] and [test]."""
    train_labels, test_labels = _labels(train), _labels(test)
    trained = {train.classes[label]: label for label in train_labels}
    names = [test.classes[label] for label in test_labels]
    unknown = sorted(set(names).difference(trained))
    if unknown:
        raise ValueError(
            f"{len(unknown)} of the classes to test have no training pictures, the first is {unknown[0]!r}"
        )
    return torch.tensor(train_labels), torch.tensor([trained[name] for name in names])


def kept(images: Images, leave_out: Collection[str]) -> list[int]:
    """Indices of the pictures whose class is not left out."""
    labels = _labels(images)
    unknown = sorted(set(leave_out).difference(images.classes, {BACKGROUND}))
    if unknown:
        raise ValueError(f"no class {unknown[0]!r} to leave out; classes look like {images.classes[0]!r}")
    return [index for index, label in enumerate(labels) if images.classes[label] not in leave_out]


def _labels(images: Images) -> tuple[int, ...]:
    if images.labels is None:
        raise ValueError(f"pictures in {images.root} have no classes: expected a folder for each class")
    return images.labels


class Pixels(nn.Module):
    """A feature without a network: the picture in 16 × 16 pixels, less its mean."""

    def forward(self, images: Tensor) -> Tensor:
        """[batch, 3, height, width] -> [batch, 768]."""
        colours = F.adaptive_avg_pool2d(images, 16).flatten(1)
        return colours - colours.mean(dim=1, keepdim=True)


def pixel_model() -> LoadedModel:
    """The row to beat: `Pixels` in a model's place."""
    nothing, one = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    return LoadedModel("pixels", Pixels(), nothing, one, source="16 × 16 pixels, no network", config=None)
