"""Supervised training, a baseline of the self-supervised methods (DeiT: H. Touvron et al., 2012.12877).

Differences from DeiT's recipe: all operations of RandAugment have one magnitude, and a batch contains an
image once. There is no random erasing and no moving average of the weights.
"""

import numpy as np
import torch
from torch import Tensor

from training.augmentation.crops import Crops
from training.methods.config import MethodContext
from training.methods.head import HeadConfig
from training.methods.method import Batch, Loss, Method
from training.methods.network import Network, create_network
from training.methods.supervised_config import SupervisedConfig


class Supervised(Method):
    """A backbone with a linear layer, trained on class labels."""

    def __init__(self, student: Network, config: SupervisedConfig) -> None:
        """`student` outputs one logit per class."""
        super().__init__()
        self.student, self.config = student, config

    @classmethod
    def from_config(cls, config: SupervisedConfig, context: MethodContext) -> "Supervised":
        """Backbone and linear layer."""
        linear = HeadConfig(prototypes=context.classes, layers=1, bottleneck=None)
        return cls(create_network(context.backbone, linear), config)

    def forward(self, batch: Batch, step: int) -> Loss:
        """Compute the cross-entropy with smoothed, mixed labels, mean over crops; log the accuracy in %."""
        assert batch.labels is not None  # see SupervisedConfig.check
        crops, share = self.mix(batch)
        logits = self.student(*crops, randomness=batch.randomness).float()  # [crops, batch, classes]
        labels = smooth(batch.labels, logits.shape[-1], self.config.label_smoothing)
        others = labels[mix_partners(len(labels), labels.device)]
        mixed = share * labels + (1 - share) * others  # [batch, classes]
        loss = -(mixed * logits.log_softmax(-1)).sum(-1).mean()
        accuracy = (logits.argmax(-1) == mixed.argmax(-1)).float().mean() * 100
        return Loss(loss, {"accuracy": accuracy}, {})

    def mix(self, batch: Batch) -> tuple[Crops, float]:
        """Apply Mixup or CutMix, chosen at random, to every image and its neighbor in the batch.

        Returns:
            The crops, and the share of the original image in each: one number per batch, as in DeiT.
        """
        draw = np.random.default_rng([batch.randomness.seed, batch.randomness.step])
        cut = self.config.cutmix > 0 and (self.config.mixup == 0 or draw.random() < 0.5)
        strength = self.config.cutmix if cut else self.config.mixup
        if strength == 0:
            return batch.crops, 1.0
        share = draw.beta(strength, strength)
        if not cut:
            others = mix_partners(batch.num_images, batch.crops.views.device)
            blended = (share * crops + (1 - share) * crops[:, others] for crops in batch.crops)
            return Crops(*blended), share
        middle, half = draw.random(2), (1 - share) ** 0.5 / 2
        start, end = ((middle + edge).clip(0, 1) for edge in (-half, half))  # of the box, in sides of a crop
        return Crops(*(paste(crops, start, end) for crops in batch.crops)), 1 - float(np.prod(end - start))


def mix_partners(num_images: int, device: torch.device | None = None) -> Tensor:
    """Index of the image that each image is mixed with: 1, 0, 3, 2, …; the last of an odd number with itself.

    A batch in even parts, or on several ranks, is thus mixed like the whole batch; its order is random.
    """
    return (torch.arange(num_images, device=device) ^ 1).clamp(max=num_images - 1)


def paste(crops: Tensor, start: np.ndarray, end: np.ndarray) -> Tensor:
    """Crops [crops, batch, 3, side, side] with a box of the neighbor's, from `start` to `end` in sides."""
    (top, left), (bottom, right) = (np.rint(edge * crops.shape[-1]).astype(int) for edge in (start, end))
    mixed = crops.clone()
    others = crops[:, mix_partners(crops.shape[1], crops.device)]
    mixed[..., top:bottom, left:right] = others[..., top:bottom, left:right]
    return mixed


def smooth(labels: Tensor, classes: int, smoothing: float) -> Tensor:
    """One-hot labels of which the share `smoothing` is spread evenly over all classes: [batch, classes]."""
    one_hot = (labels[:, None] == torch.arange(classes, device=labels.device)).float()
    return one_hot * (1 - smoothing) + smoothing / classes
