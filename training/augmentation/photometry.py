"""Color changes, blur and solarization of a batch of crops, as tensors.

All random numbers are arguments: the same numbers give the same crop in any batch. Unlike Pillow, nothing is
rounded before the end, and the blur is an exact Gaussian. CUDA devices compute in fp16: at most 1 of 255 from
fp32 for at least 99.9 % of the values.
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
def constant(values: tuple[float, ...], device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a constant [n] on a device; it is copied there once, since a copy may wait for the device."""
    return torch.tensor(values, device=device, dtype=dtype)


@cache
def squared_distances(side: int, device: torch.device) -> Tensor:
    """Squared distances between the pixels of a line: [side, side]."""
    places = torch.arange(side)
    return (places[:, None] - places).square().float().to(device)


def pixel_dtype(device: torch.device) -> torch.dtype:
    """Type of values from 0 to 255 while they are changed on a device."""
    return torch.float16 if device.type == "cuda" else torch.float32


class ColorCounts(NamedTuple):
    """Numbers of crops that change, by which the host chooses the operations."""

    bounds: tuple[int, int, int, int]
    """First crop in order that is jittered, and those with more than 0, 1 and 2 changes before the hue."""
    grayed: int
    blurred: int
    solarized: int


ORDER, GRAYED, BLURRED, SOLARIZED, BLUR, FLIPPED, SHIFT, BLENDS = range(8)
"""Columns of the table of changes. Lists: the crops in order; of these the gray, blurred and solarized ones,
and `blur_exponents` of the blurred ones. For each crop in order: flip, shift of the hue in sextants, and from
`BLENDS` on `blend_matrices`, flat."""


def color_columns(channels: int | None) -> int:
    """Number of columns of the table of changes."""
    return BLENDS + (3 * 2 * 3**2 if channels is None else 2 * 2 * channels**2)


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
        channels: Number of channels that are not red, green and blue: brightness, then contrast change.

    Returns:
        Table [n, `color_columns`] for the device, and counts for the host.
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
    table = torch.zeros(len(order), color_columns(channels))
    table[:, ORDER], table[:, FLIPPED] = order.float(), flipped[order].float()
    table[:, SHIFT] = 6 * strengths[order, HUE].flatten(1)[:, 0]
    table[:, BLENDS:] = blend_matrices(orders[order], strengths[order], channels is None).flatten(1)
    lists = [mask[order].nonzero()[:, 0] for mask in (grayed, blurred, solarized)]
    for column, rows in zip((GRAYED, BLURRED, SOLARIZED), lists, strict=True):
        table[: len(rows), column] = rows.float()
    table[: len(lists[1]), BLUR] = blur_exponents(radii[order][lists[1]])
    return table, ColorCounts(bounds, *map(len, lists))


def _decide(view: ViewSpec, numbers: Tensor, channels: int | None) -> tuple[Tensor, ...]:
    """Jitter, gray, blur, solarization and flip of each crop, order and strengths of the jitter, radius.

    Strengths are [n, 4 changes, channels]; those of RGB are equal for all channels.
    """
    often = torch.tensor([view.jitter, view.gray, view.blur, view.solarize])
    spread, middle = torch.tensor(view.strengths)[:, None], torch.tensor([[1.0], [1.0], [1.0], [0.0]])
    low, high = (middle - spread).maximum(middle - 1), middle + spread
    drawn, orders = numbers[:, 4:8, None].expand(-1, -1, channels or 3), numbers[:, 8:12].argsort()
    if channels:  # brightness and contrast, in this order, by their own numbers
        drawn = torch.cat([numbers[:, -2 * channels :].unflatten(1, (2, -1)), drawn[:, 2:]], dim=1)
        orders = torch.arange(4).expand_as(orders)
    radii = view.radius[0] + (view.radius[1] - view.radius[0]) * numbers[:, 12]
    chosen = (numbers[:, :4] < often).unbind(1)
    return (*chosen, numbers[:, NUMBERS] < view.flip, orders, low + (high - low) * drawn, radii)


def blend_matrices(orders: Tensor, strengths: Tensor, is_rgb: bool) -> Tensor:
    """Matrices for `apply_matrices` of the changes other than the hue, in each crop's order.

    Let f be a factor. Brightness is f p, contrast f p + (1 - f) luma of the mean, saturation f p + (1 - f)
    luma of p. Without RGB, the contrast is of each channel, and there is no saturation.

    Args:
        orders: [n, 4], permutations of 0 to 3: brightness, contrast, saturation, hue.
        strengths: [n, 4, channels], by these numbers.
        is_rgb: Channels are red, green and blue.

    Returns:
        [n, changes in the crop's order, channels, 2 * channels].
    """
    kinds = orders[orders != HUE].view(-1, 3)[:, : 3 if is_rgb else 2]
    factor = strengths.take_along_dim(kinds[..., None], dim=1)
    gray = torch.tensor(LUMA).expand(3, 3) if is_rgb else torch.eye(strengths.shape[-1])
    of_luma, of_mean = ((kinds == kind)[..., None] * (1 - factor) for kind in (2, 1))
    own = torch.diag_embed(factor) + of_luma[..., None] * gray
    return torch.cat([own, of_mean[..., None] * gray], dim=-1)


def change_colors(
    crops: Tensor, table: Tensor, counts: ColorCounts, dtype: torch.dtype | None = None
) -> Tensor:
    """Flip crops, change their colors, blur and solarize them; the host does not wait for the device.

    Args:
        crops: uint8 [n, channels, height, width], on any device.
        table, counts: As from `plan_colors`, the table on the device of the crops.
        dtype: Of the computation; None: `pixel_dtype`.

    Returns:
        uint8 [n, channels, height, width].
    """
    dtype = dtype or pixel_dtype(crops.device)
    order, *lists = table[:, :BLUR].long().unbind(1)
    grayed, blurred, solarized = (rows[:count] for rows, count in zip(lists, counts[1:], strict=True))
    pixels, flipped = crops[order], table[:, FLIPPED].bool().view(-1, 1, 1, 1)
    pixels = torch.where(flipped, pixels.flip(-1), pixels).to(dtype)
    channels, (first, *starts) = crops.shape[1], counts.bounds
    matrices = table[:, BLENDS:].to(dtype).unflatten(1, (-1, channels, 2 * channels)).unbind(1)
    is_rgb = len(matrices) == 3  # other channels have no saturation
    for matrix, start in zip(matrices, starts, strict=False):
        apply_matrices(pixels[start:], matrix[start:])
    if is_rgb:
        shift_hue(pixels[first:], table[first:, SHIFT])
    for matrix, end in zip(matrices, starts, strict=False):
        apply_matrices(pixels[first:end], matrix[first:end])
    if len(grayed):
        weights = LUMA if is_rgb else (1 / channels,) * channels
        pixels[grayed] = weighted_mean(pixels[grayed], weights).expand(-1, channels, -1, -1)
    if len(blurred):
        pixels[blurred] = gaussian_blur(pixels[blurred], table[: counts.blurred, BLUR])
    if len(solarized):
        pixels[solarized] = solarize(pixels[solarized])
    done = torch.empty_like(crops)
    done[order] = pixels.round_().byte()
    return done


def weighted_mean(pixels: Tensor, weights: tuple[float, ...] = LUMA) -> Tensor:
    """Weighted mean of the channels, by default the luma: [n, C, height, width] -> [n, 1, height, width]."""
    row = constant(weights, pixels.device, pixels.dtype)
    return (row @ pixels.flatten(2)).view(-1, 1, *pixels.shape[2:])


def apply_matrices(pixels: Tensor, matrices: Tensor) -> None:
    """Replace each pixel by a linear function of itself and of the crop's mean pixel, cut off to 0 and 255.

    Args:
        pixels: [n, channels, height, width], 0 to 255, changed in place.
        matrices: Of the pixel, then of the mean: [n, channels, 2 * channels].
    """
    if len(pixels):
        flat, (own, of_mean) = pixels.flatten(2), matrices.chunk(2, dim=-1)
        mean = flat.mean(2, keepdim=True)
        torch.clamp(torch.baddbmm(of_mean @ mean, own, flat), 0, 255, out=flat)


def shift_hue(pixels: Tensor, sextants: Tensor) -> None:
    """Shift the hue (HSV) by sextants of the circle [n], in place."""
    if not len(pixels):
        return
    value, most = pixels.max(1, keepdim=True)
    chroma = value - pixels.amin(1, keepdim=True)
    others = constant((0, 1, -1, -1, 0, 1, 1, -1, 0), pixels.device, pixels.dtype).view(3, 3)
    differences = (others @ pixels.flatten(2)).view_as(pixels)  # of the two other channels
    ratio = differences.gather(1, most) / chroma.clamp(min=1e-6)
    hue = torch.add(ratio.float(), most, alpha=2)  # red at 0; fp16 is too coarse for it
    own = constant((-3.0, -1.0, 1.0), pixels.device).view(3, 1, 1)  # half a circle from each channel
    turned = (hue + (sextants.view(-1, 1, 1, 1) - own)).remainder_(6).sub_(3).to(pixels.dtype)
    torch.addcmul(value + chroma, chroma, turned.abs_().clamp_(1, 2), value=-1, out=pixels)


def blur_exponents(radii: Tensor) -> Tensor:
    """Factor of the squared distance in the exponent of a Gaussian; radii below 0.01 count as 0.01."""
    return -0.5 / radii.clamp(min=0.01).square()


def gaussian_blur(pixels: Tensor, exponents: Tensor) -> Tensor:
    """Blur each crop with its own standard deviation, by a matrix product along each axis.

    At an edge the weights of missing pixels are left out; the remaining ones sum to one.

    Args:
        pixels: [n, channels, side, side].
        exponents: From `blur_exponents`, [n].
    """
    squares = squared_distances(pixels.shape[-1], pixels.device)
    weights = torch.softmax(squares * exponents.view(-1, 1, 1), dim=-1).to(pixels.dtype)  # [n, side, side]
    return weights[:, None] @ (pixels.flatten(1, 2) @ weights.mT).view_as(pixels)


def solarize(pixels: Tensor) -> Tensor:
    """Invert values of at least 128."""
    return torch.where(pixels >= 128, 255 - pixels, pixels)
