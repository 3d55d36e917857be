"""Random resized crops of a whole batch on the training device.

Workers only decode an image and resize it to a square canvas. On the device every crop is a random box of the
canvas. It is resized by two matrix products with the antialiased bicubic weights of Pillow and torchvision.
"""

import math

import torch
from torch import Tensor

TRIES = 10
"""Boxes drawn before the largest centered box is taken, as in torchvision."""
BOX_NUMBERS = 2 * TRIES + 2
"""Uniform random numbers for each box."""
LOG_RATIO = math.log(4 / 3)
"""Sides of a box have ratios from 3 : 4 to 4 : 3."""


def random_boxes(numbers: Tensor, aspect: Tensor, scale: tuple[float, float]) -> Tensor:
    """Draw the boxes of RandomResizedCrop, without rounding to pixels.

    Args:
        numbers: Uniform random numbers in [0, 1), [n, BOX_NUMBERS].
        aspect: Height over width of each image before it was resized, [n].
        scale: Share of the image's area that a box covers, from and to.

    Returns:
        Left, top, width and height as shares of the image's width and height, [n, 4].
    """
    aspect = aspect[:, None]
    area = scale[0] + (scale[1] - scale[0]) * numbers[:, :TRIES]
    ratio = torch.exp(LOG_RATIO * (2 * numbers[:, TRIES : 2 * TRIES] - 1))  # width over height, in pixels
    widths, heights = (area * ratio * aspect).sqrt(), (area / (ratio * aspect)).sqrt()
    fits = (widths <= 1) & (heights <= 1)
    tries = torch.arange(TRIES, device=numbers.device)
    first = torch.where(fits, tries, TRIES).amin(1, keepdim=True)  # TRIES: none fits
    found, place = first < TRIES, first.clamp(max=TRIES - 1)
    width = torch.where(found, widths.gather(1, place), (aspect * 4 / 3).clamp(max=1))
    height = torch.where(found, heights.gather(1, place), (4 / 3 / aspect).clamp(max=1))
    shift = torch.where(found, numbers[:, -2:], 0.5)
    return torch.cat([shift[:, :1] * (1 - width), shift[:, 1:] * (1 - height), width, height], dim=1)


def resize_weights(start: Tensor, length: Tensor, pixels: int, size: int) -> Tensor:
    """Weights that resize a segment of a line, antialiased bicubic as in Pillow.

    Args:
        start, length: Of the segments in pixels, [n].
        pixels: Length of the line.
        size: Length of the result.

    Returns:
        [n, size, pixels]; rows sum to 1, pixels outside of the segment have weight 0.
    """
    scale = (length / size).view(-1, 1, 1)
    start, length = start.view(-1, 1, 1), length.view(-1, 1, 1)
    outputs, inputs = (torch.arange(n, device=start.device) + 0.5 for n in (size, pixels))
    distance = (inputs - start - outputs[:, None] * scale).abs() / scale.clamp(min=1)
    inside = (inputs > start) & (inputs < start + length)
    weights = torch.where(inside, cubic(distance), 0.0)
    return weights / weights.sum(-1, keepdim=True)


def cubic(distance: Tensor) -> Tensor:
    """Catmull-Rom kernel (a = -0.5) at non-negative distances."""
    near = (1.5 * distance - 2.5) * distance.square() + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))


def resized_crops(canvas: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Cut one box out of each image and resize it.

    Args:
        canvas: [n, 3, side, side], fp32, 0 to 255.
        boxes: From `random_boxes`, [n, 4].
        size: Side of the crops.

    Returns:
        uint8 [n, 3, size, size].
    """
    side = canvas.shape[-1]
    left, top, width, height = (boxes * side).unbind(1)
    across, down = resize_weights(left, width, side, size), resize_weights(top, height, side, size)
    crops = down[:, None] @ (canvas @ across.mT[:, None])
    return crops.round_().clamp_(0, 255).byte()
