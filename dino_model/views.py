"""How an evaluation shows a picture to a network: framed, cropped, resized, normalised."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

Framing = Literal["center-crop", "short-side", "long-side", "squash"]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels of the picture."""


@dataclass(frozen=True)
class View:
    """What of a picture is shown, how large, and on which scale of colours.

    Resized by Pillow's bicubic (antialiased), as torchvision does with Pillow pictures and so the official
    evaluation code; only `long-side` is Pillow's thumbnail (Lanczos), as in the official retrieval.
    """

    size: int
    """Side in pixels: of the square crop (`center-crop`), of the square (`squash`), of the short or the long
    side."""
    mean: tuple[float, ...]
    """Of red, green and blue, on a scale of 0 to 1."""
    std: tuple[float, ...]
    """Likewise."""
    resize_to: int | None = None
    """Short side before the centre crop; None: `size`, so that only the long side is cropped."""
    framing: Framing = "center-crop"
    """long-side only makes pictures smaller, as the official retrieval does."""
    scales: tuple[float, ...] = (1.0,)
    """The picture is shown once at each; features are their mean."""
    cut: int = 0
    """Pixels of a patch: what fills no patch at the bottom and the right is not looked at, as in the official
    code. 0: nothing is cut, the backbone pads."""

    def __post_init__(self) -> None:
        if len(self.mean) != 3 or len(self.std) != 3:
            raise ValueError(f"the model takes {len(self.mean)} channels, pictures have 3")
        if not 0 < self.size <= self.short_side:
            raise ValueError(f"cannot crop {self.size} pixels from a short side of {self.short_side}")
        if not self.scales or min(self.scales) <= 0:
            raise ValueError(f"scales are {self.scales}: name at least one, all above 0")

    def __str__(self) -> str:
        told = {
            "center-crop": f"short side {self.short_side} (bicubic), centre crop {self.size}",
            "short-side": f"short side {self.size} (bicubic)",
            "long-side": f"long side at most {self.size} (Lanczos)",
            "squash": f"squashed to {self.size} × {self.size} (bicubic)",
        }[self.framing]
        scales = ", ".join(f"{scale:.3g}" for scale in self.scales)
        return told if self.scales == (1.0,) else f"{told}, mean of the scales {scales}"

    @property
    def short_side(self) -> int:
        """Short side before the crop, in pixels."""
        return self.size if self.resize_to is None else self.resize_to

    def crop(self, picture: np.ndarray, box: Box | None = None) -> Tensor:
        """uint8 [height, width, 3] -> uint8 [3, rows, columns]; square where the framing is.

        Args:
            picture: RGB.
            box: what of it is shown at all.

        Raises:
            ValueError: a box that does not lie in the picture.
        """
        image = Image.fromarray(picture if box is None else _inside(picture, box))
        if self.framing == "long-side":
            image.thumbnail((self.size, self.size), Image.Resampling.LANCZOS)
        elif self.framing == "squash":
            image = image.resize((self.size, self.size), Image.Resampling.BICUBIC)
        else:
            short = min(image.size)
            if short != self.short_side:
                width, height = (self.short_side * side // short for side in image.size)
                image = image.resize((width, height), Image.Resampling.BICUBIC)
            if self.framing == "center-crop":
                left, top = (round((side - self.size) / 2) for side in image.size)
                image = image.crop((left, top, left + self.size, top + self.size))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    def normalise(self, crops: Tensor) -> Tensor:
        """uint8 [batch, 3, rows, columns] -> float32, zero mean and unit deviation on average."""
        mean, std = (
            torch.tensor(three, device=crops.device)[:, None, None] for three in (self.mean, self.std)
        )
        return (crops / 255 - mean) / std

    def shown(self, images: Tensor) -> Iterator[Tensor]:
        """Normalised images [batch, 3, rows, columns] as they are shown, once at each of `scales`.

        Resampled as in the official retrieval: bilinear, not antialiased, by the scale itself.
        """
        for scale in self.scales:
            seen = images
            if scale != 1:
                seen = F.interpolate(images, scale_factor=scale, mode="bilinear", align_corners=False)
            if self.cut:
                rows, columns = (side // self.cut * self.cut for side in seen.shape[-2:])
                seen = seen[..., :rows, :columns]
            if not seen.numel():
                raise ValueError(
                    f"a picture of {tuple(images.shape[-2:])} pixels is too small for scale {scale:g}"
                )
            yield seen


def _inside(picture: np.ndarray, box: Sequence[float]) -> np.ndarray:
    height, width = picture.shape[:2]
    left, top, right, bottom = (round(edge) for edge in box)
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ValueError(f"the box {tuple(box)} does not lie in a picture of {width} × {height} pixels")
    return picture[top:bottom, left:right]
