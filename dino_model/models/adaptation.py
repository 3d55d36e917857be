"""Fit a model of RGB to images of other channels."""

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray
from timm.models import adapt_input_conv
from torch import nn

from dino_model.data.channels import ChannelStatistics, measure_channels
from dino_model.models.catalogue import WeightsError
from dino_model.models.load import LoadedModel
from dino_model.runtime.errors import SettingError


def fit_channels(
    model: LoadedModel, images: Iterable[NDArray[Any]] | None, channels: int | None
) -> LoadedModel:
    """Return the model for images of a number of channels, None for RGB.

    A model that was trained on this number of channels is returned unchanged. Otherwise the weights of red,
    green and blue are adapted as in timm, and the range and statistics of the images are computed.

    Args:
        images: As stored, [height, width, channels]; read only if the model is adapted.

    Raises:
        SettingError: A model of other channels than the images.
    """
    trained = len(model.channel_range) if model.channel_range else None
    if channels is None and trained:
        raise SettingError(f"{model.name} takes images of {trained} channels: pass --channels {trained}")
    if channels is None or trained == channels:
        return model
    if channels < 1 or trained:
        expected = f"{trained}, as it was trained" if trained else "at least 1"
        raise SettingError(f"--channels is {channels}, but {model.name} takes {expected}")
    return adapt_channels(model, measure_channels(images or ()))


def adapt_channels(model: LoadedModel, statistics: ChannelStatistics) -> LoadedModel:
    """Return a copy of a model of RGB for other channels; its first convolution is adapted as timm does.

    Raises:
        WeightsError: A model whose first convolution does not take RGB.
    """
    channels, backbone = len(statistics.range), copy.deepcopy(model.backbone)
    convolutions = (pair for pair in backbone.named_modules() if isinstance(pair[1], nn.Conv2d))
    name, first = next(convolutions, ("", None))
    if not isinstance(first, nn.Conv2d) or first.in_channels != 3 or first.groups != 1:
        raise WeightsError(f"{model.name} has no first convolution of red, green and blue to adapt")
    first.weight = nn.Parameter(adapt_input_conv(channels, first.weight), requires_grad=False)
    first.in_channels = channels
    return replace(
        model,
        backbone=backbone,
        mean=statistics.mean,
        std=statistics.std,
        source=f"{model.source}, {name} adapted to {channels} channels",
        config=model.config and replace(model.config, in_channels=channels),
        channel_range=statistics.range,
    )
