"""Multi-crop augmentation (section 3.1; the details are the official code's, which follow BYOL)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import v2 as transforms

Picture = Image.Image


@dataclass(frozen=True)
class CropConfig:
    """Sizes, numbers and scales of the crops; the defaults are the official code's."""

    global_size: int = 224
    """Side of the two global crops in pixels."""
    local_size: int = 96
    """Side of the local crops in pixels."""
    local_crops: int = 8
    """Number of local crops, 0 for none."""
    global_scale: tuple[float, float] = (0.4, 1.0)
    """Share of the picture's area that a global crop covers, from and to."""
    local_scale: tuple[float, float] = (0.05, 0.4)
    """Share of the picture's area that a local crop covers, from and to."""
    blur: tuple[float, float] = (0.1, 2.0)
    """Radius of the Gaussian blur in pixels of a crop, from and to."""
    margin: float = 0.0
    """Mirrored beyond every side before a picture is cut, as a share of it: smaller objects, more ground."""


class Crops(NamedTuple):
    """Views [2, batch, 3, G, G] and local crops [crops, batch, 3, l, l]; of one picture: no batch axis."""

    views: Tensor
    locals: Tensor


def check(config: CropConfig, patch_size: int = 1) -> None:
    """Raise ValueError for crops that cannot be, naming the setting."""
    for name, (low, high) in (("global_scale", config.global_scale), ("local_scale", config.local_scale)):
        if not 0 < low <= high <= 1:
            raise ValueError(f"{name} is ({low}, {high}), expected 0 < from <= to <= 1")
    for name, side in (("global_size", config.global_size), ("local_size", config.local_size)):
        if side < patch_size:
            raise ValueError(f"{name} is {side} pixels, less than one patch of {patch_size}")
    if not 0 <= config.blur[0] <= config.blur[1]:
        raise ValueError(f"blur is {config.blur}, expected 0 <= from <= to, in pixels")
    if not 0 <= config.margin <= 1:
        raise ValueError(f"margin is {config.margin}, expected 0 to 1")
    if config.local_crops < 0:
        raise ValueError(f"local_crops is {config.local_crops}, expected 0 or more")


class MultiCrop:
    """Cuts an RGB picture, with its margin, into two views [2, 3, G, G] and local crops [L, 3, l, l], uint8.

    Blur differs between the two views (always, one time in ten) and only the second is solarised; local crops
    are blurred every other time. Randomness comes from torch's global generator.
    """

    def __init__(self, config: CropConfig) -> None:
        check(config)
        self.config = config
        side, scale, radius = config.global_size, config.global_scale, config.blur
        self.first = crop(side, scale, blur=1.0, radius=radius)
        self.second = crop(side, scale, blur=0.1, radius=radius, solarise=0.2)
        self.local = crop(config.local_size, config.local_scale, blur=0.5, radius=radius)

    def __call__(self, picture: Picture) -> Crops:
        """Cut one picture."""
        picture = widen(picture, self.config.margin)
        views = torch.stack([self.first(picture), self.second(picture)])
        locals_ = [self.local(picture) for _ in range(self.config.local_crops)]
        none = views.new_empty(0, 3, self.config.local_size, self.config.local_size)
        return Crops(views, torch.stack(locals_) if locals_ else none)


def widen(picture: Picture, margin: float) -> Picture:
    """A picture mirrored beyond each of its sides, by `margin` in [0, 1] of its width and height."""
    sides = [int(margin * picture.width), int(margin * picture.height)]  # left and right, top and bottom
    return transforms.functional.pad(picture, sides, padding_mode="symmetric") if any(sides) else picture


def normalise(crops: Crops, mean: Sequence[float], std: Sequence[float], device: torch.device) -> Crops:
    """uint8 crops as fp32 tensors on the device, (crop / 255 - mean) / std for each channel."""
    scale = torch.tensor(std, device=device).mul(255).reciprocal()[:, None, None]
    shift = torch.tensor(mean, device=device).div(torch.tensor(std, device=device))[:, None, None]
    return Crops(*(crop.to(device, non_blocking=True).float().mul_(scale).sub_(shift) for crop in crops))


def crop(
    size: int,
    scale: tuple[float, float],
    *,
    blur: float,
    radius: tuple[float, float] = CropConfig.blur,
    solarise: float = 0.0,
) -> transforms.Compose:
    """One augmented crop: a random box resized to `size`, flip, colour jitter, grey, blur, solarisation.

    `blur` and `solarise` are how often; `radius` is the blur's, from and to, in pixels of the crop.
    """
    jitter = transforms.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(size, scale, interpolation=InterpolationMode.BICUBIC),
            transforms.RandomHorizontalFlip(0.5),
            transforms.RandomApply([jitter], 0.8),
            transforms.RandomGrayscale(0.2),
            transforms.RandomApply([GaussianBlur(radius)], blur),
            transforms.RandomSolarize(threshold=128, p=solarise),
            transforms.PILToTensor(),
        ]
    )


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
