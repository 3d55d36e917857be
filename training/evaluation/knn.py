"""Weighted k-nearest-neighbor classification of frozen features (section 4.1 of the paper, "k-NN")."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dino_model import files
from dino_model.features import CLS
from dino_model.search import nearest
from dino_model.weights import LoadedModel
from training.evaluation.metrics import Accuracy, accuracy
from training.evaluation.options import MIN_TEMPERATURE, Knn
from training.evaluation.run import Metrics, center_crop, evaluate_models, extract, open_options


def knn_scores(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.07,
    classes: int | None = None,
) -> Tensor:
    """Compute the vote: each of the k nearest training features gives its class exp(cosine / temperature).

    Args:
        train_features: [train, width], of any length: they are L2-normalized.
        train_labels: int64 [train], from 0.
        test_features: [test, width].
        k: Neighbors. Which of several equally near ones is the k-th is undefined.
        temperature: A smaller one gives near neighbors more weight.
        classes: Number of classes. Default: the largest label + 1.

    Returns:
        float32 [test, classes]; 0 for a class without a vote.

    Raises:
        ValueError: k below 1 or above the number of training features, a temperature below 0.012, shapes
            that do not fit, labels beyond `classes`, features that are not finite.

    Source: section 4.1, after Wu et al. 2018; the vote as in the official evaluation.
    """
    cosines, labels = neighbors(train_features, train_labels, test_features, k)
    needed = int(train_labels.max()) + 1
    if classes is not None and classes < needed:
        raise ValueError(f"Label {needed - 1} is none of {classes} classes.")
    return votes(cosines, labels, temperature, classes or needed)


def knn_accuracy(
    train: Tensor, labels: Tensor, test: Tensor, truth: Tensor, *, k: int = 20, temperature: float = 0.07
) -> Accuracy:
    """Compute the accuracy of the vote, as `knn_accuracies`."""
    return knn_accuracies(train, labels, test, truth, ks=[k], temperature=temperature)[k]


def knn_accuracies(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    ks: Sequence[int],
    temperature: float = 0.07,
    device: torch.device | str | None = None,
) -> dict[int, Accuracy]:
    """Compute the accuracy of the vote for each k with one search for neighbors.

    Of equal votes the class with the smaller number wins. A class without a vote is in no top-5, so that for
    k below 5 at most k classes count for it.

    Args:
        train_features, train_labels, test_features, temperature: As in `knn_scores`.
        test_labels: int64 [test], numbered as `train_labels`.
        ks: Numbers of neighbors.
        device: Device of the search. Default: that of the features.

    Raises:
        ValueError: As `knn_scores`; no test features.
    """
    check_k(ks, len(train_features))
    if not 0 < len(test_features) == len(test_labels):
        raise ValueError(f"Found {len(test_features)} test features with {len(test_labels)} labels.")
    cosines, labels = neighbors(train_features, train_labels, test_features, max(ks), device)
    classes = int(torch.cat([train_labels, test_labels]).max()) + 1
    return {
        k: accuracy(
            votes(cosines[:, :k], labels[:, :k], temperature, classes), test_labels, zero_is_no_vote=True
        )
        for k in ks
    }


def neighbors(
    train: Tensor, labels: Tensor, test: Tensor, k: int, device: torch.device | str | None = None
) -> tuple[Tensor, Tensor]:
    """Find cosine and label of the k nearest training features, nearest first: [test, k] both."""
    if train.ndim != 2 or test.ndim != 2 or labels.shape != train.shape[:1]:
        raise ValueError(
            f"Found features of shapes {tuple(train.shape)} and {tuple(test.shape)} with {len(labels)}"
            " labels: expected [count, width] and a label for each training feature."
        )
    check_k([k], len(train))
    cosines, numbers = nearest(test, train, k, device)
    return cosines, labels[numbers]


def votes(cosines: Tensor, labels: Tensor, temperature: float, classes: int) -> Tensor:
    """Sum the neighbors' votes for every class: cosines and labels [test, k] -> [test, classes]."""
    if not temperature >= MIN_TEMPERATURE:
        raise ValueError(
            f"temperature is {temperature}: expected at least {MIN_TEMPERATURE}, below it votes overflow."
        )
    sums = cosines.new_zeros(len(cosines), classes)
    return sums.scatter_add_(1, labels, (cosines / temperature).exp())


def check_k(ks: Sequence[int], count: int) -> None:
    """Raise ValueError for numbers of neighbors that `count` training images do not have."""
    if not ks or not 1 <= min(ks) <= max(ks) <= count:
        found = ", ".join(map(str, ks)) or "missing"
        raise ValueError(f"k is {found}: choose 1 to {count}, the number of training images.")


def evaluate(options: Knn) -> None:
    """Run `evaluate knn`."""
    files.make_room(options.test_list)
    split = open_options(options)
    check_k(options.k, len(split.train))
    ks = ", ".join(map(str, options.k))
    description = f"{center_crop(options)}; {CLS}, L2; k = {ks}, temperature {options.temperature:g}"
    print(description, f"{options.data.name}: {split}", sep="\n")
    if options.test_list:
        files.write_text(options.test_list, "".join(f"{name}\n" for name in split.test.names))
    protocol = split.protocol(description, options.data.name)
    protocol |= {"k": options.k, "temperature": options.temperature}

    def measure(model: LoadedModel) -> Metrics:
        view = center_crop(options, model)
        train, test = (extract(options, model, view, images) for images in (split.train, split.test))
        labels, truth = split.labels(train.images), split.labels(test.images)
        settings: Metrics = {"temperature": options.temperature, "device": options.device}
        results = knn_accuracies(train.features, labels, test.features, truth, ks=options.k, **settings)
        print(*(f"k = {k}: {result}" for k, result in results.items()), sep="\n")
        rows = [{"k": k, **result.metrics()} for k, result in results.items()]
        return {"metrics": rows[0], "each": rows, "broken": [*train.broken, *test.broken]}

    evaluate_models(options, "knn", protocol, measure, "2", "k-NN top-1", images=split.train)
