"""Color changes, blur and solarization of a batch of crops, as tensors.

All random numbers are arguments: the same numbers give the same crop in any batch. Unlike Pillow, nothing is
rounded before the end, and the blur is an exact Gaussian.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from training.augmentation.crop_config import ViewSpec

NUMBERS = 13
"""Uniform random numbers for the photometry of a crop."""
HUE = 3
"""Number of the hue among brightness, contrast, saturation and hue."""
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue (ITU-R BT.601), as in Pillow."""


@cache
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return a constant [n] on a device; it is copied there once, since a copy may wait for the device."""
    return torch.tensor(values, device=device)


class ColorCounts(NamedTuple):
    """Numbers of crops that change, by which the host chooses the operations."""

    bounds: tuple[int, int, int, int]
    """First crop in order that is jittered, and those with more than 0, 1 and 2 changes before the hue."""
    grayed: int
    blurred: int
    solarized: int


ORDER, GRAYED, BLURRED, SOLARIZED, RADIUS, FLIPPED, SHIFT, BLENDS = range(8)
"""Columns of the table of changes. Lists: the crops in order; of these the gray, blurred and solarized ones,
and the radii of the blurred ones. For each crop in order: flip, shift of the hue in sextants, and from
`BLENDS` on the three rows of `blend_factors`."""
COLUMNS = BLENDS + 9


def plan_colors(
    views: Sequence[ViewSpec], numbers: Sequence[Tensor], channels: int | None = None
) -> tuple[Tensor, ColorCounts]:
    """Decide on the host the flips and color changes of n crops.

    The crops get an order, by the number of changes before that of the hue. Most operations are then for
    consecutive crops.

    Args:
        views: Probabilities and strengths of groups of crops.
        numbers: Uniform numbers in [0, 1) of each group, [n of the group, NUMBERS + 1 or more]. The one after
            NUMBERS is for the flip. Without RGB the last 2 * channels are for brightness and contrast of each
            channel.
        channels: Number of channels that are not red, green and blue.

    Returns:
        Table [n, COLUMNS or more] for the device, and counts for the host.
    """
    groups = [_decide(*pair, channels) for pair in zip(views, numbers, strict=True)]
    jittered, grayed, blurred, solarized, flipped, orders, strengths, radii = map(
        torch.cat, zip(*groups, strict=True)
    )
    places = (orders == HUE).int().argmax(1)  # number of changes before that of the hue
    order = torch.where(jittered, places, -1).argsort(stable=True)
    sizes = torch.bincount(places[jittered], minlength=4).tolist()
    first = len(order) - sum(sizes)
    bounds = (first, first + sizes[0], first + sum(sizes[:2]), first + sum(sizes[:3]))
    table = torch.zeros(len(order), COLUMNS + 2 * (channels or 0))
    table[:, ORDER], table[:, FLIPPED] = order.float(), flipped[order].float()
    table[:, SHIFT] = 6 * strengths[order, HUE]
    table[:, BLENDS:COLUMNS] = blend_factors(orders[order], strengths[order]).flatten(1)
    table[:, COLUMNS:] = strengths[order, 4:]
    lists = [mask[order].nonzero()[:, 0] for mask in (grayed, blurred, solarized)]
    for column, rows in zip((GRAYED, BLURRED, SOLARIZED), lists, strict=True):
        table[: len(rows), column] = rows.float()
    table[: len(lists[1]), RADIUS] = radii[order][lists[1]]
    return table, ColorCounts(bounds, *map(len, lists))


def _decide(view: ViewSpec, numbers: Tensor, channels: int | None) -> tuple[Tensor, ...]:
    """Jitter, gray, blur, solarization and flip of each crop, order and strengths of the jitter, radius."""
    often = torch.tensor([view.jitter, view.gray, view.blur, view.solarize])
    spread, middle = torch.tensor(view.strengths), torch.tensor([1.0, 1.0, 1.0, 0.0])
    low, high = (middle - spread).maximum(middle - 1), middle + spread
    strengths = low + (high - low) * numbers[:, 4:8]
    if channels:
        own = low[:2, None] + (high - low)[:2, None] * numbers[:, -2 * channels :].unflatten(1, (2, -1))
        strengths = torch.cat([strengths, own.flatten(1)], dim=1)
    radii = view.radius[0] + (view.radius[1] - view.radius[0]) * numbers[:, 12]
    chosen = (numbers[:, :4] < often).unbind(1)
    return (*chosen, numbers[:, NUMBERS] < view.flip, numbers[:, 8:12].argsort(), strengths, radii)


def blend_factors(orders: Tensor, strengths: Tensor) -> Tensor:
    """Factors of pixel, luma and mean luma, for the three changes other than the hue; see `blend`.

    Args:
        orders: [n, 4], permutations of 0 to 3: brightness, contrast, saturation, hue.
        strengths: [n, 4 or more], by these numbers.

    Returns:
        [n, 3 changes in the crop's order, 3 factors].
    """
    kinds = orders[orders != HUE].view(-1, 3)
    factor = strengths.gather(1, kinds)
    of_luma, of_mean = ((kinds == kind) * (1 - factor) for kind in (2, 1))
    return torch.stack([factor, of_luma, of_mean], dim=-1)


def change_colors(crops: Tensor, table: Tensor, counts: ColorCounts, channels: int | None = None) -> Tensor:
    """Flip crops, change their colors, blur and solarize them; the host does not wait for the device.

    Args:
        crops: uint8 [n, channels, height, width], on any device.
        table, counts: As from `plan_colors`, the table on the device of the crops.
        channels: Number of channels that are not red, green and blue.

    Returns:
        uint8 [n, channels, height, width].
    """
    order, *lists = table[:, :RADIUS].long().unbind(1)
    grayed, blurred, solarized = (rows[:count] for rows, count in zip(lists, counts[1:], strict=True))
    pixels, flipped = crops[order], table[:, FLIPPED].bool().view(-1, 1, 1, 1)
    pixels = torch.where(flipped, pixels.flip(-1), pixels).float()
    if channels:
        jittered, factors = (
            pixels[counts.bounds[0] :],
            table[counts.bounds[0] :, COLUMNS : COLUMNS + 2 * channels],
        )
        jittered.copy_(jitter_channels(jittered, factors.unflatten(1, (2, -1))))
    else:
        jitter(pixels, table[:, BLENDS:COLUMNS].unflatten(1, (3, 3)), table[:, SHIFT], counts.bounds)
    if len(grayed):
        gray = pixels[grayed].mean(1, keepdim=True) if channels else luma(pixels[grayed])
        pixels[grayed] = gray.expand(-1, crops.shape[1], -1, -1)
    if len(blurred):
        pixels[blurred] = gaussian_blur(pixels[blurred], table[: counts.blurred, RADIUS])
    if len(solarized):
        pixels[solarized] = solarize(pixels[solarized])
    done = torch.empty(crops.shape, dtype=torch.uint8, device=crops.device)
    done[order] = pixels.round_().clamp_(0, 255).byte()
    return done


def jitter(pixels: Tensor, factors: Tensor, shifts: Tensor, bounds: tuple[int, int, int, int]) -> None:
    """Change brightness, contrast, saturation and hue in place, in each crop's own order.

    The crops are sorted by the number of changes before that of the hue.

    Args:
        pixels: [n, 3, height, width], 0 to 255.
        factors: As from `blend_factors`.
        shifts: Of the hue in sextants of the circle, [n].
        bounds: As in `ColorCounts`.
    """
    first, *starts = bounds
    for number, start in enumerate(starts):
        blend(pixels[start:], factors[start:, number])
    shift_hue(pixels[first:], shifts[first:])
    for number, end in enumerate(starts):
        blend(pixels[first:end], factors[first:end, number])


def jitter_channels(pixels: Tensor, factors: Tensor) -> Tensor:
    """Change brightness, then contrast of every channel by its own factor.

    Args:
        pixels: [n, channels, height, width], 0 to 255.
        factors: [n, 2, channels].
    """
    brighter = (pixels * factors[:, 0, :, None, None]).clamp_(0, 255)
    means = brighter.mean((2, 3), keepdim=True)
    return torch.lerp(means, brighter, factors[:, 1, :, None, None]).clamp_(0, 255)


def luma(pixels: Tensor) -> Tensor:
    """Luma: [n, 3, height, width] -> [n, 1, height, width]."""
    return (pixels * constant(LUMA, pixels.device).view(3, 1, 1)).sum(1, keepdim=True)


def blend(pixels: Tensor, factors: Tensor) -> None:
    """Add pixel, luma and the crop's mean luma, each with its own factor, in place.

    The factors (f, 0, 0) change brightness, (f, 1 - f, 0) saturation, and (f, 0, 1 - f) contrast.

    Args:
        pixels: [n, 3, height, width], 0 to 255.
        factors: [n, 3].
    """
    if len(pixels):
        of_pixel, of_luma, of_mean = factors.view(-1, 3, 1, 1, 1).unbind(1)
        gray = luma(pixels)
        base = torch.addcmul(gray.mean((2, 3), keepdim=True) * of_mean, gray, of_luma)
        torch.addcmul(base, pixels, of_pixel, out=pixels).clamp_(0, 255)


def shift_hue(pixels: Tensor, sextants: Tensor) -> None:
    """Shift the hue (HSV) by sextants of the circle [n], in place."""
    if not len(pixels):
        return
    value, most = pixels.max(1, keepdim=True)
    chroma = value - pixels.amin(1, keepdim=True)
    differences = pixels.roll(-1, 1) - pixels.roll(1, 1)  # of the two other channels
    hue = torch.add(differences.gather(1, most) / chroma.clamp(min=1e-6), most, alpha=2)  # red at 0
    own = constant((-3.0, -1.0, 1.0), pixels.device).view(3, 1, 1)  # half a circle from each channel
    distance = (hue + sextants.view(-1, 1, 1, 1) - own).remainder_(6).sub_(3).abs_().clamp_(1, 2)
    torch.addcmul(value + chroma, chroma, distance, value=-1, out=pixels)


def gaussian_blur(pixels: Tensor, radii: Tensor) -> Tensor:
    """Blur each crop with its own standard deviation in pixels [n], by a matrix product along each axis.

    At an edge the weights of missing pixels are left out; the remaining ones sum to one.
    """
    down, across = (_blur_matrices(radii, side) for side in pixels.shape[-2:])
    return down[:, None] @ (pixels.flatten(1, 2) @ across.mT).view_as(pixels)


def _blur_matrices(radii: Tensor, side: int) -> Tensor:
    """Gaussian weights between the pixels of a line: [n, side, side], rows sum to one."""
    places = torch.arange(side, device=radii.device)
    squares = (places[:, None] - places).square()
    return torch.softmax(-squares / (2 * radii.clamp(min=0.01).square()).view(-1, 1, 1), dim=-1)


def solarize(pixels: Tensor) -> Tensor:
    """Invert values of at least 128."""
    return torch.where(pixels >= 128, 255 - pixels, pixels)
