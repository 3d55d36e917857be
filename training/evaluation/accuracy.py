"""How many pictures are named rightly: the figures that all classifiers share."""

from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

_NO_ANSWER = 2**31 - 1  # a rank behind every other


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """How many test pictures are named rightly, in percent."""

    top1: float
    """Test pictures whose own class comes first."""
    top5: float
    """Test pictures whose own class is among the first five."""
    per_class_top1: float
    """Mean over the classes of the test pictures of the top-1 within each."""
    predicted: Tensor = field(repr=False, compare=False)
    """The class that comes first: int64 [test]."""

    def __str__(self) -> str:
        top1 = f"top-1 {self.top1:.1f} % (mean of the classes {self.per_class_top1:.1f})"
        return f"{top1}, top-5 {self.top5:.1f} %"

    def figures(self) -> dict[str, float]:
        """The numbers alone."""
        return {name: value for name, value in asdict(self).items() if name != "predicted"}


def accuracy(scores: Tensor, truth: Tensor, *, votes: bool = False) -> Accuracy:
    """The figures of scores for every class.

    Of classes with equal scores the one with the smaller number comes first.

    Args:
        scores: [test, classes].
        truth: int64 [test].
        votes: whether a class whose score is 0 is no answer, so that it comes after all others.

    Raises:
        ValueError: no test pictures, or another number of labels; scores that are not finite.
    """
    if not 0 < len(scores) == len(truth):
        raise ValueError(f"{len(scores)} test features with {len(truth)} labels")
    if not scores.isfinite().all():
        raise ValueError("scores hold NaN or infinity: the classifier did not converge")
    return of_ranks(_ranks(scores, truth, votes=votes), truth, scores.argmax(dim=1))


def of_ranks(ranks: Tensor, truth: Tensor, predicted: Tensor) -> Accuracy:
    """The figures of the places, from 0, that the true classes have: int64 [test] all three."""
    right = (ranks == 0).double()
    per_class = torch.zeros(int(truth.max()) + 1, dtype=torch.float64, device=truth.device)
    per_class.index_add_(0, truth, right)
    counts = truth.bincount(minlength=len(per_class))
    mean = (per_class / counts)[counts > 0].mean()
    top5 = (ranks < 5).double().mean()
    return Accuracy(
        top1=100 * float(right.mean()),
        top5=100 * float(top5),
        per_class_top1=100 * float(mean),
        predicted=predicted,
    )


def _ranks(scores: Tensor, truth: Tensor, *, votes: bool) -> Tensor:
    """How many classes come before the true one: int64 [test]; `_NO_ANSWER` if it has no vote."""
    own = scores.gather(1, truth[:, None])  # [test, 1]
    earlier = torch.arange(scores.shape[1], device=scores.device) < truth[:, None]
    ranks = ((scores > own) | ((scores == own) & earlier)).sum(dim=1)
    return ranks.where(own[:, 0] > 0, _NO_ANSWER) if votes else ranks


def confusions(truth: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """How many pictures of each class (row) were given each name (column): int64 [classes, classes]."""
    return (truth * classes + predicted).bincount(minlength=classes * classes).view(classes, classes)
