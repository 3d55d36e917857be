"""What tells, while it trains, whether a run learns: collapse in words, and a k-NN probe.

The theory is the paper's collapse study (section 5.3): with H the entropy of the teacher's output and KL its
divergence from the student's, a KL of zero means an output that no longer depends on the picture; H then
tells which of the two collapses it is, one prototype for all (H = 0) or all prototypes alike (H = ln K).
"""

import math
from dataclasses import dataclass

import torch
from torch import nn

from dino_model.device import ComputePrecision
from dino_model.features import cls_features
from dino_model.images import IMAGENET_MEAN, IMAGENET_STD, Images
from training.evaluation.knn import knn_accuracy

COLLAPSED_KL = 0.01
"""nats; far below any KL that a learning run shows."""


def collapse_warning(entropy: float, kl: float, prototypes: int) -> str | None:
    """One sentence that names the collapse and the likely knob, or None.

    Args:
        entropy: of the teacher's output, in nats.
        kl: divergence of the student's output from the teacher's, in nats.
        prototypes: K.
    """
    uniform = math.log(prototypes)
    if entropy < 0.05 * uniform and kl < COLLAPSED_KL:
        return (
            f"collapse to one prototype: teacher entropy {entropy:.3f} is near 0 and KL {kl:.4f}; the center "
            "does not hold it back: lower --center-momentum or raise --teacher-temperature"
        )
    if entropy > 0.99 * uniform and kl < COLLAPSED_KL:
        return (
            f"collapse to the uniform output: teacher entropy {entropy:.3f} is ln K = {uniform:.3f}, "
            f"KL {kl:.4f}; sharpen the teacher: lower --teacher-temperature, or warm it up over more epochs"
        )
    if kl < COLLAPSED_KL:
        return (
            f"KL {kl:.4f} is near 0: the teacher's output hardly depends on the picture; "
            "lower --teacher-temperature or the learning rate"
        )
    return None


@dataclass(frozen=True)
class Probe:
    """k-NN accuracy on labelled training pictures: every fifth is named by the votes of the others.

    This is for watching a run and choosing between runs; figures to report come from `evaluate knn`.
    """

    images: Images
    size: int
    precision: ComputePrecision
    device: torch.device
    limit: int = 2500
    """At most so many pictures, taken evenly."""

    def top1(self, backbone: nn.Module) -> float:
        """Top-1 in percent, k = 20 and temperature 0.07."""
        if self.images.labels is None:
            raise ValueError("the probe needs labelled pictures: one folder for each class")
        step = max(1, math.ceil(len(self.images) / self.limit))
        images = self.images.subset(range(0, len(self.images), step))
        labels = torch.tensor(images.labels)
        features = cls_features(
            backbone,
            images,
            size=self.size,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            precision=self.precision,
            device=self.device,
        )
        asked = torch.arange(len(images)) % 5 == 4
        k = min(20, int((~asked).sum()))
        return knn_accuracy(features[~asked], labels[~asked], features[asked], labels[asked], k=k).top1
