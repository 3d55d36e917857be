"""Multi-crop augmentation (section 3.1; the details are the official code's, which follow BYOL).

`CropConfig.augment` divides the work. "workers" crops with Pillow. "batch" crops tensors in the workers and
changes colors of whole batches. With "device" workers only resize an image to a square canvas. On the device
every crop is a box of the canvas, resized by two matrix products with Pillow's antialiased bicubic weights.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import v2 as transforms
from torchvision.transforms.v2 import functional

from training.augmentation.crop_config import CropConfig, ViewSpec
from training.augmentation.photometry import NUMBERS, ColorCounts, change_colors, constant, plan_colors

TRIES = 10
"""Boxes drawn before the largest centered box is taken, as in torchvision."""
BOX_NUMBERS = 2 * TRIES + 2
"""Uniform random numbers for each box."""
LOG_RATIO = math.log(4 / 3)
"""Sides of a box have ratios from 3 : 4 to 4 : 3."""
FLIP, ASPECT, BOX = NUMBERS, NUMBERS + 1, NUMBERS + 2
"""Columns of the random numbers of a crop, after those of the photometry."""


class Crops(NamedTuple):
    """Views [views, batch, channels, G, G] and locals [crops, batch, channels, l, l]; of one image: no batch
    axis."""

    views: Tensor
    locals: Tensor


class AugmentPlan(NamedTuple):
    """Decisions about the crops of a batch. One table is copied to the device."""

    table: Tensor
    """Rows of all views, then of all local crops: the columns of `plan_colors`, then the box as from
    `random_boxes`."""
    views: ColorCounts
    locals: ColorCounts


class MultiCrop:
    """Multi-crop augmentation of an image, and of the batch that it becomes part of.

    A worker calls `__call__` and `random_params` for each image, and `plan` for a batch. `finish` is for the
    device that trains.

    Args:
        config: Sizes, numbers and color changes.
        channels: Number of channels of images that are not RGB. Brightness and contrast then change per
            channel. Saturation and hue do not change, and gray is the mean of the channels.
    """

    def __init__(self, config: CropConfig, channels: int | None = None) -> None:
        self.config, self.channels = config, channels
        self.tensors = config.augment in ("batch", "device")
        self.views = [self._pipeline(view) for view in config.views]
        self.local = self._pipeline(config.locals)

    def _pipeline(self, view: ViewSpec) -> Callable[..., Tensor]:
        return partial(cut, view=view) if self.tensors else crop(view)

    def __call__(self, image: Image.Image | Tensor) -> Crops:
        """Cut one image into views [V, channels, G, G] and local crops [L, channels, l, l], uint8.

        With `augment="device"` the only view is the resized image, [1, channels, canvas, canvas]. Randomness
        comes from torch's global generator.

        Args:
            image: Pillow image for "workers"; else uint8 [channels, height, width].
        """
        image = widen(image, self.config.margin)
        if self.config.augment == "device":
            sides = [self.config.canvas_size] * 2
            canvas = functional.resize(image, sides, InterpolationMode.BICUBIC, antialias=True)[None]
            return Crops(canvas, canvas[:0])
        views = torch.stack([view(image) for view in self.views])
        locals_ = [self.local(image) for _ in range(self.config.local_crops)]
        return Crops(views, torch.stack(locals_) if locals_ else views[:0])

    def random_params(self, image: Image.Image | Tensor) -> Crops:
        """Draw what `plan` needs for the crops of one image: [V, n] and [L, n].

        Uniform numbers for photometry and flip; for `augment="device"` also the aspect ratio and the box.
        """
        device = self.config.augment == "device"
        counts = (len(self.views), self.config.local_crops)
        width = (BOX + BOX_NUMBERS if device else FLIP + 1) + 2 * (self.channels or 0)
        numbers = Crops(*(torch.rand(count, width) for count in counts))
        if device:
            height, width = functional.get_size(image)
            for group in numbers:
                group[:, ASPECT] = height / width
        return numbers

    def plan(self, params: Crops) -> AugmentPlan | None:
        """Decide on the host what `finish` does with a batch; None: nothing.

        Args:
            params: As from `random_params`, with a batch axis: [crops, batch, n].
        """
        config = self.config
        if not self.tensors:
            return None
        views, counts = plan_colors(config.views, list(params.views), self.channels)
        numbers = params.locals.flatten(0, 1)
        locals_, local_counts = plan_colors([config.locals], [numbers], self.channels)
        table = torch.cat([views, locals_])
        if config.augment == "device":
            drawn = ((params.views.flatten(0, 1), config.global_scale), (numbers, config.local_scale))
            boxes = [random_boxes(n[:, BOX : BOX + BOX_NUMBERS], n[:, ASPECT], scale) for n, scale in drawn]
            table = torch.cat([table, torch.cat(boxes)], dim=1)
        return AugmentPlan(table, counts, local_counts)

    def finish(self, crops: Crops, plan: AugmentPlan | None) -> Crops:
        """Finish the augmentation of a batch on its device.

        Args:
            crops: uint8, as from `__call__` with a batch axis after the first.
            plan: From `plan`, on the host.

        Returns:
            uint8 views [V, batch, channels, G, G] and local crops [L, batch, channels, l, l].
        """
        if plan is None:
            return crops
        config, (_, batch, *_) = self.config, crops.views.shape
        table = plan.table.to(crops.views.device, non_blocking=True)
        tables = Crops(*table.tensor_split((len(config.views) * batch,)))
        if config.augment == "device":
            canvas, sizes = crops.views[0].float(), (config.global_size, config.local_size)
            boxes = [part[:, -4:].unflatten(0, (-1, batch)) for part in tables]
            crops = Crops(*(resized_crops(canvas, *pair) for pair in zip(boxes, sizes, strict=True)))
        done = [
            change_colors(group.flatten(0, 1), part, counts, self.channels).view(group.shape)
            for group, part, counts in zip(crops, tables, (plan.views, plan.locals), strict=True)
        ]
        return Crops(*done)


def widen(image: Image.Image | Tensor, margin: float) -> Image.Image | Tensor:
    """Mirror an image beyond each of its sides, by `margin` in [0, 1] of its width and height."""
    height, width = functional.get_size(image)
    sides = [int(margin * width), int(margin * height)]  # left and right, top and bottom
    return functional.pad(image, sides, padding_mode="symmetric") if any(sides) else image


def normalize(crops: Crops, mean: Sequence[float], std: Sequence[float], device: torch.device) -> Crops:
    """Convert uint8 crops to fp32 tensors on the device, (crop / 255 - mean) / std for each channel."""
    means, stds = constant(tuple(mean), device), constant(tuple(std), device)
    scale, shift = stds.mul(255).reciprocal()[:, None, None], means.div(stds)[:, None, None]
    return Crops(*(crop.to(device, non_blocking=True).float().mul_(scale).sub_(shift) for crop in crops))


def crop(view: ViewSpec) -> transforms.Compose:
    """Transform of a Pillow image into a uint8 crop [3, size, size]."""
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(view.size, view.scale, interpolation=InterpolationMode.BICUBIC),
            transforms.RandomHorizontalFlip(view.flip),
            *_random_augment(view),
            transforms.RandomApply([transforms.ColorJitter(*view.strengths)], view.jitter),
            transforms.RandomGrayscale(view.gray),
            transforms.RandomApply([transforms.Lambda(partial(_blur, radius=view.radius))], view.blur),
            transforms.RandomSolarize(threshold=128, p=view.solarize),
            transforms.PILToTensor(),
        ]
    )


def _random_augment(view: ViewSpec) -> list[Callable[..., Any]]:
    return [transforms.RandAugment(2, magnitude=9)] if view.randaugment else []


def _blur(image: Image.Image, radius: tuple[float, float]) -> Image.Image:
    drawn = radius[0] + (radius[1] - radius[0]) * torch.rand(()).item()
    return image.filter(ImageFilter.GaussianBlur(drawn))


def cut(image: Tensor, view: ViewSpec) -> Tensor:
    """Resize a random box of an image: uint8 [channels, height, width] -> [channels, size, size].

    As torchvision's RandomResizedCrop, with less overhead.
    """
    height, width = image.shape[-2:]
    left, top, right, bottom = random_box(width, height, view.scale, torch.rand(BOX_NUMBERS).tolist())
    box = image[:, top:bottom, left:right]
    resized = functional.resize(box, [view.size, view.size], InterpolationMode.BICUBIC, antialias=True)
    for operation in _random_augment(view):
        resized = operation(resized)
    return resized


def random_box(
    width: int, height: int, scale: tuple[float, float], numbers: Sequence[float]
) -> tuple[int, int, int, int]:
    """Left, top, right and bottom in pixels of a box that covers a share `scale` of an image.

    Of `TRIES` boxes the first that fits is taken, else the largest centered one. `numbers` are `BOX_NUMBERS`
    uniform numbers in [0, 1).
    """
    for share, shape in zip(numbers[:TRIES], numbers[TRIES : 2 * TRIES], strict=True):
        area = (scale[0] + (scale[1] - scale[0]) * share) * width * height
        ratio = math.exp(math.log(3 / 4) + (LOG_RATIO - math.log(3 / 4)) * shape)
        across, down = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < across <= width and 0 < down <= height:
            left = int(numbers[2 * TRIES] * (width - across + 1))
            top = int(numbers[2 * TRIES + 1] * (height - down + 1))
            return left, top, left + across, top + down
    across, down = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


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
    accepted, place = first < TRIES, first.clamp(max=TRIES - 1)
    width = torch.where(accepted, widths.gather(1, place), (aspect * 4 / 3).clamp(max=1))
    height = torch.where(accepted, heights.gather(1, place), (4 / 3 / aspect).clamp(max=1))
    shift = torch.where(accepted, numbers[:, -2:], 0.5)
    return torch.cat([shift[:, :1] * (1 - width), shift[:, 1:] * (1 - height), width, height], dim=1)


def resize_weights(start: Tensor, length: Tensor, pixels: int, size: int) -> Tensor:
    """Weights that resize a segment of a line, antialiased bicubic as in Pillow.

    Args:
        start, length: Of the segments in pixels, [...].
        pixels: Length of the line.
        size: Length of the result.

    Returns:
        [..., size, pixels]; rows sum to 1, pixels outside of the segment have weight 0.
    """
    start, length = start[..., None, None], length[..., None, None]
    scale = length / size
    support = scale.clamp(min=1)
    outputs = torch.arange(size, device=start.device) + 0.5
    center = start + outputs[:, None] * scale  # [..., size, 1]
    taps = math.ceil(4 * max(pixels / size, 1)) + 1  # the others are 0
    places = (center - 2 * support).floor() + torch.arange(taps, device=start.device)
    inputs = places + 0.5
    distance = (inputs - center).abs() / support
    near = (1.5 * distance - 2.5) * distance.square() + 1  # Catmull-Rom kernel, a = -0.5
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    kernel = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    weights = torch.where((inputs > start) & (inputs < start + length), kernel, 0.0)
    weights = weights / weights.sum(-1, keepdim=True)
    dense = weights.new_zeros(*weights.shape[:-1], pixels)
    return dense.scatter_add_(-1, places.long().clamp_(0, pixels - 1), weights)


def resized_crops(canvas: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Cut boxes out of each image and resize them.

    Args:
        canvas: [batch, channels, side, side], fp32, 0 to 255.
        boxes: From `random_boxes`, [crops, batch, 4].
        size: Side of the crops.

    Returns:
        uint8 [crops, batch, channels, size, size].
    """
    batch, channels, side, _ = canvas.shape
    left, top, width, height = (boxes * side).transpose(0, 1).unbind(-1)
    starts, lengths = torch.stack([left, top]), torch.stack([width, height])
    across, down = resize_weights(starts, lengths, side, size)  # [batch, crops, size, side] each
    narrow = canvas.flatten(1, 2) @ across.flatten(1, 2).mT  # all crops of an image at once
    narrow = narrow.view(batch, channels, side, -1, size).permute(0, 3, 2, 1, 4)
    crops = down @ narrow.flatten(3)  # [batch, crops, size, channels * size]
    crops = crops.unflatten(-1, (channels, size)).permute(1, 0, 3, 2, 4)
    return crops.round_().clamp_(0, 255).byte()
