"""Configuration of multi-crop augmentation, without importing torch (section 3.1 of the paper)."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from dino_model.errors import SettingError
from training.settings import at_least, flag


@dataclass(frozen=True)
class Photometry:
    """What happens to the pixels of one kind of crop: how often, and how strongly."""

    blur: float = 0.5
    """How often a crop is blurred."""
    radius: tuple[float, float] = (0.1, 2.0)
    """Of the blur in pixels (its standard deviation), from and to."""
    solarise: float = 0.0
    """How often it is solarised."""
    jitter: float = 0.8
    """How often brightness, contrast, saturation and hue change."""
    strengths: tuple[float, float, float, float] = (0.4, 0.4, 0.2, 0.1)
    """Of these four, as torchvision's ColorJitter takes them."""
    grey: float = 0.2
    """How often it becomes grey."""


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
    augment: Literal["auto", "workers", "batch", "device"] = "auto"
    """workers: crop, flip, colors and blur crop by crop with Pillow, in the workers. batch: crop in the
    workers; flip, colors and blur of whole batches on the device (a CPU's: in its workers). device: workers
    only decode and resize to --canvas-size, all else on the device. auto: device with CUDA, else workers."""
    canvas_size: int = 384
    """Side in pixels of the square that workers resize an image to, with --augment device."""
    decode: Literal["workers", "device"] = "workers"
    """Where JPEGs are decoded with --augment device: in the workers, or on a CUDA device by nvJPEG."""
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
        at_least(self, global_size=1, local_size=1, local_crops=0, global_crops=1, canvas_size=1)
        self._check_augment()
        self._check_curriculum()

    def _check_augment(self) -> None:
        if self.augment == "device" and self.augmentation in RANDOM_OPERATIONS:
            raise SettingError(
                f"--augment device has no RandAugment, which --augmentation {self.augmentation} needs: "
                "pass --augment batch"
            )
        if self.decode == "device" and self.augment not in ("auto", "device"):
            raise SettingError(f"--decode device needs --augment device, not {self.augment}")

    def for_device(self, device_type: str) -> "CropConfig":
        """Replace `augment="auto"` by what is fastest on a type of device."""
        if self.augment != "auto":
            return self
        on_device: Literal["batch", "device"] = (
            "batch" if self.augmentation in RANDOM_OPERATIONS else "device"
        )
        return replace(self, augment=on_device if device_type == "cuda" else "workers")

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
        canvas = -(-self.canvas_size * size // self.global_size)
        return replace(
            self, global_size=size, local_size=local, blur=(low, high), canvas_size=canvas, curriculum=()
        )

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
