"""Configuration of multi-crop augmentation, without importing torch (section 3.1 of the paper)."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from dino_model.runtime.errors import SettingError
from training.recipes.validation import at_least, multiple_of, shares


@dataclass(frozen=True)
class ViewSpec:
    """Augmentation of a crop: random box resized to `size`, flip, color jitter, gray, blur, solarization."""

    size: int = 224
    """Side in pixels."""
    scale: tuple[float, float] = (0.4, 1.0)
    """Smallest and largest share of the image's area."""
    flip: float = 0.5
    """Probability of a horizontal flip."""
    jitter: float = 0.8
    """Probability of changes of brightness, contrast, saturation and hue."""
    strengths: tuple[float, float, float, float] = (0.4, 0.4, 0.2, 0.1)
    """Strengths of these four, as in torchvision's ColorJitter."""
    gray: float = 0.2
    """Probability of the conversion to gray."""
    blur: float = 0.5
    """Probability of the Gaussian blur."""
    radius: tuple[float, float] = (0.1, 2.0)
    """Smallest and largest standard deviation of the blur in pixels."""
    solarize: float = 0.0
    """Probability of the solarization."""
    randaugment: bool = False
    """Two operations of RandAugment, of magnitude 9 of 30 (arXiv:1909.13719), before the color jitter."""


UNCHANGED = ViewSpec(blur=0.0, jitter=0.0, gray=0.0)
GENTLE = replace(UNCHANGED, jitter=1.0, strengths=(0.3, 0.3, 0.3, 0.0))
"""Colors for supervised training, whose labels must stay correct."""
DEIT = replace(UNCHANGED, randaugment=True)
MOCO = ViewSpec(strengths=(0.4, 0.4, 0.4, 0.1))
SWAV = ViewSpec(strengths=(0.8, 0.8, 0.8, 0.2))
Augmentation = Literal["dino", "moco-v2", "swav", "supervised", "deit", "none"]
AUGMENTATIONS = {
    "dino": (ViewSpec(blur=0.5), ViewSpec(blur=1.0), ViewSpec(blur=0.1, solarize=0.2)),
    "moco-v2": (MOCO, MOCO),
    "swav": (SWAV, SWAV),
    "supervised": (GENTLE, GENTLE),
    "deit": (DEIT, DEIT),
    "none": (UNCHANGED, UNCHANGED),
}
"""Augmentation of local crops, then of the views in turn, by name, as the methods' papers have it. DINO's is
BYOL's (appendix B of arXiv:2006.07733), SwAV's is SimCLR's."""


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
    """Smallest and largest share of the image's area in a global crop."""
    local_scale: tuple[float, float] = (0.05, 0.4)
    """Smallest and largest share of the image's area in a local crop."""
    blur: tuple[float, float] = (0.1, 2.0)
    """Smallest and largest radius of the Gaussian blur, in pixels of a crop."""
    margin: float = 0.0
    """Width of the mirrored border added to an image before cropping, as a share of its side."""
    global_crops: int = 2
    """Number of global crops."""
    augmentation: Augmentation = "dino"
    """Color augmentation, by the method that it comes from."""
    augment: Literal["auto", "workers", "batch", "device"] = "auto"
    """workers: crop, flip, colors and blur crop by crop with Pillow, in the workers. batch: crop in the
    workers; flip, colors and blur of whole batches on the device (a CPU's: in its workers). device: workers
    only decode and resize to --canvas-size, all else on the device. auto: device with CUDA, else workers."""
    canvas_size: int = 384
    """Side in pixels of the square that workers resize an image to, with --augment device."""
    curriculum: tuple[str, ...] = ()
    """Resolution curriculum: stages SIZE:SHARE, e.g. 48:0.5 80:0.3 112:0.2. SIZE is the side of the global
    crops in pixels, SHARE the share of all steps. Local crops and blur scale with SIZE / --global-size."""

    def __post_init__(self) -> None:
        for option, (low, high) in (("global", self.global_scale), ("local", self.local_scale)):
            if not 0 < low <= high <= 1:
                raise SettingError(f"--{option}-scale is ({low}, {high}), expected 0 < from <= to <= 1")
        if not 0 <= self.blur[0] <= self.blur[1]:
            raise SettingError(f"--blur is {self.blur}, expected 0 <= from <= to, in pixels")
        shares(self, "margin")
        at_least(self, global_size=1, local_size=1, local_crops=0, global_crops=1, canvas_size=1)
        if self.augment == "device" and self.randaugment:
            raise SettingError("--augmentation deit has RandAugment: pass --augment batch instead of device")
        self._check_curriculum()

    @property
    def randaugment(self) -> bool:
        """Test if RandAugment changes the crops."""
        return self.augmentation == "deit"

    def for_device(self, device_type: str, rgb: bool = True) -> "CropConfig":
        """Replace `augment="auto"` by what is fastest on a type of device; "workers" is for RGB only."""
        if self.augment != "auto":
            return self
        if device_type != "cuda":
            return replace(self, augment="workers" if rgb else "batch")
        return replace(self, augment="batch" if self.randaugment else "device")

    def _check_curriculum(self) -> None:
        if not self.curriculum:
            return
        sizes, parts = zip(*map(_parse_stage, self.curriculum), strict=True)
        if not math.isclose(sum(parts), 1, abs_tol=1e-6):
            raise SettingError(f"the shares of --curriculum add up to {sum(parts):g}, expected 1")
        if sizes[-1] != self.global_size:
            raise SettingError(
                f"--curriculum ends at {sizes[-1]} pixels, but --global-size is {self.global_size}: "
                f"pass --global-size {sizes[-1]}"
            )

    def stages(self, multiple: int) -> list[tuple[float, "CropConfig"]]:
        """Share of the steps and crops of every stage of the curriculum; without one, a single stage.

        Args:
            multiple: Local crops are rounded up to a multiple of so many pixels, the patch size of a ViT.
        """
        if not self.curriculum:
            return [(1.0, self)]
        return [(share, self._scale(size, multiple)) for size, share in map(_parse_stage, self.curriculum)]

    def _scale(self, size: int, multiple: int) -> "CropConfig":
        """Crops with global crops of `size` pixels: local crops, blur and canvas in proportion."""
        low, high = (radius * size / self.global_size for radius in self.blur)
        return replace(
            self,
            global_size=size,
            local_size=-(-self.local_size * size // (self.global_size * multiple)) * multiple,
            blur=(low, high),
            canvas_size=-(-self.canvas_size * size // self.global_size),
            curriculum=(),
        )

    @property
    def decoded_side(self) -> int:
        """Short side in pixels from which the image of every crop is made smaller, never larger."""
        if self.augment == "device":
            return self.canvas_size
        sizes = [(self.global_size, self.global_scale[0])] + [(self.local_size, self.local_scale[0])] * bool(
            self.local_crops
        )
        return max(math.ceil(size / math.sqrt(smallest * 3 / 4)) for size, smallest in sizes)

    @property
    def views(self) -> tuple[ViewSpec, ...]:
        """Specification of each global crop."""
        _, *kinds = AUGMENTATIONS[self.augmentation]
        size, scale, radius = self.global_size, self.global_scale, self.blur
        used = [kinds[i % len(kinds)] for i in range(self.global_crops)]
        return tuple(replace(kind, size=size, scale=scale, radius=radius) for kind in used)

    @property
    def locals(self) -> ViewSpec:
        """Specification of every local crop."""
        kind = AUGMENTATIONS[self.augmentation][0]
        return replace(kind, size=self.local_size, scale=self.local_scale, radius=self.blur)

    def check_sizes(self, unit: int, minimum: int) -> None:
        """Raise SettingError for crops of fewer than `minimum` pixels, or no multiple of `unit` pixels."""
        for name in ("global_size", "local_size") if self.local_crops else ("global_size",):
            at_least(self, **{name: minimum})
            multiple_of(name, getattr(self, name), unit, "the patch size")


def _parse_stage(text: str) -> tuple[int, float]:
    """Size in pixels and share of the steps of a stage `SIZE:SHARE` of a curriculum."""
    size, _, share = text.partition(":")
    try:
        stage = int(size), float(share)
    except ValueError:
        stage = 0, 0.0
    if stage[0] < 1 or not 0 < stage[1] <= 1:
        raise SettingError(f"--curriculum has a stage {text!r}, expected SIZE:SHARE such as 48:0.5")
    return stage
