"""Multi-crop augmentation (section 3.1; the details are the official code's, which follow BYOL).

A view is described by a `ViewSpec`; what is said in `CropConfig`, in few numbers and a name, becomes these.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import v2 as transforms
from torchvision.transforms.v2 import functional

from dino_model.errors import SettingError
from training.photometry import CHANCES, Photometry
from training.settings import at_least, flag

Picture = Image.Image

TRIES = 10
"""Boxes drawn before the whole picture is taken, as torchvision does."""


@dataclass(frozen=True)
class ViewSpec:
    """One augmented crop: a random box resized to `size`, flip, colour jitter, grey, blur, solarisation."""

    size: int
    """Side in pixels."""
    scale: tuple[float, float]
    """Share of the picture's area that is covered, from and to."""
    photometry: Photometry = field(default_factory=Photometry)
    flip: float = 0.5
    """How often left and right are exchanged."""
    random_operations: int = 0
    """Operations of RandAugment, of magnitude 9 of 30 (arXiv:1909.13719), before the photometry."""


PLAIN = Photometry(blur=0.0, jitter=1.0, strengths=(0.3, 0.3, 0.3, 0.0), grey=0.0)
"""Little: labels stay right."""
UNCHANGED = Photometry(blur=0.0, jitter=0.0, grey=0.0)
RANDOM_OPERATIONS = {"deit": 2}
"""RandAugment's, by the name of an augmentation; others have none."""
Augmentation = Literal["dino", "moco-v2", "swav", "supervised", "deit"]
AUGMENTATIONS: dict[str, tuple[tuple[Photometry, ...], Photometry]] = {
    "dino": ((Photometry(blur=1.0), Photometry(blur=0.1, solarise=0.2)), Photometry(blur=0.5)),
    "moco-v2": ((Photometry(strengths=(0.4, 0.4, 0.4, 0.1)),), Photometry(strengths=(0.4, 0.4, 0.4, 0.1))),
    "swav": ((Photometry(strengths=(0.8, 0.8, 0.8, 0.2)),), Photometry(strengths=(0.8, 0.8, 0.8, 0.2))),
    "supervised": ((PLAIN,), PLAIN),
    "deit": ((UNCHANGED,), UNCHANGED),
}
"""By name: the photometry of each view, and of local crops, as the methods' papers have it. DINO's is BYOL's
(appendix B of arXiv:2006.07733), SwAV's is SimCLR's."""


@dataclass(frozen=True)
class CropConfig:
    """Sizes, numbers and scales of the crops; the defaults are the official code's."""

    global_size: int = 224
    """Side of the global crops in pixels; the position embeddings' --image-size follows it."""
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
    global_crops: int = 2
    """Number of global crops."""
    augmentation: Augmentation = "dino"
    """What happens to colours, by the method that it comes from."""
    augment: Literal["workers", "device"] = "workers"
    """Where flips, colour and blur happen: in the workers, crop by crop by Pillow; or of whole batches, as
    tensors, on the training device (a CPU's: in its workers), and pictures are decoded and cut faster too."""
    curriculum: tuple[str, ...] = ()
    """Resolution curriculum: stages SIZE:SHARE, e.g. 48:0.5 80:0.3 112:0.2. SIZE is the side of the global
    crops in pixels, SHARE the share of all steps. Local crops and blur scale with SIZE / --global-size."""

    def __post_init__(self) -> None:
        for name, (low, high) in (("global_scale", self.global_scale), ("local_scale", self.local_scale)):
            if not 0 < low <= high <= 1:
                raise SettingError(f"{flag(name)} is ({low}, {high}), expected 0 < from <= to <= 1")
        if not 0 <= self.blur[0] <= self.blur[1]:
            raise SettingError(f"--blur is {self.blur}, expected 0 <= from <= to, in pixels")
        if not 0 <= self.margin <= 1:
            raise SettingError(f"--margin is {self.margin}, expected 0 to 1")
        at_least(self, global_size=1, local_size=1, local_crops=0, global_crops=1)
        self._check_curriculum()

    def _check_curriculum(self) -> None:
        if not self.curriculum:
            return
        sizes, shares = zip(*map(parse_stage, self.curriculum), strict=True)
        if not math.isclose(sum(shares), 1, abs_tol=1e-6):
            raise SettingError(f"the shares of --curriculum add up to {sum(shares):g}, expected 1")
        if sizes[-1] != self.global_size:
            raise SettingError(
                f"--curriculum ends at {sizes[-1]} pixels, but --global-size is {self.global_size}: "
                f"pass --global-size {sizes[-1]}"
            )

    def stages(self, multiple: int = 1) -> list[tuple[float, "CropConfig"]]:
        """Share of the steps and crops of every stage of the curriculum; without one, a single stage.

        Args:
            multiple: local crops are rounded up to a multiple of so many pixels, the patch size of a ViT.
        """
        if not self.curriculum:
            return [(1.0, self)]
        return [(share, self._scaled(size, multiple)) for size, share in map(parse_stage, self.curriculum)]

    def _scaled(self, size: int, multiple: int) -> "CropConfig":
        """The crops with global crops of `size` pixels: local crops and blur in proportion."""
        local = -(-self.local_size * size // (self.global_size * multiple)) * multiple
        low, high = (radius * size / self.global_size for radius in self.blur)
        return replace(self, global_size=size, local_size=local, blur=(low, high), curriculum=())

    @property
    def views(self) -> tuple[ViewSpec, ...]:
        """Of the global crops."""
        kinds = AUGMENTATIONS[self.augmentation][0]
        return tuple(
            self._view(self.global_size, self.global_scale, kinds[i % len(kinds)])
            for i in range(self.global_crops)
        )

    @property
    def locals(self) -> ViewSpec:
        """Of every local crop."""
        return self._view(self.local_size, self.local_scale, AUGMENTATIONS[self.augmentation][1])

    def _view(self, size: int, scale: tuple[float, float], photometry: Photometry) -> ViewSpec:
        operations = RANDOM_OPERATIONS.get(self.augmentation, 0)
        return ViewSpec(size, scale, replace(photometry, radius=self.blur), random_operations=operations)

    def check_patches(self, patch_size: int) -> None:
        """Raise SettingError for crops that are no whole patches: what is missing would be padded."""
        for name, side in self._sides().items():
            if side % patch_size:
                below = side // patch_size * patch_size
                choices = f"{below} or {below + patch_size}" if below else str(patch_size)
                raise SettingError(
                    f"{flag(name)} is {side} pixels, no multiple of the patch of {patch_size}: "
                    f"choose {choices}"
                )

    def check_least(self, least: int) -> None:
        """Raise SettingError for crops of fewer than `least` pixels, too few for a ResNet."""
        for name, side in self._sides().items():
            if side < least:
                raise SettingError(
                    f"{flag(name)} is {side} pixels, of which a ResNet leaves one before its last stage: "
                    f"choose {least} or more"
                )

    def _sides(self) -> dict[str, int]:
        return {"global_size": self.global_size} | (
            {"local_size": self.local_size} if self.local_crops else {}
        )


def parse_stage(text: str) -> tuple[int, float]:
    """Size in pixels and share of the steps of a stage `SIZE:SHARE` of a curriculum.

    Raises:
        SettingError: another form, a size below 1 or a share outside (0, 1].
    """
    size, _, share = text.partition(":")
    try:
        stage = int(size), float(share)
    except ValueError:
        stage = 0, 0.0
    if stage[0] < 1 or not 0 < stage[1] <= 1:
        raise SettingError(f"--curriculum has a stage {text!r}, expected SIZE:SHARE such as 48:0.5")
    return stage


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
    return view.photometry(mirrored, chances[:, :-1])


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
