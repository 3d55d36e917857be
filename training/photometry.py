"""Colour, blur and solarisation of a batch of crops at once, as tensors; what `crops.crop` does one by one.

All that is random comes in as `CHANCES` uniform numbers a crop, so that the same numbers give the same crop
whatever batch it is in. Against Pillow's, nothing is rounded before the end, and the blur is a true Gaussian.
"""

from functools import cache

import torch
from torch import Tensor

from training.crop_config import Photometry

CHANCES = 13
"""Uniform numbers that a crop's photometry is drawn from."""
GREY = (0.299, 0.587, 0.114)
"""Red, green and blue in luma (ITU-R BT.601), as Pillow has it."""


@cache
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return a constant [n] on a device; it is copied there once, since a copy may wait for the device."""
    return torch.tensor(values, device=device)


def apply_photometry(photometry: Photometry, crops: Tensor, chances: Tensor) -> Tensor:
    """Change the colors of crops, blur and solarize them; the host does not wait for the device.

    Args:
        photometry: Probabilities and strengths.
        crops: uint8 [n, 3, height, width], on any device.
        chances: Uniform numbers in [0, 1), [n, CHANCES], on the host, which decides what is computed.

    Returns:
        uint8 [n, 3, height, width].
    """
    often = torch.tensor([photometry.jitter, photometry.grey, photometry.blur, photometry.solarise])
    spread, middle = torch.tensor(photometry.strengths), torch.tensor([1.0, 1.0, 1.0, 0.0])
    low, high = (middle - spread).maximum(middle - 1), middle + spread
    jittered, greyed, blurred, solarised = (chances[:, :4] < often).T
    strengths = (low + (high - low) * chances[:, 4:8])[jittered]
    radii = photometry.radius[0] + (photometry.radius[1] - photometry.radius[0]) * chances[:, 12]
    orders = chances[:, 8:12].argsort()[jittered]
    pixels = crops.float()
    if len(rows := indices(jittered, crops.device)):
        pixels[rows] = jitter(pixels[rows], strengths, orders)
    if len(rows := indices(greyed, crops.device)):
        pixels[rows] = grey(pixels[rows]).expand(-1, 3, -1, -1)
    if len(rows := indices(blurred, crops.device)):
        pixels[rows] = gaussian_blur(pixels[rows], radii[blurred].to(crops.device, non_blocking=True))
    if len(rows := indices(solarised, crops.device)):
        pixels[rows] = solarise(pixels[rows])
    return pixels.round_().clamp_(0, 255).byte()


def indices(mask: Tensor, device: torch.device) -> Tensor:
    """Return the positions that a mask on the host selects, on the device."""
    return mask.nonzero()[:, 0].to(device, non_blocking=True)


def jitter(pixels: Tensor, strengths: Tensor, orders: Tensor) -> Tensor:
    """Change brightness, contrast, saturation and hue, each crop's in its own order.

    Args:
        pixels: [n, 3, height, width], 0 to 255.
        strengths: [n, 4]: three factors, and the shift of the hue as a share of the circle; on the host.
        orders: [n, 4], permutations of the numbers of the four; on the host.
    """
    operations = (brightness, contrast, saturation, hue)
    pixels, strengths = pixels.clone(), strengths.to(pixels.device, non_blocking=True)
    for turn in orders.T:
        for number, operation in enumerate(operations):
            if len(rows := indices(turn == number, pixels.device)):
                pixels[rows] = operation(pixels[rows], strengths[rows, number].view(-1, 1, 1, 1))
    return pixels


def grey(pixels: Tensor) -> Tensor:
    """Luma: [n, 3, height, width] -> [n, 1, height, width]."""
    return (pixels * constant(GREY, pixels.device).view(3, 1, 1)).sum(1, keepdim=True)


def brightness(pixels: Tensor, factor: Tensor) -> Tensor:
    """Towards or away from black."""
    return (pixels * factor).clamp_(0, 255)


def contrast(pixels: Tensor, factor: Tensor) -> Tensor:
    """Towards or away from the crop's mean luma."""
    mean = grey(pixels).mean((1, 2, 3), keepdim=True)
    return torch.lerp(mean, pixels, factor).clamp_(0, 255)


def saturation(pixels: Tensor, factor: Tensor) -> Tensor:
    """Towards or away from each pixel's luma."""
    return torch.lerp(grey(pixels), pixels, factor).clamp_(0, 255)


def hue(pixels: Tensor, turn: Tensor) -> Tensor:
    """Turned on the circle of hues (HSV), by `turn` of it."""
    value, most = pixels.max(1, keepdim=True)
    chroma = value - pixels.amin(1, keepdim=True)
    ahead, behind = (pixels.gather(1, (most + shift) % 3) for shift in (1, 2))
    sextant = 2 * most + (ahead - behind) / chroma.clamp(min=1e-6)  # of the circle, red at 0
    places = (
        sextant + 6 * turn - constant((0.0, 2.0, 4.0), pixels.device).view(3, 1, 1)
    )  # from each colour's own
    distance = ((places + 3) % 6 - 3).abs()  # 0 to 3
    return value - chroma * (distance - 1).clamp_(0, 1)


def gaussian_blur(pixels: Tensor, radii: Tensor) -> Tensor:
    """Each crop by its own standard deviation in pixels [n], as a matrix product along each axis.

    At an edge the weights that fall outside are left out and the others sum to one.
    """
    down, across = (_blur_matrices(radii, side)[:, None] for side in pixels.shape[-2:])
    return down @ pixels @ across.mT


def _blur_matrices(radii: Tensor, side: int) -> Tensor:
    """Gaussian weights of every pixel for every other on a line: [n, side, side], rows sum to one."""
    places = torch.arange(side, device=radii.device)
    squares = (places[:, None] - places).square()
    return torch.softmax(-squares / (2 * radii.clamp(min=0.01).square()).view(-1, 1, 1), dim=-1)


def solarise(pixels: Tensor) -> Tensor:
    """Inverted where at least 128."""
    return torch.where(pixels >= 128, 255 - pixels, pixels)
