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

from training.crop_config import CropConfig, ViewSpec
from training.photometry import NUMBERS, apply_photometry, constant

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


class MultiCrop:
    """Multi-crop augmentation of an image, and of the batch that it becomes part of.

    A worker calls `__call__` for each image and `finish` for a batch.

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
        if self.config.augment == "device":
            assert isinstance(image, Tensor)
            canvas = self.to_canvas(image)[None]
            return Crops(canvas, canvas[:0])
        image = widen(image, self.config.margin)
        views = torch.stack([view(image) for view in self.views])
        locals_ = [self.local(image) for _ in range(self.config.local_crops)]
        return Crops(views, torch.stack(locals_) if locals_ else views[:0])

    def to_canvas(self, image: Tensor) -> Tensor:
        """Resize an image and its margin: uint8 [channels, height, width] -> [channels, canvas, canvas]."""
        wide, sides = widen(image, self.config.margin), [self.config.canvas_size] * 2
        resized: Tensor = functional.resize(wide, sides, InterpolationMode.BICUBIC, antialias=True)
        return resized

    def random_params(self, image: Image.Image | Tensor) -> Crops:
        """Draw what `finish` needs for the crops of one image: [V, n] and [L, n].

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

    def finish(self, crops: Crops, params: Crops) -> Crops:
        """Finish the augmentation of a batch on its device.

        Args:
            crops: uint8, as from `__call__` with a batch axis after the first.
            params: As from `random_params`, [crops, batch, n], on the host.

        Returns:
            uint8 views [V, batch, channels, G, G] and local crops [L, batch, channels, l, l].
        """
        config = self.config
        if not self.tensors:
            return crops
        if config.augment == "device":
            canvas = crops.views[0].float()
            locals_ = [config.locals] * config.local_crops
            crops = Crops(
                _cut_all(canvas, config.views, params.views), _cut_all(canvas, locals_, params.locals)
            )
        groups, channels = zip(config.views, *(crops.views, params.views), strict=True), self.channels
        views = torch.stack([finish(view, pixels, numbers, channels) for view, pixels, numbers in groups])
        if not config.local_crops:
            return Crops(views, crops.locals)
        finished = finish(config.locals, crops.locals.flatten(0, 1), params.locals.flatten(0, 1), channels)
        return Crops(views, finished.view(crops.locals.shape))


def _cut_all(canvas: Tensor, views: Sequence[ViewSpec], params: Tensor) -> Tensor:
    """Cut crops of one size out of canvases [batch, C, side, side]: [crops, batch, C, size, size]."""
    cuts = []
    for view, numbers in zip(views, params, strict=True):
        boxes = random_boxes(numbers[:, BOX : BOX + BOX_NUMBERS], numbers[:, ASPECT], view.scale)
        cuts.append(resized_crops(canvas, boxes.to(canvas.device, non_blocking=True), view.size))
    return torch.stack(cuts) if cuts else canvas.new_empty(0, *canvas.shape[:2], 1, 1)


def finish(view: ViewSpec, pixels: Tensor, params: Tensor, channels: int | None = None) -> Tensor:
    """Flip crops uint8 [n, channels, height, width] and apply photometry, by numbers [n, FLIP + 1 or more].

    Of `channels` that are not RGB, the last 2 * channels numbers are for their brightness and contrast.
    """
    flipped = (params[:, FLIP] < view.flip).to(pixels.device, non_blocking=True)
    mirrored = torch.where(flipped.view(-1, 1, 1, 1), pixels.flip(-1), pixels)
    of_channels = params[:, -2 * channels :] if channels else None
    return apply_photometry(view, mirrored, params[:, :NUMBERS], of_channels)


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
    near = (1.5 * distance - 2.5) * distance.square() + 1  # Catmull-Rom kernel, a = -0.5
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    kernel = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    weights = torch.where((inputs > start) & (inputs < start + length), kernel, 0.0)
    return weights / weights.sum(-1, keepdim=True)


def resized_crops(canvas: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Cut one box out of each image and resize it.

    Args:
        canvas: [n, channels, side, side], fp32, 0 to 255.
        boxes: From `random_boxes`, [n, 4].
        size: Side of the crops.

    Returns:
        uint8 [n, channels, size, size].
    """
    side = canvas.shape[-1]
    left, top, width, height = (boxes * side).unbind(1)
    across, down = resize_weights(left, width, side, size), resize_weights(top, height, side, size)
    crops = down[:, None] @ (canvas @ across.mT[:, None])
    return crops.round_().clamp_(0, 255).byte()
