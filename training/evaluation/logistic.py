"""Multinomial logistic regression on frozen features: the low-shot evaluation (appendix A of the paper).

The objective is F(W, b) = 1/n Σ −log softmax(W x + b)[y] + λ/2 ‖W‖². Biases are not penalized. The released
results have λ = 0.1/n and no bias. If there are several processes, the first one fits.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev

import torch
import torch.nn.functional as F
from torch import Tensor

from dino_model.data.collections import Images, find_listed
from dino_model.inference.classifier import FeatureSpec, LinearHead
from dino_model.inference.features import OUTPUT
from dino_model.models.weights import LoadedModel
from dino_model.runtime import ranks
from dino_model.runtime.device import choose_device
from training.evaluation.datasets import draw_labeled
from training.evaluation.metrics import accuracy
from training.evaluation.options import Logistic
from training.evaluation.outcomes import open_predicted, save_head, write_outcomes
from training.evaluation.run import Labeled, Metrics, evaluate_models, extract_parts, framing_of, open_options

TOLERANCE = 1e-6
"""Largest entry of the gradient of F at which a fit ends."""
CLS_SPEC = FeatureSpec(1)
_MAX_ITERATIONS = 5000
_MAX_LOGITS = 2**25  # in memory: 256 MB of doubles


@dataclass(frozen=True)
class LogisticClassifier:
    """A fitted classifier."""

    weights: Tensor
    """float64 [classes, width]."""
    bias: Tensor
    """float64 [classes], of mean 0; zeros without bias."""
    objective: float
    """F at the end."""
    gradient: float
    """Largest entry of the gradient at the end."""

    def scores(self, features: Tensor) -> Tensor:
        """Compute logits: [images, width] -> float64 [images, classes]."""
        return features.to(self.weights) @ self.weights.T + self.bias


def fit(
    features: Tensor,
    labels: Tensor,
    classes: int,
    *,
    l2: float = 0.1,
    intercept: bool = False,
    tolerance: float = TOLERANCE,
    device: str | torch.device = "cpu",
) -> LogisticClassifier:
    """Minimize F by L-BFGS.

    scikit-learn's solver needs three classes, an image of each, and memory for the logits of all images.

    Args:
        features: [images, width], finite.
        labels: int64 [images], below `classes`, of at least two classes.
        classes: Number of classes.
        l2: λ · n.
        intercept: Fit biases.
        tolerance: Largest entry of the gradient at which the fit ends.
        device: Device of the computation; doubles on a CPU, else fp32.

    Raises:
        ValueError: One class, or a fit that did not end in finite weights.
    """
    if len(labels.unique()) < 2:
        raise ValueError("All training images are of one class: two are needed.")
    device = torch.device(device)
    dtype = torch.float64 if device.type == "cpu" else torch.float32  # doubles are slow elsewhere, or missing
    both = torch.zeros(classes, features.shape[1] + 1, dtype=dtype, device=device, requires_grad=True)
    x, y = features.to(device), labels.to(device)
    optimizer = torch.optim.LBFGS(
        [both],
        max_iter=_MAX_ITERATIONS,
        max_eval=2 * _MAX_ITERATIONS,
        tolerance_grad=tolerance,
        tolerance_change=0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = _objective(both, x, y, l2 / len(y))
        assert both.grad is not None
        if not intercept:
            both.grad[:, -1] = 0
        return value

    optimizer.step(closure)
    if not both.isfinite().all():
        raise ValueError("Logistic regression did not end in finite weights: raise --l2.")
    value = float(closure())
    assert both.grad is not None
    solution = both.detach().double().cpu()
    weights, bias = solution[:, :-1], solution[:, -1] - solution[:, -1].mean()
    return LogisticClassifier(weights, bias, value, float(both.grad.abs().max()))


def _objective(both: Tensor, features: Tensor, labels: Tensor, penalty: float) -> Tensor:
    """Compute F of weights and biases [classes, width + 1] in chunks of images; set their gradient."""
    value = penalty / 2 * both[:, :-1].square().sum()
    value.backward()
    value, rows = value.detach(), max(1, _MAX_LOGITS // len(both))
    for chunk, truth in zip(features.split(rows), labels.split(rows), strict=True):
        logits = F.linear(chunk.to(both.dtype), both[:, :-1], both[:, -1])
        loss = F.cross_entropy(logits, truth, reduction="sum") / len(labels)
        loss.backward()
        value += loss.detach()
    return value


def evaluate(options: Logistic) -> None:
    """Run `evaluate logistic`."""
    split = open_options(options)
    split.check_single("logistic")
    predicted = open_predicted(options, split)
    labels, classes = split.labels(split.train), split.classes
    for wanted in options.shares:  # refused before a model is loaded
        _draw(options, wanted, split.train, labels, classes)
    description = (
        f"{framing_of(options)}; output of the model; F(W) = 1/n Σ −log softmax(W x)[y] + λ/2 ‖W‖²,"
        f" λ = {options.l2:g}/n, without bias; L2-normalized features; gradient at most {TOLERANCE:g}"
    )

    def measure(model: LoadedModel) -> Metrics:
        train, test = extract_parts(options, model, split)
        rows = ranks.on_first(lambda: [_fit_draws(options, classes, train, test, n) for n in options.shares])
        print(*map(_describe, rows), sep="\n")
        if options.predict or options.confusion or options.save_head:
            solution = ranks.on_first(lambda: _fit_last(options, classes, train))
            head = LinearHead(CLS_SPEC, solution.weights, solution.bias, unit_length=True)

            def probabilities(features: Tensor) -> Tensor:
                return solution.scores(F.normalize(features, dim=1)).softmax(dim=1)

            write_outcomes(options, split, model, predicted, OUTPUT, test, probabilities)
            save_head(options, split, model, head)
        return {"metrics": rows[-1], "each": rows, "broken": [*train.broken, *test.broken]}

    evaluate_models(options, "logistic", description, measure, "12", "1 %", "10 %", split=split)


def _fit_last(options: Logistic, classes: Sequence[str], train: Labeled) -> LogisticClassifier:
    """Fit the first draw of the last of --shares."""
    chosen = _draw(options, options.shares[-1], train.images, train.labels, classes)[0]
    x, device = F.normalize(train.features[chosen], dim=1), choose_device(options.device)
    return fit(x, train.labels[chosen], len(classes), l2=options.l2, device=device)


def _fit_draws(
    options: Logistic, classes: Sequence[str], train: Labeled, test: Labeled, wanted: str
) -> Metrics:
    """Fit and test every draw of a number of labels; return the means and the deviation of the accuracy."""
    x, test_x = (F.normalize(part.features, dim=1) for part in (train, test))
    draws, each = _draw(options, wanted, train.images, train.labels, classes), []
    device = choose_device(options.device)
    for chosen in draws:
        labels = train.labels[chosen]
        solution = fit(x[chosen], labels, len(classes), l2=options.l2, device=device)
        each.append(asdict(accuracy(solution.scores(test_x), test.labels)))
    return {
        "labels": wanted,
        "images": len(draws[0]),
        "draws": len(draws),
        **{name: mean(row[name] for row in each) for name in each[0]},
        "top1_deviation": stdev(row["top1"] for row in each) if len(each) > 1 else 0.0,
        "objective": solution.objective,
        "gradient": solution.gradient,
    }


def _draw(
    options: Logistic, wanted: str, images: Images, labels: Tensor, names: Sequence[str]
) -> list[Tensor]:
    """Return the indices of the labeled images of every draw."""
    if not (wanted.endswith("%") or wanted.isdecimal()):
        return [torch.tensor(sorted(find_listed(images, Path(wanted))))]
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
