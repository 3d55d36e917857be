"""Multinomial logistic regression on frozen features: the low-shot evaluation (appendix A of the paper).

The objective is F(W, b) = 1/n Σ −log softmax(W x + b)[y] + λ/2 ‖W‖², every weight squared and summed, the
intercepts not penalised. The released figures have λ = 0.1/n and no intercept.
"""

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor

Solver = Literal["auto", "scikit-learn", "l-bfgs"]
_ROWS_OF_SKLEARN, _WIDTH_OF_SKLEARN = 50_000, 1_000
_AT_ONCE = 2**25  # numbers in memory: 256 MB of doubles


@dataclass(frozen=True)
class LogisticProtocol:
    """What decides a fit, apart from features and labels."""

    strength: float = 0.1
    """λ · n: the penalty is strength / n, half of it times the squared weights."""
    intercept: bool = False
    """Whether each class has a constant of its own, which is not penalised."""
    unit: bool = True
    """Whether features are L2-normalised before."""
    solver: Solver = "auto"
    """auto: scikit-learn up to 50,000 pictures of at most 1,000 numbers, else our L-BFGS on the device."""
    tolerance: float = 1e-6
    """Largest entry of the gradient of F at which it ends."""
    max_iterations: int = 5000
    """At which it gives up."""

    def __post_init__(self) -> None:
        if not self.strength > 0:
            raise ValueError(f"strength is {self.strength}: expected more than 0, else weights have no end")

    def __str__(self) -> str:
        intercept = "with intercepts, not penalised" if self.intercept else "without intercept"
        features = "L2-normalised features" if self.unit else "features as they are"
        return (
            f"F(W) = 1/n Σ −log softmax(W x)[y] + λ/2 ‖W‖², λ = {self.strength:g}/n, {intercept};"
            f" {features}; gradient at most {self.tolerance:g}"
        )


@dataclass(frozen=True)
class Logistic:
    """A fitted classifier."""

    weights: Tensor
    """float64 [classes, width]."""
    intercepts: Tensor
    """float64 [classes], of mean 0; zeros without intercept."""
    objective: float
    """F at the end."""
    gradient: float
    """Largest entry of its gradient there."""
    solver: str
    """Which found it."""

    def scores(self, features: Tensor) -> Tensor:
        """Before the softmax: [pictures, width] -> float64 [pictures, classes]."""
        return features.to(self.weights) @ self.weights.T + self.intercepts


def fit(
    features: Tensor,
    labels: Tensor,
    classes: int,
    protocol: LogisticProtocol,
    *,
    device: str | torch.device = "cpu",
) -> Logistic:
    """The minimum of F.

    Args:
        features: [pictures, width]; normalised here where the protocol says so.
        labels: int64 [pictures], below `classes`.
        classes: how many there are.
        protocol: objective and solver.
        device: of the L-BFGS; scikit-learn runs on the CPU.

    Raises:
        ValueError: shapes that do not fit, one class, features that are not finite, a fit that did not end.
    """
    _check(features, labels, classes)
    small = len(features) <= _ROWS_OF_SKLEARN and features.shape[1] <= _WIDTH_OF_SKLEARN
    x = features.double() if small else features.float()  # many become doubles part by part
    if protocol.unit:
        x = torch.nn.functional.normalize(x, dim=1)
    # For two classes scikit-learn has one row of weights, whose penalty is another.
    whole = classes > 2 and len(labels.unique()) == classes
    solver = protocol.solver
    if solver == "auto":
        solver = "scikit-learn" if small and whole else "l-bfgs"
    if solver == "scikit-learn":
        if not whole:
            raise ValueError("scikit-learn needs pictures of three classes or more: its objective is another")
        weights, intercepts = _by_sklearn(x.numpy(), labels.numpy(), protocol)
    else:
        where = torch.device(device)
        kind = torch.float64 if where.type == "cpu" else torch.float32  # others have slow doubles, or none
        both = torch.zeros(classes, x.shape[1] + 1, dtype=kind, device=where, requires_grad=True)
        weights, intercepts = _by_lbfgs(both, x.to(where), labels.to(where), protocol)
    weights, intercepts = weights.double().cpu(), intercepts.double().cpu()
    intercepts = intercepts - intercepts.mean()
    penalty = protocol.strength / len(x)
    value, gradient = objective(weights, intercepts, x, labels, penalty)
    entries = gradient if protocol.intercept else gradient[:, :-1]
    return Logistic(weights, intercepts, float(value), float(entries.abs().max()), solver)


def objective(
    weights: Tensor, intercepts: Tensor, features: Tensor, labels: Tensor, penalty: float
) -> tuple[Tensor, Tensor]:
    """F and its gradient, in chunks of pictures.

    Args:
        weights, intercepts: [classes, width] and [classes].
        features, labels: [pictures, width] and int64 [pictures].
        penalty: λ.

    Returns:
        F, and the gradient for weights and intercepts beside each other: [classes, width + 1].
    """
    total = weights.new_zeros(())
    gradient = weights.new_zeros(weights.shape[0], weights.shape[1] + 1)
    step = max(1, _AT_ONCE // weights.shape[0])
    for x, y in zip(features.split(step), labels.split(step), strict=True):
        x = x.to(weights)
        logits = torch.addmm(intercepts, x, weights.T)
        log_sums = logits.logsumexp(dim=1)
        total += (log_sums - logits.gather(1, y[:, None])[:, 0]).sum()
        wrong = (logits - log_sums[:, None]).exp_()
        wrong[torch.arange(len(y), device=y.device), y] -= 1
        gradient[:, :-1] += wrong.T @ x
        gradient[:, -1] += wrong.sum(dim=0)
    gradient /= len(features)
    gradient[:, :-1] += penalty * weights
    return total / len(features) + penalty / 2 * weights.square().sum(), gradient


def _by_lbfgs(
    both: Tensor, features: Tensor, labels: Tensor, protocol: LogisticProtocol
) -> tuple[Tensor, Tensor]:
    """From weights and intercepts `both` [classes, width + 1], in whose precision it computes."""
    penalty = protocol.strength / len(features)
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
        value, gradient = objective(both[:, :-1], both[:, -1], features, labels, penalty)
        if not protocol.intercept:
            gradient[:, -1] = 0
        both.grad = gradient
        return value

    optimizer.step(closure)
    found = both.detach()
    if not found.isfinite().all():
        raise ValueError("the logistic regression did not end in finite weights: raise --strength")
    return found[:, :-1], found[:, -1]


def _by_sklearn(
    features: np.ndarray, labels: np.ndarray, protocol: LogisticProtocol
) -> tuple[Tensor, Tensor]:
    model = LogisticRegression(
        C=1 / protocol.strength,  # its penalty is that of n times the objective
        fit_intercept=protocol.intercept,
        tol=protocol.tolerance,
        max_iter=protocol.max_iterations,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that one picture of each class is few
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            model.fit(features, labels)
        except ConvergenceWarning:
            raise ValueError(
                f"scikit-learn did not end within {protocol.max_iterations} iterations: raise --strength"
            ) from None
    intercepts = torch.from_numpy(np.broadcast_to(model.intercept_, model.coef_.shape[:1]).copy())
    return torch.from_numpy(model.coef_), intercepts


def _check(features: Tensor, labels: Tensor, classes: int) -> None:
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            f"features of shape {tuple(features.shape)} with {len(labels)} labels: expected [pictures, width]"
        )
    if len(labels.unique()) < 2:
        raise ValueError("all pictures to learn from are of one class: two are needed")
    if int(labels.max()) >= classes:
        raise ValueError(f"label {int(labels.max())} is none of {classes} classes")
    if not features.isfinite().all():
        raise ValueError("features hold NaN or infinity: the model is broken, or needs precision fp32")
