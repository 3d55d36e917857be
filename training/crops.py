"""Multi-crop augmentation (section 3.1; the details are the official code's, which follow BYOL).

A view is described by a `ViewSpec`; what is said in `CropConfig`, in few numbers and a name, becomes these.
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
from training.photometry import CHANCES, apply_photometry

Picture = Image.Image

TRIES = 10
"""Boxes drawn before the whole picture is taken, as torchvision does."""


class Crops(NamedTuple):
    """Views [views, batch, 3, G, G] and locals [crops, batch, 3, l, l]; of one picture: no batch axis."""

    views: Tensor
    locals: Tensor


class MultiCrop:
    """Cuts an RGB picture, with its margin, into views [V, 3, G, G] and local crops [L, 3, l, l], uint8.

    Randomness comes from torch's global generator.
    """

    def __init__(self, config: CropConfig) -> None:
        self.config = config
        self.views = [self._pipeline(view) for view in config.views]
        self.local = self._pipeline(config.locals)

    def _pipeline(self, view: ViewSpec) -> Callable[..., Tensor]:
        return partial(cut, view=view) if self.config.augment == "device" else crop(view)

    def __call__(self, picture: Picture | Tensor) -> Crops:
        """Cut one picture: of Pillow's for "workers", uint8 [3, height, width] for "device"."""
        picture = widen(picture, self.config.margin)
        views = torch.stack([view(picture) for view in self.views])
        locals_ = [self.local(picture) for _ in range(self.config.local_crops)]
        none = views.new_empty(0, 3, self.config.local_size, self.config.local_size)
        return Crops(views, torch.stack(locals_) if locals_ else none)

    def chances(self) -> Crops:
        """What flips and photometry of one picture's crops are drawn from: uniform [V, n] and [L, n]."""
        return Crops(*(torch.rand(many, CHANCES + 1) for many in (len(self.views), self.config.local_crops)))

    def finish(self, crops: Crops, chances: Crops) -> Crops:
        """Crops after flips and photometry, if these are batched; `chances` are numbers [crops, batch, n]."""
        if self.config.augment == "workers":
            return crops
        specifications = zip(self.config.views, *(crops.views, chances.views), strict=True)
        views = [finish(view, pixels, numbers) for view, pixels, numbers in specifications]
        locals_ = finish(self.config.locals, crops.locals.flatten(0, 1), chances.locals.flatten(0, 1))
        return Crops(torch.stack(views), locals_.view(crops.locals.shape))


def finish(view: ViewSpec, pixels: Tensor, chances: Tensor) -> Tensor:
    """Flip and photometry: uint8 [n, 3, height, width], numbers [n, CHANCES + 1] -> uint8."""
    mirrored = torch.where((chances[:, -1] < view.flip).view(-1, 1, 1, 1), pixels.flip(-1), pixels)
    return apply_photometry(view.photometry, mirrored, chances[:, :-1])


def widen(picture: Picture | Tensor, margin: float) -> Picture | Tensor:
    """A picture mirrored beyond each of its sides, by `margin` in [0, 1] of its width and height."""
    height, width = functional.get_size(picture)
    sides = [int(margin * width), int(margin * height)]  # left and right, top and bottom
    return functional.pad(picture, sides, padding_mode="symmetric") if any(sides) else picture


def normalise(crops: Crops, mean: Sequence[float], std: Sequence[float], device: torch.device) -> Crops:
    """uint8 crops as fp32 tensors on the device, (crop / 255 - mean) / std for each channel."""
    scale = torch.tensor(std, device=device).mul(255).reciprocal()[:, None, None]
    shift = torch.tensor(mean, device=device).div(torch.tensor(std, device=device))[:, None, None]
    return Crops(*(crop.to(device, non_blocking=True).float().mul_(scale).sub_(shift) for crop in crops))


def crop(view: ViewSpec) -> transforms.Compose:
    """The transform of a picture into a uint8 crop [3, size, size]."""
    photometry = view.photometry
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(view.size, view.scale, interpolation=InterpolationMode.BICUBIC),
            transforms.RandomHorizontalFlip(view.flip),
            *random_augment(view),
            transforms.RandomApply([transforms.ColorJitter(*photometry.strengths)], photometry.jitter),
            transforms.RandomGrayscale(photometry.grey),
            transforms.RandomApply([GaussianBlur(photometry.radius)], photometry.blur),
            transforms.RandomSolarize(threshold=128, p=photometry.solarise),
            transforms.PILToTensor(),
        ]
    )


def random_augment(view: ViewSpec) -> list[Callable[..., Any]]:
    """RandAugment with the view's number of operations; nothing where it has none."""
    operations = view.random_operations
    return [transforms.RandAugment(operations, magnitude=9)] if operations else []


def cut(picture: Tensor, view: ViewSpec) -> Tensor:
    """A random box of a picture uint8 [3, height, width], resized: uint8 [3, size, size].

    What torchvision's RandomResizedCrop does, with less around it.
    """
    height, width = picture.shape[-2:]
    left, top, right, bottom = random_box(width, height, view.scale, torch.rand(2 * TRIES + 2).tolist())
    box = picture[:, top:bottom, left:right]
    resized = functional.resize(box, [view.size, view.size], InterpolationMode.BICUBIC, antialias=True)
    for operation in random_augment(view):
        resized = operation(resized)
    return resized


def random_box(
    width: int, height: int, scale: tuple[float, float], chances: Sequence[float]
) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a box that covers a share `scale` of a picture, in pixels.

    Its sides stand to each other as 3 to 4 up to 4 to 3; the first of `TRIES` that fits is taken, else the
    whole picture as far as those sides allow. `chances` are 2 * TRIES + 2 uniform numbers in [0, 1).
    """
    low, high = math.log(3 / 4), math.log(4 / 3)
    for share, shape in zip(chances[:TRIES], chances[TRIES : 2 * TRIES], strict=True):
        area = (scale[0] + (scale[1] - scale[0]) * share) * width * height
        ratio = math.exp(low + (high - low) * shape)
        across, down = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < across <= width and 0 < down <= height:
            left = int(chances[2 * TRIES] * (width - across + 1))
            top = int(chances[2 * TRIES + 1] * (height - down + 1))
            return left, top, left + across, top + down
    across, down = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


class GaussianBlur(torch.nn.Module):
    """Gaussian blur with a radius drawn between two, in pixels."""

    def __init__(self, radius: tuple[float, float]) -> None:
        super().__init__()
        self.low, self.high = radius

    def forward(self, picture: Picture) -> Picture:
        """Blur one picture."""
        return picture.filter(
            ImageFilter.GaussianBlur(self.low + (self.high - self.low) * torch.rand(()).item())
        )
