"""Multi-crop augmentation (section 3.1; the details are the official code's, which follow BYOL).

`CropConfig.augment` divides the work. "workers" crops with Pillow. "batch" crops tensors in the workers and
changes colors of whole batches. With "device" workers only resize an image to a square canvas. On the device
every crop is a box of the canvas, resized by two matrix products with Pillow's antialiased bicubic weights.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import v2 as transforms
from torchvision.transforms.v2 import functional

from training.augmentation.crop_config import CropConfig, ViewSpec
from training.augmentation.photometry import (
    NUMBERS,
    ColorCounts,
    change_colors,
    constant,
    pixel_dtype,
    plan_colors,
)

TRIES = 10
"""Boxes drawn before the largest centered box is taken, as in torchvision."""
BOX_NUMBERS = 2 * TRIES + 2
"""Uniform random numbers for each box."""
LOG_RATIO = math.log(4 / 3)
"""Sides of a box have ratios from 3 : 4 to 4 : 3."""
BOX = NUMBERS + 2
"""First column of the numbers of the box; those before are for photometry and flip. One is not used."""
KERNEL_STEPS = 2**14
"""Values of the bicubic kernel from 0 to 2 in `resize_weights`."""


class Crops(NamedTuple):
    """Views [views, batch, channels, G, G] and locals [crops, batch, channels, l, l]; of one image: no batch
    axis."""

    views: Tensor
    locals: Tensor


class AugmentPlan(NamedTuple):
    """Decisions about the crops of a batch. One table is copied to the device."""

    table: Tensor
    """Rows of all views, then of all local crops: the columns of `plan_colors`, and for `augment="device"`
    left, top, right and bottom of the box as shares of the image."""
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
            side = self.config.canvas_size
            canvas = functional.resize(image, [side, side], InterpolationMode.BICUBIC, antialias=True)[None]
            return Crops(canvas, canvas[:0])
        views = torch.stack([view(image) for view in self.views])
        locals_ = [self.local(image) for _ in range(self.config.local_crops)]
        return Crops(views, torch.stack(locals_) if locals_ else views[:0])

    def random_params(self, image: Image.Image | Tensor) -> Crops:
        """Draw what `plan` needs for the crops of one image: [V, n] and [L, n].

        Uniform numbers for photometry and flip; for `augment="device"` also the box.
        """
        config, own = self.config, 2 * (self.channels or 0)
        counts = (len(self.views), config.local_crops)
        if config.augment != "device":
            return Crops(*(torch.rand(count, NUMBERS + 1 + own) for count in counts))
        height, width = functional.get_size(image)
        groups, sides = [], torch.tensor([width, height, width, height])
        for count, scale in zip(counts, (config.global_scale, config.local_scale), strict=True):
            drawn = torch.rand(count, BOX + BOX_NUMBERS + own)
            rows = drawn[:, BOX : BOX + BOX_NUMBERS].tolist()
            boxes = [random_box(width, height, scale, row, whole=False) for row in rows]
            shares = torch.tensor(boxes).view(-1, 4) / sides
            groups.append(torch.cat([drawn[:, : NUMBERS + 1], drawn[:, BOX + BOX_NUMBERS :], shares], dim=1))
        return Crops(*groups)

    def plan(self, params: Crops) -> AugmentPlan | None:
        """Decide on the host what `finish` does with a batch; None: nothing.

        Args:
            params: As from `random_params`, with a batch axis: [crops, batch, n].
        """
        config = self.config
        if not self.tensors:
            return None
        width = NUMBERS + 1 + 2 * (self.channels or 0)
        views, counts = plan_colors(config.views, list(params.views[..., :width]), self.channels)
        numbers = params.locals[..., :width].flatten(0, 1)
        locals_, local_counts = plan_colors([config.locals], [numbers], self.channels)
        boxes = torch.cat([group[..., width:].flatten(0, 1) for group in params])
        return AugmentPlan(torch.cat([torch.cat([views, locals_]), boxes], dim=1), counts, local_counts)

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
        tables = table.tensor_split((len(config.views) * batch,))
        if config.augment == "device":
            tables, boxes = tuple(part[:, :-4] for part in tables), table[:, -4:]
            canvas = crops.views[0].to(pixel_dtype(table.device))
            counts, sizes = (len(config.views), config.local_crops), (config.global_size, config.local_size)
            crops = Crops(*resized_crops(canvas, boxes, counts, sizes))
        done = [
            change_colors(group.flatten(0, 1), part, counts).view(group.shape)
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
    scale, shift = stds.mul(255).reciprocal()[:, None, None], means.div(stds).neg()[:, None, None]
    return Crops(*(torch.addcmul(shift, crop.to(device, non_blocking=True), scale) for crop in crops))


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
    drawn = random_box(width, height, view.scale, torch.rand(BOX_NUMBERS).tolist())
    left, top, right, bottom = map(int, drawn)
    box = image[:, top:bottom, left:right]
    resized = functional.resize(box, [view.size, view.size], InterpolationMode.BICUBIC, antialias=True)
    for operation in _random_augment(view):
        resized = operation(resized)
    return resized


def random_box(
    width: int, height: int, scale: tuple[float, float], numbers: Sequence[float], *, whole: bool = True
) -> tuple[float, float, float, float]:
    """Left, top, right and bottom in pixels of a box that covers a share `scale` of an image.

    Of `TRIES` boxes the first that fits is taken, else the largest centered one. `numbers` are `BOX_NUMBERS`
    uniform numbers in [0, 1). With `whole` the edges are at whole pixels.
    """
    pixels: Callable[[float], float] = round if whole else float
    for share, shape in zip(numbers[:TRIES], numbers[TRIES : 2 * TRIES], strict=True):
        area = (scale[0] + (scale[1] - scale[0]) * share) * width * height
        ratio = math.exp(LOG_RATIO * (2 * shape - 1))
        across, down = pixels((area * ratio) ** 0.5), pixels((area / ratio) ** 0.5)
        if 0 < across <= width and 0 < down <= height:
            starts = (
                numbers[2 * TRIES] * (width - across + whole),
                numbers[2 * TRIES + 1] * (height - down + whole),
            )
            break
    else:
        across, down = min(width, pixels(height * 4 / 3)), min(height, pixels(width * 4 / 3))
        starts = (width - across) / 2, (height - down) / 2
    left, top = map(math.floor, starts) if whole else starts
    return left, top, left + across, top + down


@cache
def bicubic_kernel(device: torch.device) -> Tensor:
    """Catmull-Rom kernel (a = -0.5) at `KERNEL_STEPS` + 1 distances from 0 to 2 pixels."""
    d = torch.linspace(0, 2, KERNEL_STEPS + 1, dtype=torch.float64)
    near, far = (1.5 * d - 2.5) * d.square() + 1, ((-0.5 * d + 2.5) * d - 4) * d + 2
    return torch.where(d < 1, near, far).float().to(device)


@cache
def output_rows(
    batch: int, counts: tuple[int, ...], sizes: tuple[int, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Describe the rows of the weights that resize groups of crops, each group [2 axes, batch, crops, size].

    Returns:
        Number of each row's segment, int64 [rows]; size, and center of the output, [rows, 2].
    """
    numbers, outputs, first = [], [], 0
    for count, size in zip(counts, sizes, strict=True):
        boxes = torch.arange(first, first + 2 * count * batch).view(count, batch, 2).permute(2, 1, 0)
        numbers.append(boxes[..., None].expand(2, batch, count, size).flatten())
        centers = (torch.arange(size) + 0.5).repeat(boxes.numel())
        outputs.append(torch.stack([torch.full_like(centers, size), centers], dim=1))
        first += boxes.numel()
    return torch.cat(numbers).to(device), torch.cat(outputs).to(device)


def resize_weights(
    segments: Tensor, outputs: Tensor, pixels: int, smallest: int, dtype: torch.dtype
) -> Tensor:
    """Weights that resize segments of a line, antialiased bicubic as in Pillow.

    Args:
        segments: Start and end in pixels, [rows, 2].
        outputs: Number of outputs of the segment, and center of the output among them, [rows, 2].
        pixels: Length of the line.
        smallest: Smallest number of outputs.
        dtype: Of the weights.

    Returns:
        [rows, pixels]; rows sum to 1, pixels outside of the segment have weight 0.
    """
    start, end = segments.split(1, dim=1)
    size, center = outputs.split(1, dim=1)
    scale = (end - start) / size
    support, center = scale.clamp(min=1), torch.addcmul(start, center, scale)
    taps = math.ceil(4 * max(pixels / smallest, 1)) + 1  # the others are 0
    inputs = torch.sub(center, support, alpha=2).floor_() + constant(
        tuple(i + 0.5 for i in range(taps)), start.device
    )
    places = ((inputs - center).abs_() * (KERNEL_STEPS / 2 / support)).round_().clamp_(max=KERNEL_STEPS)
    weights = bicubic_kernel(start.device)[places.int()] * ((inputs > start) & (inputs < end))
    weights = (weights / weights.sum(-1, keepdim=True)).to(dtype)
    dense = weights.new_zeros(len(weights), pixels)
    return dense.scatter_add_(-1, inputs.long().clamp_(0, pixels - 1), weights)


def resized_crops(
    canvas: Tensor, boxes: Tensor, counts: tuple[int, ...], sizes: tuple[int, ...]
) -> list[Tensor]:
    """Cut boxes out of each image and resize them, in groups of one size.

    Args:
        canvas: [batch, channels, side, side], 0 to 255.
        boxes: Left, top, right and bottom as shares of the side, [all crops * batch, 4].
        counts: Number of crops of each group.
        sizes: Side of the crops of each group.

    Returns:
        uint8 [crops, batch, channels, size, size] for each group.
    """
    batch, channels, side, _ = canvas.shape
    numbers, outputs = output_rows(batch, counts, sizes, canvas.device)
    segments = (boxes.unflatten(1, (2, 2)).transpose(1, 2) * side).flatten(0, 1)[numbers]
    dense = resize_weights(segments, outputs, side, min(sizes), canvas.dtype)
    rows, results = canvas.transpose(1, 2).flatten(2), []  # [batch, side, channels * side]
    parts = dense.split([2 * batch * many * size for many, size in zip(counts, sizes, strict=True)])
    for part, count, size in zip(parts, counts, sizes, strict=True):
        across, down = part.view(2, batch, count, size, side)
        low = (down.flatten(1, 2) @ rows).view(batch, count, size * channels, side)
        crops = (low @ across.mT).view(batch, count, size, channels, size).permute(1, 0, 3, 2, 4)
        results.append(crops.round_().clamp_(0, 255).to(torch.uint8, memory_format=torch.contiguous_format))
    return results
