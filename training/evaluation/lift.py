"""Lift of attention: attention to objects compared with the background, on the package's photographs."""

from statistics import fmean

from torch import nn

from dino_model import photographs
from dino_model.device import Precision
from dino_model.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.predictor import AttentionPredictor
from dino_model.quantities import lift
from dino_model.weights import LoadedModel


def photographs_lift(
    backbone: nn.Module,
    *,
    size: int = 224,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
    precision: Precision = "auto",
    device: str = "auto",
) -> float:
    """Compute the mean lift of the last block's [CLS] attention over the photographs.

    Args:
        backbone: ViT with [CLS]; its mode is restored afterwards.
        size: Short side of the photographs in pixels; an object smaller than a patch is left out.
        mean: Mean of each input channel.
        std: Standard deviation of each input channel.
        precision: Precision of the computation.
        device: Device of the computation.

    Returns:
        1 if objects receive attention in proportion to their area.

    Raises:
        ValueError: The backbone's attention cannot be read.
    """
    training = backbone.training
    model = LoadedModel("the backbone", backbone.eval(), mean, std, "a training", None)
    try:
        return fmean(
            photograph_lifts(AttentionPredictor(model, size=size, precision=precision, device=device))
        )
    finally:
        backbone.train(training)


def photograph_lifts(predictor: AttentionPredictor) -> list[float]:
    """Compute the lift on each photograph whose object covers at least one patch center."""
    lifts = []
    for name in photographs.names():
        predictor.set_image(photographs.picture(name))
        lifts.append(lift(predictor.cls_attention(), photographs.mask(name)))
    return [value for value in lifts if value is not None]
