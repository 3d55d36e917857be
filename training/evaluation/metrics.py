"""Metrics of frozen features: classification accuracy, effective rank, lift of attention."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dino_model import photographs
from dino_model.inference.predictions import MIN_PROBABILITY
from dino_model.inference.predictor import AttentionPredictor
from dino_model.inference.quantities import lift
from dino_model.models.load import LoadedModel
from dino_model.runtime import ranks
from dino_model.runtime.device import Precision

_NOT_RANKED = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Share of correctly classified test images, in percent."""

    top1: float
    top5: float
    per_class_top1: float
    """Mean over the classes of the test images of the top-1 accuracy within each."""

    def __str__(self) -> str:
        top1 = f"top-1 {self.top1:.1f} % (mean of the classes {self.per_class_top1:.1f})"
        return f"{top1}, top-5 {self.top5:.1f} %"


def accuracy(scores: Tensor, labels: Tensor, *, zero_is_no_vote: bool = False) -> Accuracy:
    """Compute the accuracy of class scores. Of equal scores the class with the smaller number ranks first.

    scikit-learn's top-k accuracy ranks the larger number first and knows no class without a vote.

    Args:
        scores: [test, classes].
        labels: int64 [test], on the same device.
        zero_is_no_vote: Whether a class of score 0 ranks behind all others, so that it is in no top-5.

    Raises:
        ValueError: No test images, another number of labels, or scores that are not finite.
    """
    if not 0 < len(scores) == len(labels):
        raise ValueError(f"Found {len(scores)} test features with {len(labels)} labels.")
    if not scores.isfinite().all():
        raise ValueError("Scores hold NaN or infinity: the classifier diverged.")
    own = scores.gather(1, labels[:, None])  # [test, 1]
    earlier = torch.arange(scores.shape[1], device=scores.device) < labels[:, None]
    places = ((scores > own) | ((scores == own) & earlier)).sum(dim=1)
    if zero_is_no_vote:
        places = places.where(own[:, 0] > 0, _NOT_RANKED)
    counts = labels.bincount().double()
    correct = torch.zeros_like(counts).index_add_(0, labels, (places == 0).double())
    return Accuracy(
        top1=100 * float(correct.sum() / len(labels)),
        top5=100 * float((places < 5).double().mean()),
        per_class_top1=100 * float((correct / counts)[counts > 0].mean()),
    )


@dataclass(frozen=True, kw_only=True)
class MultiLabelQuality:
    """Agreement of probabilities with the classes of images that have several, in percent.

    Means over classes are over those that a test image has. A class is predicted from probability 0.5 on.
    """

    map: float
    """Mean over classes of the average precision."""
    micro_f1: float
    """F1 of all decisions together."""
    macro_f1: float
    """Mean over classes of F1."""

    def __str__(self) -> str:
        return f"mAP {self.map:.1f} %, F1 {self.micro_f1:.1f} % (micro), {self.macro_f1:.1f} % (macro)"


def multi_label_quality(probabilities: Tensor, targets: Tensor) -> MultiLabelQuality:
    """Compute mAP and F1.

    Args:
        probabilities: [images, classes].
        targets: bool [images, classes].

    Raises:
        ValueError: No image, no image with a class, or probabilities that are not finite.
    """
    if not targets.any() or probabilities.shape != targets.shape:
        raise ValueError(f"Found {len(targets)} test images, none of them with a class.")
    if not probabilities.isfinite().all():
        raise ValueError("Scores hold NaN or infinity: the classifier diverged.")
    predicted, tested = probabilities >= MIN_PROBABILITY, targets.any(dim=0)
    hits, total = (predicted & targets).sum(dim=0), predicted.sum(dim=0) + targets.sum(dim=0)
    return MultiLabelQuality(
        map=100 * mean_average_precision(probabilities, targets),
        micro_f1=200 * float(hits.sum() / total.sum()),
        macro_f1=200 * float((hits / total.clamp(min=1))[tested].mean()),
    )


def mean_average_precision(scores: Tensor, targets: Tensor) -> float:
    """Compute the mean over classes of the average precision, from 0 to 1, of classes that an image has.

    Args:
        scores: [images, classes].
        targets: bool [images, classes].
    """
    from sklearn.metrics import average_precision_score  # seconds to import

    tested = targets.any(dim=0)
    truth, values = targets[:, tested].cpu().numpy(), scores[:, tested].double().cpu().numpy()
    return float(average_precision_score(truth, values, average="macro"))


def rank_me(features: Tensor) -> float:
    """Compute RankMe: the exponential of the entropy of the singular values.

    Args:
        features: [n, width], not centered.

    Returns:
        1, for features on a line, to min(n, width).

    Source: equation 1 of Q. Garrido et al., arXiv:2210.02885.
    """
    values = torch.linalg.svdvals(features.float())
    shares = values / values.sum() + 1e-7
    return float(torch.exp(-(shares * shares.log()).sum()))


def photograph_lifts(
    model: LoadedModel, *, size: int = 224, precision: Precision = "auto", device: str = "auto"
) -> list[float]:
    """Compute the lift of the last block's [CLS] attention on each of the package's images.

    Each rank encodes its share of the images; all ranks return all lifts.

    Args:
        model: ViT with [CLS]; its mode is restored afterwards.
        size: Short side of the images in pixels.
        precision, device: Of the computation.

    Returns:
        1 for an object that receives attention in proportion to its area. Images whose object covers no
        patch center are left out.
    """
    training, names = model.backbone.training, photographs.names()
    model.backbone.eval()
    try:
        predictor = AttentionPredictor(model, size=size, precision=precision, device=device)

        def compute(numbers: range) -> Tensor:
            lifts = []
            for number in numbers:
                predictor.set_image(photographs.image(names[number]))
                lifts.append(lift(predictor.cls_attention(), photographs.mask(names[number])))
            return torch.tensor([math.nan if value is None else value for value in lifts], dtype=torch.double)

        rows = ranks.gather_rows(compute, range(len(names)))
    finally:
        model.backbone.train(training)
    return [] if rows is None else rows[~rows.isnan()].tolist()
