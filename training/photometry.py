"""Color changes, blur and solarization of a batch of crops, as tensors.

All random numbers are arguments: the same numbers give the same crop in any batch. Unlike Pillow, nothing is
rounded before the end, and the blur is an exact Gaussian.
"""

from functools import cache

import torch
from torch import Tensor

from training.crop_config import ViewSpec

NUMBERS = 13
"""Uniform random numbers for the photometry of a crop."""
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue (ITU-R BT.601), as in Pillow."""


@cache
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return a constant [n] on a device; it is copied there once, since a copy may wait for the device."""
    return torch.tensor(values, device=device)


def apply_photometry(
    view: ViewSpec, crops: Tensor, numbers: Tensor, of_channels: Tensor | None = None
) -> Tensor:
    """Change the colors of crops, blur and solarize them; the host does not wait for the device.

    Args:
        view: Probabilities and strengths.
        crops: uint8 [n, channels, height, width], on any device.
        numbers: Uniform numbers in [0, 1), [n, NUMBERS], on the host, which decides what is computed.
        of_channels: Further numbers [n, 2 * channels] if the channels are not red, green and blue.

    Returns:
        uint8 [n, channels, height, width].
    """
    often = torch.tensor([view.jitter, view.gray, view.blur, view.solarize])
    spread, middle = torch.tensor(view.strengths), torch.tensor([1.0, 1.0, 1.0, 0.0])
    low, high = (middle - spread).maximum(middle - 1), middle + spread
    jittered, grayed, blurred, solarized = (numbers[:, :4] < often).T
    strengths = (low + (high - low) * numbers[:, 4:8])[jittered]
    radii = view.radius[0] + (view.radius[1] - view.radius[0]) * numbers[:, 12]
    orders = numbers[:, 8:12].argsort()[jittered]
    pixels = crops.float()
    if len(rows := indices(jittered, crops.device)):
        if of_channels is None:
            pixels[rows] = jitter(pixels[rows], strengths, orders)
        else:
            factors = low[:2, None] + (high - low)[:2, None] * of_channels[jittered].unflatten(1, (2, -1))
            pixels[rows] = jitter_channels(pixels[rows], factors.to(crops.device, non_blocking=True))
    if len(rows := indices(grayed, crops.device)):
        gray = luma(pixels[rows]) if of_channels is None else pixels[rows].mean(1, keepdim=True)
        pixels[rows] = gray.expand(-1, crops.shape[1], -1, -1)
    if len(rows := indices(blurred, crops.device)):
        pixels[rows] = gaussian_blur(pixels[rows], radii[blurred].to(crops.device, non_blocking=True))
    if len(rows := indices(solarized, crops.device)):
        pixels[rows] = solarize(pixels[rows])
    return pixels.round_().clamp_(0, 255).byte()


def indices(mask: Tensor, device: torch.device) -> Tensor:
    """Positions that a mask on the host selects, on the device."""
    return mask.nonzero()[:, 0].to(device, non_blocking=True)


def jitter(pixels: Tensor, strengths: Tensor, orders: Tensor) -> Tensor:
    """Change brightness, contrast, saturation and hue, in each crop's own order.

    Args:
        pixels: [n, 3, height, width], 0 to 255.
        strengths: [n, 4]: three factors, and the shift of the hue as a share of the circle; on the host.
        orders: [n, 4], permutations of 0 to 3; on the host.
    """
    operations = (brightness, contrast, saturation, hue)
    pixels, strengths = pixels.clone(), strengths.to(pixels.device, non_blocking=True)
    for turn in orders.T:
        for number, operation in enumerate(operations):
            if len(rows := indices(turn == number, pixels.device)):
                pixels[rows] = operation(pixels[rows], strengths[rows, number].view(-1, 1, 1, 1))
    return pixels


def jitter_channels(pixels: Tensor, factors: Tensor) -> Tensor:
    """Change brightness, then contrast of every channel by its own factor.

    Args:
        pixels: [n, channels, height, width], 0 to 255.
        factors: [n, 2, channels].
    """
    brighter = brightness(pixels, factors[:, 0, :, None, None])
    means = brighter.mean((2, 3), keepdim=True)
    return torch.lerp(means, brighter, factors[:, 1, :, None, None]).clamp_(0, 255)


def luma(pixels: Tensor) -> Tensor:
    """Luma: [n, 3, height, width] -> [n, 1, height, width]."""
    return (pixels * constant(LUMA, pixels.device).view(3, 1, 1)).sum(1, keepdim=True)


def brightness(pixels: Tensor, factor: Tensor) -> Tensor:
    """Interpolate between black and the crop."""
    return (pixels * factor).clamp_(0, 255)


def contrast(pixels: Tensor, factor: Tensor) -> Tensor:
    """Interpolate between the crop's mean luma and the crop."""
    mean = luma(pixels).mean((1, 2, 3), keepdim=True)
    return torch.lerp(mean, pixels, factor).clamp_(0, 255)


def saturation(pixels: Tensor, factor: Tensor) -> Tensor:
    """Interpolate between each pixel's luma and the crop."""
    return torch.lerp(luma(pixels), pixels, factor).clamp_(0, 255)


def hue(pixels: Tensor, shift: Tensor) -> Tensor:
    """Shift the hue (HSV) by a share of the circle."""
    value, most = pixels.max(1, keepdim=True)
    chroma = value - pixels.amin(1, keepdim=True)
    next_, previous = (pixels.gather(1, (most + offset) % 3) for offset in (1, 2))
    sextant = 2 * most + (next_ - previous) / chroma.clamp(min=1e-6)  # of the circle, red at 0
    own = constant((0.0, 2.0, 4.0), pixels.device).view(3, 1, 1)  # sextant of each channel
    distance = ((sextant + 6 * shift - own + 3) % 6 - 3).abs()  # 0 to 3
    return value - chroma * (distance - 1).clamp_(0, 1)


def gaussian_blur(pixels: Tensor, radii: Tensor) -> Tensor:
    """Blur each crop with its own standard deviation in pixels [n], by a matrix product along each axis.

    At an edge the weights of missing pixels are left out; the remaining ones sum to one.
    """
    down, across = (_blur_matrices(radii, side)[:, None] for side in pixels.shape[-2:])
    return down @ pixels @ across.mT


def _blur_matrices(radii: Tensor, side: int) -> Tensor:
    """Gaussian weights between the pixels of a line: [n, side, side], rows sum to one."""
    places = torch.arange(side, device=radii.device)
    squares = (places[:, None] - places).square()
    return torch.softmax(-squares / (2 * radii.clamp(min=0.01).square()).view(-1, 1, 1), dim=-1)


def solarize(pixels: Tensor) -> Tensor:
    """Invert values of at least 128."""
    return torch.where(pixels >= 128, 255 - pixels, pixels)
