"""How much more the heads look at objects than at ground, on the package's own photographs."""

import numpy as np
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
    """Mean lift of the last block's [CLS] attention over the photographs; 1: objects count like ground.

    Args:
        backbone: a ViT with [CLS]; it is left in the mode it was in.
        size: short side that the photographs are resized to; an object that no patch then shows is left out.
        mean: of each channel that inputs are normalised with.
        std: standard deviation, likewise.
        precision: of the computation.
        device: of the computation.

    Raises:
        ValueError: a backbone whose attention cannot be read.
    """
    training = backbone.training
    model = LoadedModel("the backbone", backbone.eval(), mean, std, "a training", None)
    try:
        predictor = AttentionPredictor(model, size=size, precision=precision, device=device)
        lifts = [_lift(predictor, name) for name in photographs.names()]
        return float(np.mean([found for found in lifts if found is not None]))
    finally:
        backbone.train(training)


def _lift(predictor: AttentionPredictor, name: str) -> float | None:
    predictor.set_image(photographs.picture(name))
    return lift(predictor.cls_attention(), photographs.mask(name))
