"""Weighted k-nearest-neighbor classification of frozen features (section 4.1 of the paper, "k-NN")."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from dino_model.inference.classifier import NeighborClassifier, vote
from dino_model.inference.predictions import NEAREST
from dino_model.inference.search import UnitVectors, nearest
from dino_model.models.load import LoadedModel
from dino_model.runtime import files
from training.evaluation.metrics import Accuracy, MultiLabelQuality, accuracy, multi_label_quality
from training.evaluation.options import Knn
from training.evaluation.outcomes import Outcomes
from training.evaluation.run import Metrics, evaluate_models, extract_parts, framing_of, open_options


@dataclass(frozen=True, kw_only=True)
class NeighborAccuracy(Accuracy):
    """Accuracy of a vote of neighbors, and their recall."""

    recall: float
    """Recall@k: share of test images, in percent, with one of their class among their k nearest neighbors."""

    def __str__(self) -> str:
        return f"{super().__str__()}, recall {self.recall:.1f} %"


def neighbors(
    train: Tensor,
    labels: Tensor,
    test: Tensor,
    k: int,
    device: torch.device | str | None = None,
    *,
    leave_one_out: bool = False,
) -> tuple[Tensor, Tensor]:
    """Find cosine and label of the k nearest training features, nearest first: [test, k] both.

    Args:
        train, test: [train, width] and [test, width], of any length: they are L2-normalized.
        labels: int64 [train], from 0.
        k: Neighbors. Which of several equally near ones is the k-th is undefined.
        device: Device of the search. Default: that of the features.
        leave_one_out: `test` is `train`, and no feature is its own neighbor.

    Raises:
        ValueError: k below 1 or above the number of training features, shapes that do not fit, features that
            are not finite.
    """
    if train.ndim != 2 or test.ndim != 2 or labels.shape != train.shape[:1]:
        raise ValueError(
            f"Found features of shapes {tuple(train.shape)} and {tuple(test.shape)} with {len(labels)}"
            " labels: expected [count, width] and a label for each training feature."
        )
    check_k([k], len(train) - leave_one_out)
    cosines, numbers = nearest(test, UnitVectors(train, device), k + leave_one_out)
    if leave_one_out:
        own = numbers == torch.arange(len(test), device=numbers.device)[:, None]
        own[:, -1] |= ~own.any(dim=1)  # of more than k equal features, any k are the nearest
        cosines, numbers = (found[~own].view(-1, k) for found in (cosines, numbers))
    return cosines, labels[numbers]


def knn_accuracy(
    train: Tensor, labels: Tensor, test: Tensor, truth: Tensor, *, k: int, temperature: float = 0.07
) -> NeighborAccuracy:
    """Compute the accuracy of the vote, as `knn_accuracies`."""
    return knn_accuracies(train, labels, test, truth, ks=[k], temperature=temperature)[k]


def knn_accuracies(
    train: Tensor,
    labels: Tensor,
    test: Tensor,
    truth: Tensor,
    *,
    ks: Sequence[int],
    temperature: float,
    device: torch.device | str | None = None,
    leave_one_out: bool = False,
) -> dict[int, NeighborAccuracy]:
    """Compute the accuracy of the vote and Recall@k for each k with one search for neighbors.

    Of equal votes the class with the smaller number wins. A class without a vote is in no top-5, so that for
    k below 5 at most k classes count for it.

    Args:
        train, labels, test, device, leave_one_out: As in `neighbors`.
        truth: int64 [test], numbered as `labels`.
        ks: Numbers of neighbors.
        temperature: As in `classifier.vote`.

    Raises:
        ValueError: As `neighbors`; no test features.
    """
    cosines, near = neighbors(train, labels, test, max(ks), device, leave_one_out=leave_one_out)
    classes, results = int(torch.cat([labels, truth]).max()) + 1, {}
    for k in ks:
        shares = vote(cosines[:, :k], near[:, :k], temperature, classes)
        recall = 100 * float((near[:, :k] == truth[:, None]).any(dim=1).double().mean())
        results[k] = NeighborAccuracy(**vars(accuracy(shares, truth, zero_is_no_vote=True)), recall=recall)
    return results


def check_k(ks: Sequence[int], count: int) -> None:
    """Raise ValueError for numbers of neighbors that `count` training images do not have."""
    if not ks or not 1 <= min(ks) <= max(ks) <= count:
        listing = ", ".join(map(str, ks)) or "missing"
        raise ValueError(f"k is {listing}: choose 1 to {count}, the number of training images.")


def evaluate(options: Knn) -> None:
    """Run `evaluate knn`."""
    split, temperature = open_options(options), options.temperature
    outcomes, classes = Outcomes(options, split), len(split.classes)
    check_k(options.k, len(split.train) - options.leave_one_out)
    if options.leave_one_out:
        split.check_single("--leave-one-out")
    ks = ", ".join(map(str, options.k))
    description = f"{framing_of(options)}; output of the model, L2; k = {ks}, temperature {temperature:g}"
    if options.test_list:
        files.write_text(options.test_list, "".join(f"{name}\n" for name in split.test.names))

    def measure(model: LoadedModel) -> Metrics:
        train, test = extract_parts(options, model, split)
        examples: Any = {"features": train.features, "targets": train.labels, "classes": classes}
        shared: Any = {"temperature": temperature, "device": options.device}
        classifiers = [NeighborClassifier(**examples, **shared, k=k) for k in options.k]
        units = UnitVectors(train.features, options.device)
        results: dict[int, Accuracy | MultiLabelQuality] = {}
        if split.several:
            scores = {each.k: each.scores(test.features) for each in classifiers}
            results |= {k: multi_label_quality(shares, test.labels) for k, shares in scores.items()}
        else:
            arrays = train.features, train.labels, test.features, test.labels
            results |= knn_accuracies(*arrays, **shared, ks=options.k, leave_one_out=options.leave_one_out)
        print(*(f"k = {k}: {result}" for k, result in results.items()), sep="\n")

        def nearest_names(features: Tensor) -> list[list[str]]:
            count = min(NEAREST, len(train.features))
            numbers = nearest(features, units, count)[1]
            return [[train.images.names[number] for number in row] for row in numbers.tolist()]

        outcomes.write(model, test, classifiers[0].scores, nearest=nearest_names)
        rows = [{"k": k, **asdict(result)} for k, result in results.items()]
        return {"metrics": rows[0], "each": rows, "broken": [*train.broken, *test.broken]}

    published = () if split.several else ("2", "k-NN top-1")
    evaluate_models(options, "knn", description, measure, *published, split=split)
