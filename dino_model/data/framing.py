"""Frame, crop, resize and normalize images for evaluation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torchvision.transforms.functional import InterpolationMode, center_crop, resize

FramingMode = Literal["center-crop", "long-side", "squash"]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels of the image."""


@cache
def _per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Values [channels, 1, 1] on a device, copied there once: the host waits for each copy."""
    return torch.tensor(values, device=device)[:, None, None]


@dataclass(frozen=True)
class Framing:
    """Size, framing and normalization of images.

    Resized by Pillow's bicubic (antialiased), as torchvision does and so the official evaluation code; only
    `long-side` is Pillow's thumbnail (Lanczos), as in the official retrieval.
    """

    size: int
    """Side in pixels of the square crop (`center-crop`), of the square (`squash`), or of the long side."""
    mean: tuple[float, ...]
    """Mean of each channel, on a scale of 0 to 1."""
    std: tuple[float, ...]
    """Standard deviation of each channel, on a scale of 0 to 1."""
    resize_to: int | None = None
    """Short side before the center crop. Default: `size`."""
    mode: FramingMode = "center-crop"
    """`long-side` only makes images smaller, as the official retrieval does."""
    scales: tuple[float, ...] = (1.0,)
    """Features are the mean over these scales."""
    cut: int = 0
    """Patch in pixels: the bottom and right that fill no patch are cut, as in the official code. 0: they are
    padded by the backbone."""

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise ValueError(f"{len(self.mean)} means, {len(self.std)} deviations: expected one per channel")
        if not 0 < self.size <= self.short_side:
            raise ValueError(f"cannot crop {self.size} pixels from a short side of {self.short_side}")
        if not self.scales or min(self.scales) <= 0:
            raise ValueError(f"scales are {self.scales}: expected at least one, all above 0")

    def __str__(self) -> str:
        text = {
            "center-crop": f"short side {self.short_side} (bicubic), center crop {self.size}",
            "long-side": f"long side at most {self.size} (Lanczos)",
            "squash": f"squashed to {self.size} × {self.size} (bicubic)",
        }[self.mode]
        scales = ", ".join(f"{scale:.3g}" for scale in self.scales)
        return text if self.scales == (1.0,) else f"{text}, mean of the scales {scales}"

    @property
    def short_side(self) -> int:
        """Short side before the crop, in pixels."""
        return self.size if self.resize_to is None else self.resize_to

    def crop(self, image: np.ndarray, box: Box | None = None) -> Tensor:
        """Frame an image: uint8 [height, width, channels] -> uint8 [channels, rows, columns].

        Raises:
            ValueError: Other channels than the model's, or a box, the part to use, that is not inside.
        """
        if image.shape[2] != len(self.mean):
            raise ValueError(f"the model takes {len(self.mean)} channels, the image has {image.shape[2]}")
        return by_channel(image if box is None else _inside(image, box), self._frame)

    def _frame(self, framed: Image.Image) -> Image.Image:
        match self.mode:
            case "long-side":
                framed.thumbnail((self.size, self.size), Image.Resampling.LANCZOS)
                return framed
            case "squash":
                return resize(framed, [self.size, self.size], InterpolationMode.BICUBIC)
            case "center-crop":
                return center_crop(resize(framed, [self.short_side], InterpolationMode.BICUBIC), [self.size])

    def normalize(self, crops: Tensor) -> Tensor:
        """Normalize crops: uint8 [batch, channels, rows, columns] -> float32."""
        mean, std = (_per_channel(tuple(values), crops.device) for values in (self.mean, self.std))
        return (crops / 255 - mean) / std

    def rescale(self, images: Tensor) -> Iterator[Tensor]:
        """Yield normalized images [batch, channels, rows, columns] at each of `scales`.

        Bilinear, not antialiased, by the scale itself, as in the official retrieval.
        """
        for scale in self.scales:
            scaled = images
            if scale != 1:
                scaled = F.interpolate(images, scale_factor=scale, mode="bilinear", align_corners=False)
            if self.cut:
                rows, columns = (side // self.cut * self.cut for side in scaled.shape[-2:])
                scaled = scaled[..., :rows, :columns]
            if not scaled.numel():
                raise ValueError(f"an image of {tuple(images.shape[-2:])} is too small for scale {scale:g}")
            yield scaled


def by_channel(image: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Change an image uint8 [height, width, channels] with Pillow: uint8 [channels, rows, columns].

    RGB is changed at once, other images channel by channel.
    """
    if image.shape[2] == 3:
        return torch.from_numpy(np.array(change(Image.fromarray(image)))).permute(2, 0, 1)
    channels = (Image.fromarray(np.ascontiguousarray(channel)) for channel in np.moveaxis(image, 2, 0))
    return torch.from_numpy(np.stack([np.asarray(change(channel)) for channel in channels]))


def _inside(image: np.ndarray, box: Sequence[float]) -> np.ndarray:
    height, width = image.shape[:2]
    left, top, right, bottom = (round(edge) for edge in box)
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ValueError(f"the box {tuple(box)} is not inside the image of {width} × {height} pixels")
    return image[top:bottom, left:right]
