"""Multinomial logistic regression on frozen features: the low-shot evaluation (appendix A of the paper).

The objective is F(W, b) = 1/n Σ −log softmax(W x + b)[y] + λ/2 ‖W‖². Biases are not penalized. The released
results have λ = 0.1/n and no bias. If there are several processes, the first one fits.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean, stdev

import torch
import torch.nn.functional as F
from torch import Tensor

from dino_model.data.collection import Images, find_listed
from dino_model.inference.classifier import TOLERANCE, FeatureSpec, LinearClassifier, fit_logistic
from dino_model.models.load import LoadedModel
from dino_model.runtime import ranks
from dino_model.runtime.device import choose_device
from training.evaluation.datasets import draw_labeled
from training.evaluation.metrics import accuracy
from training.evaluation.options import Logistic
from training.evaluation.outcomes import Outcomes
from training.evaluation.run import Labeled, Metrics, evaluate_models, extract_parts, framing_of, open_options


def evaluate(options: Logistic) -> None:
    """Run `evaluate logistic`."""
    split = open_options(options)
    split.check_single("logistic")
    outcomes = Outcomes(options, split)
    labels, classes = split.labels(split.train), split.classes
    for wanted in options.shares:  # refused before a model is loaded
        _draw(options, wanted, split.train, labels, classes)
    description = (
        f"{framing_of(options)}; output of the model; F(W) = 1/n Σ −log softmax(W x)[y] + λ/2 ‖W‖²,"
        f" λ = {options.l2:g}/n, without bias; L2-normalized features; gradient at most {TOLERANCE:g}"
    )

    def measure(model: LoadedModel) -> Metrics:
        train, test = extract_parts(options, model, split)
        fits = ranks.on_first(lambda: [_fit_draws(options, classes, train, test, n) for n in options.shares])
        rows, classifier = [row for row, _ in fits], replace(fits[-1][1], unit_length=True)
        print(*map(_describe, rows), sep="\n")

        def probabilities(features: Tensor) -> Tensor:
            return classifier.scores(features).softmax(dim=1)

        outcomes.write(model, test, probabilities)
        outcomes.save_head(model, outcomes.task(model, FeatureSpec(1)), classifier)
        return {"metrics": rows[-1], "each": rows, "broken": [*train.broken, *test.broken]}

    evaluate_models(options, "logistic", description, measure, "12", "1 %", "10 %", split=split)


def _fit_draws(
    options: Logistic, classes: Sequence[str], train: Labeled, test: Labeled, wanted: str
) -> tuple[Metrics, LinearClassifier]:
    """Fit and test every draw of a number of labels.

    Returns:
        Means and deviation of the accuracy, and the classifier of the first draw.
    """
    x, test_x = (F.normalize(part.features, dim=1) for part in (train, test))
    draws, device = _draw(options, wanted, train.images, train.labels, classes), choose_device(options.device)
    fits = [
        fit_logistic(x[chosen], train.labels[chosen], len(classes), l2=options.l2, device=device)
        for chosen in draws
    ]
    each = [asdict(accuracy(fit.classifier.scores(test_x), test.labels)) for fit in fits]
    metrics = {
        "labels": wanted,
        "images": len(draws[0]),
        "draws": len(draws),
        **{name: mean(row[name] for row in each) for name in each[0]},
        "top1_deviation": stdev(row["top1"] for row in each) if len(each) > 1 else 0.0,
        "objective": fits[-1].objective,
        "gradient": fits[-1].gradient,
    }
    return metrics, fits[0].classifier


def _draw(
    options: Logistic, wanted: str, images: Images, labels: Tensor, names: Sequence[str]
) -> list[Tensor]:
    """Return the indices of the labeled images of every draw."""
    if not (wanted.endswith("%") or wanted.isdecimal()):
        return [torch.tensor(sorted(find_listed(images, Path(wanted), options)))]
    seeds = 1 if wanted == "100%" else options.seeds
    return [draw_labeled(labels, seed, names, wanted) for seed in range(seeds)]


def _describe(row: Metrics) -> str:
    labels = f"{row['labels']} of each class" if row["labels"].isdecimal() else f"labels: {row['labels']}"
    deviation = f" ± {row['top1_deviation']:.1f} over {row['draws']} draws" if row["draws"] > 1 else ""
    return (
        f"{labels} ({row['images']:,} images): top-1 {row['top1']:.1f} %{deviation}"
        f" (mean of the classes {row['per_class_top1']:.1f}), top-5 {row['top5']:.1f} %;"
        f" F = {row['objective']:.6f}, gradient {row['gradient']:.1g}"
    )
