"""Weighted k-nearest-neighbor classification of frozen features (section 4.1 of the paper, "k-NN")."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize

from dino_model.inference.features import OUTPUT
from dino_model.inference.predictions import NEAREST
from dino_model.inference.search import nearest
from dino_model.models.weights import LoadedModel
from dino_model.runtime import files
from training.evaluation.metrics import Accuracy, MultiLabelQuality, accuracy, multi_label_quality
from training.evaluation.options import MIN_TEMPERATURE, Knn
from training.evaluation.outcomes import open_predicted, write_outcomes
from training.evaluation.run import Labeled, Metrics, evaluate_models, extract_parts, framing_of, open_options

_VOTES_AT_ONCE = 1024


def neighbors(
    train: Tensor, labels: Tensor, test: Tensor, k: int, device: torch.device | str | None = None
) -> tuple[Tensor, Tensor]:
    """Find cosine and label of the k nearest training features, nearest first: [test, k] both.

    Args:
        train, test: [train, width] and [test, width], of any length: they are L2-normalized.
        labels: int64 [train], from 0.
        k: Neighbors. Which of several equally near ones is the k-th is undefined.
        device: Device of the search. Default: that of the features.

    Raises:
        ValueError: k below 1 or above the number of training features, shapes that do not fit, features that
            are not finite.
    """
    if train.ndim != 2 or test.ndim != 2 or labels.shape != train.shape[:1]:
        raise ValueError(
            f"Found features of shapes {tuple(train.shape)} and {tuple(test.shape)} with {len(labels)}"
            " labels: expected [count, width] and a label for each training feature."
        )
    check_k([k], len(train))
    cosines, numbers = nearest(test, train, k, device)
    return cosines, labels[numbers]


def votes(cosines: Tensor, labels: Tensor, temperature: float, classes: int) -> Tensor:
    """Compute the vote: each neighbor gives its class exp(cosine / temperature).

    Args:
        cosines, labels: Of the neighbors, [test, k].
        temperature: A smaller one gives near neighbors more weight.
        classes: Number of classes.

    Returns:
        float32 [test, classes]; 0 for a class without a vote.

    Raises:
        ValueError: A temperature below 0.012.

    Source: section 4.1, after Wu et al. 2018; the vote as in the official evaluation.
    """
    if not temperature >= MIN_TEMPERATURE:
        raise ValueError(
            f"temperature is {temperature}: expected at least {MIN_TEMPERATURE}, below it votes overflow."
        )
    sums = cosines.new_zeros(len(cosines), classes)
    return sums.scatter_add_(1, labels, (cosines / temperature).exp())


def multi_label_votes(cosines: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Compute the share of each class in the vote of neighbors that have several classes.

    Args:
        cosines: Of the neighbors, [test, k].
        labels: Their classes, bool [test, k, classes].
        temperature: As in `votes`.

    Returns:
        float32 [test, classes], from 0 to 1.
    """
    weights = (cosines / temperature).softmax(dim=1)
    return torch.einsum("tk,tkc->tc", weights, labels.float())


def knn_accuracy(
    train: Tensor, labels: Tensor, test: Tensor, truth: Tensor, *, k: int = 20, temperature: float = 0.07
) -> Accuracy:
    """Compute the accuracy of the vote, as `knn_accuracies`."""
    return knn_accuracies(train, labels, test, truth, ks=[k], temperature=temperature)[k]


def knn_accuracies(
    train: Tensor,
    labels: Tensor,
    test: Tensor,
    truth: Tensor,
    *,
    ks: Sequence[int],
    temperature: float = 0.07,
    device: torch.device | str | None = None,
) -> dict[int, Accuracy]:
    """Compute the accuracy of the vote for each k with one search for neighbors.

    Of equal votes the class with the smaller number wins. A class without a vote is in no top-5, so that for
    k below 5 at most k classes count for it.

    Args:
        train, labels, test, device: As in `neighbors`.
        truth: int64 [test], numbered as `labels`.
        ks: Numbers of neighbors.
        temperature: As in `votes`.

    Raises:
        ValueError: As `neighbors` and `votes`; no test features.
    """
    cosines, near = neighbors(train, labels, test, max(ks), device)
    classes = int(torch.cat([labels, truth]).max()) + 1
    return {
        k: accuracy(votes(cosines[:, :k], near[:, :k], temperature, classes), truth, zero_is_no_vote=True)
        for k in ks
    }


def check_k(ks: Sequence[int], count: int) -> None:
    """Raise ValueError for numbers of neighbors that `count` training images do not have."""
    if not ks or not 1 <= min(ks) <= max(ks) <= count:
        listing = ", ".join(map(str, ks)) or "missing"
        raise ValueError(f"k is {listing}: choose 1 to {count}, the number of training images.")


def class_votes(
    train: Labeled, features: Tensor, k: int, temperature: float, classes: int, device: str
) -> Tensor:
    """Compute the share of each class in the vote of the k nearest training images: [images, classes]."""
    cosines, numbers = nearest(features, train.features, k, device)
    if train.labels.ndim == 1:
        return normalize(votes(cosines, train.labels[numbers], temperature, classes), p=1, dim=1)
    parts = zip(cosines.split(_VOTES_AT_ONCE), numbers.split(_VOTES_AT_ONCE), strict=True)
    return torch.cat([multi_label_votes(part, train.labels[rows], temperature) for part, rows in parts])


def evaluate(options: Knn) -> None:
    """Run `evaluate knn`."""
    split, temperature = open_options(options), options.temperature
    predicted, classes = open_predicted(options, split), len(split.classes)
    check_k(options.k, len(split.train))
    ks = ", ".join(map(str, options.k))
    description = f"{framing_of(options)}; output of the model, L2; k = {ks}, temperature {temperature:g}"
    if options.test_list:
        files.write_text(options.test_list, "".join(f"{name}\n" for name in split.test.names))

    def measure(model: LoadedModel) -> Metrics:
        train, test = extract_parts(options, model, split)
        vote = partial(class_votes, train, temperature=temperature, classes=classes, device=options.device)
        results: dict[int, Accuracy | MultiLabelQuality] = {}
        if split.several:
            results |= {k: multi_label_quality(vote(test.features, k), test.labels) for k in options.k}
        else:
            arrays = train.features, train.labels, test.features, test.labels
            results |= knn_accuracies(*arrays, ks=options.k, temperature=temperature, device=options.device)
        print(*(f"k = {k}: {result}" for k, result in results.items()), sep="\n")

        def nearest_names(features: Tensor) -> list[list[str]]:
            count = min(NEAREST, len(train.features))
            numbers = nearest(features, train.features, count, options.device)[1]
            return [[train.images.names[number] for number in row] for row in numbers.tolist()]

        classify = partial(vote, k=options.k[0])
        write_outcomes(options, split, model, predicted, OUTPUT, test, classify, nearest_names)
        rows = [{"k": k, **asdict(result)} for k, result in results.items()]
        return {"metrics": rows[0], "each": rows, "broken": [*train.broken, *test.broken]}

    published = () if split.several else ("2", "k-NN top-1")
    evaluate_models(options, "knn", description, measure, *published, split=split)
