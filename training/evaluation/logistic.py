"""Multinomial logistic regression on frozen features: the low-shot evaluation (appendix A of the paper).

The objective is F(W, b) = 1/n Σ −log softmax(W x + b)[y] + λ/2 ‖W‖², the sum of all squared weights; biases
are not penalized. The released results have λ = 0.1/n and no bias. Of several processes the first one fits.
"""

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import normalize

from dino_model import ranks
from dino_model.device import choose_device
from dino_model.features import CLS
from dino_model.images import Images
from dino_model.weights import LoadedModel
from training.evaluation.accuracy import Accuracy, accuracy
from training.evaluation.datasets import Split, draw_labeled, find_listed, open_split
from training.evaluation.options import Logistic, Solver
from training.evaluation.run import Metrics, center_crop, evaluate_models, extract

_MAX_SKLEARN_ROWS, _MAX_SKLEARN_WIDTH = 50_000, 1_000
_MAX_LOGITS = 2**25  # in memory: 256 MB of doubles


@dataclass(frozen=True)
class LogisticProtocol:
    """Settings of a fit other than features and labels."""

    l2: float = 0.1
    """λ · n."""
    intercept: bool = False
    """Whether each class has a bias."""
    normalize: bool = True
    """Whether features are L2-normalized."""
    solver: Solver = "auto"
    """auto: scikit-learn up to 50,000 images of at most 1,000 values, else L-BFGS on the device."""
    tolerance: float = 1e-6
    """Largest entry of the gradient of F at which the fit ends."""
    max_iterations: int = 5000

    def __str__(self) -> str:
        intercept = "with biases, not penalized" if self.intercept else "without bias"
        features = "L2-normalized features" if self.normalize else "features not normalized"
        return (
            f"F(W) = 1/n Σ −log softmax(W x)[y] + λ/2 ‖W‖², λ = {self.l2:g}/n, {intercept};"
            f" {features}; gradient at most {self.tolerance:g}"
        )


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
    solver: str

    def scores(self, features: Tensor) -> Tensor:
        """Compute logits: [images, width] -> float64 [images, classes]."""
        return features.to(self.weights) @ self.weights.T + self.bias


def fit(
    features: Tensor,
    labels: Tensor,
    classes: int,
    protocol: LogisticProtocol,
    *,
    device: str | torch.device = "cpu",
) -> LogisticClassifier:
    """Minimize F.

    Args:
        features: [images, width]; normalized here if the protocol says so.
        labels: int64 [images], below `classes`.
        classes: Number of classes.
        protocol: Objective and solver.
        device: Device of L-BFGS; scikit-learn runs on the CPU.

    Raises:
        ValueError: Shapes that do not fit, one class, features that are not finite, a fit that did not
        converge.
    """
    _check(features, labels, classes)
    is_small = len(features) <= _MAX_SKLEARN_ROWS and features.shape[1] <= _MAX_SKLEARN_WIDTH
    x = features.double() if is_small else features.float()  # many become doubles part by part
    x = normalize(x, dim=1) if protocol.normalize else x
    # For two classes scikit-learn has one row of weights, whose penalty differs.
    fits_sklearn = classes > 2 and len(labels.unique()) == classes
    solver = protocol.solver
    if solver == "auto":
        solver = "scikit-learn" if is_small and fits_sklearn else "l-bfgs"
    if solver == "scikit-learn":
        if not fits_sklearn:
            raise ValueError("scikit-learn needs images of three classes or more: pass --solver auto.")
        weights, bias = _fit_sklearn(x.numpy(), labels.numpy(), protocol)
    else:
        weights, bias = _fit_lbfgs(x, labels, classes, protocol, torch.device(device))
    bias = bias - bias.mean()
    value, gradient = objective(weights, bias, x, labels, protocol.l2 / len(x))
    entries = gradient if protocol.intercept else gradient[:, :-1]
    return LogisticClassifier(weights, bias, float(value), float(entries.abs().max()), solver)


def objective(
    weights: Tensor, bias: Tensor, features: Tensor, labels: Tensor, penalty: float
) -> tuple[Tensor, Tensor]:
    """Compute F and its gradient, in chunks of images.

    Args:
        weights, bias: [classes, width] and [classes].
        features, labels: [images, width] and int64 [images].
        penalty: λ.

    Returns:
        F, and the gradient of weights and bias in one matrix: [classes, width + 1].
    """
    total = weights.new_zeros(())
    gradient = weights.new_zeros(weights.shape[0], weights.shape[1] + 1)
    rows = max(1, _MAX_LOGITS // weights.shape[0])
    for x, y in zip(features.split(rows), labels.split(rows), strict=True):
        x = x.to(weights)
        logits = torch.addmm(bias, x, weights.T)
        log_sums = logits.logsumexp(dim=1)
        total += (log_sums - logits.gather(1, y[:, None])[:, 0]).sum()
        errors = (logits - log_sums[:, None]).exp_()
        errors[torch.arange(len(y), device=y.device), y] -= 1
        gradient[:, :-1] += errors.T @ x
        gradient[:, -1] += errors.sum(dim=0)
    gradient /= len(features)
    gradient[:, :-1] += penalty * weights
    return total / len(features) + penalty / 2 * weights.square().sum(), gradient


def _fit_lbfgs(
    features: Tensor, labels: Tensor, classes: int, protocol: LogisticProtocol, device: torch.device
) -> tuple[Tensor, Tensor]:
    dtype = torch.float64 if device.type == "cpu" else torch.float32  # doubles are slow elsewhere, or missing
    both = torch.zeros(classes, features.shape[1] + 1, dtype=dtype, device=device, requires_grad=True)
    features, labels = features.to(device), labels.to(device)
    optimizer = torch.optim.LBFGS(
        [both],
        max_iter=protocol.max_iterations,
        max_eval=2 * protocol.max_iterations,
        tolerance_grad=protocol.tolerance,
        tolerance_change=0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    @torch.no_grad()
    def closure() -> Tensor:
        value, gradient = objective(both[:, :-1], both[:, -1], features, labels, protocol.l2 / len(features))
        if not protocol.intercept:
            gradient[:, -1] = 0
        both.grad = gradient
        return value

    optimizer.step(closure)
    found = both.detach().double().cpu()
    if not found.isfinite().all():
        raise ValueError("Logistic regression did not end in finite weights: raise --l2.")
    return found[:, :-1], found[:, -1]


def _fit_sklearn(
    features: np.ndarray, labels: np.ndarray, protocol: LogisticProtocol
) -> tuple[Tensor, Tensor]:
    model = LogisticRegression(
        C=1 / protocol.l2,  # its penalty is that of n times the objective
        fit_intercept=protocol.intercept,
        tol=protocol.tolerance,
        max_iter=protocol.max_iterations,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one image per class is few
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            model.fit(features, labels)
        except ConvergenceWarning:
            raise ValueError(
                f"scikit-learn did not converge within {protocol.max_iterations} iterations: raise --l2."
            ) from None
    bias = torch.from_numpy(np.broadcast_to(model.intercept_, model.coef_.shape[:1]).copy())
    return torch.from_numpy(model.coef_), bias


def _check(features: Tensor, labels: Tensor, classes: int) -> None:
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            f"Found features of shape {tuple(features.shape)} with {len(labels)} labels: expected [images,"
            " width]."
        )
    if len(labels.unique()) < 2:
        raise ValueError("All training images are of one class: two are needed.")
    if int(labels.max()) >= classes:
        raise ValueError(f"Label {int(labels.max())} is none of {classes} classes.")
    if not features.isfinite().all():
        raise ValueError("Features hold NaN or infinity: the model is broken, or needs precision fp32.")


def evaluate(options: Logistic) -> None:
    """Run `evaluate logistic`."""
    protocol = LogisticProtocol(options.l2, options.intercept, options.normalize, options.solver)
    split = open_split(options.data, test=options.test, split=options.split, leave_out=options.leave_out)
    for wanted in options.labels:  # refused before a model is loaded
        _draw(options, wanted, split.train, split.labels(split.train), split.classes)
    description = f"{center_crop(options)}; {CLS}; {protocol}"
    print(description, f"{options.data.name}: {split}", sep="\n")

    def measure(model: LoadedModel) -> Metrics:
        view = center_crop(options, model)
        train, test = (extract(options, model, view, images) for images in (split.train, split.test))
        features = normalize(test.features, dim=1) if protocol.normalize else test.features
        rows = ranks.on_first(
            lambda: _fit_all(
                options, protocol, split, train.images, train.features, features, split.labels(test.images)
            )
        )
        print(*(_describe(row) for row in rows), sep="\n")
        return {"metrics": rows[-1], "each": rows, "broken": [*train.broken, *test.broken]}

    described = split.protocol(description, options.data.name) | asdict(protocol)
    evaluate_models(options, "logistic", described, measure, "12", "1 %", "10 %")


def _fit_all(
    options: Logistic,
    protocol: LogisticProtocol,
    split: Split,
    images: Images,
    features: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
) -> list[Metrics]:
    """Fit and test every number of labels and every draw."""
    labels, device, rows = split.labels(images), choose_device(options.device), []
    for wanted in options.labels:
        results: list[Accuracy] = []
        draws = _draw(options, wanted, images, labels, split.classes)
        for chosen in draws:
            found = fit(features[chosen], labels[chosen], len(split.classes), protocol, device=device)
            results.append(accuracy(found.scores(test_features), test_labels))
        fitted = {"solver": found.solver, "objective": found.objective, "gradient": found.gradient}
        rows.append(_summarize(wanted, len(draws[0]), results) | fitted)
    return rows


def _draw(
    options: Logistic, wanted: str, images: Images, labels: Tensor, names: tuple[str, ...]
) -> list[Tensor]:
    """Return the indices of the labeled images of every draw."""
    if wanted.endswith("%"):
        share = float(wanted[:-1]) / 100
        seeds = range(1 if share == 1 else options.seeds)
        return [draw_labeled(labels, seed, names, share=share) for seed in seeds]
    if wanted.isdecimal():
        return [draw_labeled(labels, seed, names, count=int(wanted)) for seed in range(options.seeds)]
    return [find_listed(images, Path(wanted))]


def _summarize(wanted: str, count: int, results: list[Accuracy]) -> Metrics:
    """Average the metrics over the draws, and add the standard deviation of the top-1 accuracy."""
    each = [result.metrics() for result in results]
    means = {name: mean(row[name] for row in each) for name in each[0]}
    deviation = stdev(row["top1"] for row in each) if len(each) > 1 else 0.0
    return {"labels": wanted, "images": count, "draws": len(each), **means, "top1_deviation": deviation}


def _describe(row: Metrics) -> str:
    labels = f"{row['labels']} of each class" if row["labels"].isdecimal() else f"labels: {row['labels']}"
    deviation = f" ± {row['top1_deviation']:.1f} over {row['draws']} draws" if row["draws"] > 1 else ""
    return (
        f"{labels} ({row['images']:,} images): top-1 {row['top1']:.1f} %{deviation}"
        f" (mean of the classes {row['per_class_top1']:.1f}), top-5 {row['top5']:.1f} %;"
        f" F = {row['objective']:.6f}, gradient {row['gradient']:.1g}, {row['solver']}"
    )
