"""Weighted k-nearest-neighbour classification of frozen features (section 4.1 of the paper, "k-NN")."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.evaluation.accuracy import Accuracy, accuracy
from training.evaluation.search import nearest

_COLDEST = 0.012  # exp(1 / temperature) is a float32


@dataclass(frozen=True, kw_only=True)
class KnnResult(Accuracy):
    """What a vote of neighbours comes to."""

    k: int
    """Neighbours that vote."""

    def __str__(self) -> str:
        return f"k = {self.k}: {super().__str__()}"


@dataclass(frozen=True)
class KnnProtocol:
    """What decides a k-NN figure, apart from features and labels."""

    k: tuple[int, ...] = (20,)
    """Numbers of neighbours."""
    temperature: float = 0.07
    """Of the votes."""

    def __post_init__(self) -> None:
        _check_temperature(self.temperature)

    def __str__(self) -> str:
        return f"L2; k = {', '.join(map(str, self.k))}, temperature {self.temperature:g}"


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

    `argmax(dim=1)` of them is the class that is named, the first of equal ones.

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
    near, labels = neighbours(train_features, train_labels, test_features, k)
    return votes(near, labels, temperature, _count_classes(train_labels, classes))


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
    check_ks(ks, len(train_features))
    if not 0 < len(test_features) == len(test_labels):
        raise ValueError(f"{len(test_features)} test features with {len(test_labels)} labels")
    near, labels = neighbours(train_features, train_labels, test_features, max(ks))
    classes = _count_classes(torch.cat([train_labels, test_labels]))
    return tuple(_result(k, votes(near[:, :k], labels[:, :k], temperature, classes), test_labels) for k in ks)


def neighbours(train: Tensor, labels: Tensor, test: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Cosine and label of the k nearest training features, nearest first: [test, k] both.

    Arguments and errors as in `knn_scores`.
    """
    _check_features(train, labels, test)
    check_ks([k], len(train))
    cosines, numbers = nearest(test, train, k)
    return cosines, labels[numbers]


def votes(cosines: Tensor, labels: Tensor, temperature: float, classes: int) -> Tensor:
    """Votes of neighbours for every class: cosines and labels, [test, k] both -> [test, classes]."""
    _check_temperature(temperature)
    counted = cosines.new_zeros(len(cosines), classes)
    return counted.scatter_add_(1, labels, (cosines / temperature).exp())


def _result(k: int, votes: Tensor, truth: Tensor) -> KnnResult:
    found = accuracy(votes, truth, votes=True)
    return KnnResult(k=k, predicted=found.predicted, **found.figures())


def _count_classes(labels: Tensor, classes: int | None = None) -> int:
    needed = int(labels.max()) + 1
    if classes is not None and classes < needed:
        raise ValueError(f"label {needed - 1} is none of {classes} classes")
    return needed if classes is None else classes


def check_ks(ks: Sequence[int], count: int) -> None:
    """Refuse numbers of neighbours that `count` training pictures do not have."""
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
