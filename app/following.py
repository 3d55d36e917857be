"""Following objects through a clip, and what came of it."""

import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image
from torch import Tensor

from app.clips import MAX_OBJECTS, Clip
from app.errors import LabError
from app.files import labels_png
from app.limits import Limits
from dino_model.predictor import AttentionPredictor
from dino_model.resize import Resize, fed_size
from segmentation.drawing import head_colors
from segmentation.masks import ImageArray
from segmentation.propagation import Labels, object_ids, propagate_frames, vanished_objects

COLORS = head_colors(MAX_OBJECTS + 1)[1:]  # of objects; the first head's is the colour of fur and wood


@dataclass
class Following:
    """A first mask on its way through a clip.

    Attributes:
        token, clip: whose frames.
        model, size: what looks, as its visitor chose it.
        ids: labels of the objects.
        masks: palette PNGs of the frames done so far, the first mask among them.
        stopped: no more frames come.
        began: seconds on the clock when the first frame came; what is left is reckoned from it.
    """

    token: str
    clip: Clip
    model: str
    size: int
    ids: tuple[int, ...]
    masks: list[bytes] = field(default_factory=list)
    stopped: bool = False
    began: float = 0.0

    def add(self, labels: Labels) -> None:
        """Take the labels of the next frame, uint8 [height, width]."""
        self.began = self.began or time.perf_counter()
        self.masks.append(labels_png(labels))

    @property
    def state(self) -> str:
        """With every frame "done"; before, "stopped" or "running"."""
        if len(self.masks) == len(self.clip.frames):
            return "done"
        return "stopped" if self.stopped else "running"

    @property
    def left(self) -> float:
        """Seconds to go at the pace so far; the first frame's mask cost nothing."""
        done, frames = len(self.masks), len(self.clip.frames)
        if self.state != "running" or done < 2:
            return 0.0
        return (time.perf_counter() - self.began) / (done - 1) * (frames - done)

    def labels(self, number: int) -> Labels:
        """Labels of a frame that is done, uint8 [height, width]."""
        return np.array(Image.open(io.BytesIO(self.masks[number])))

    def frames(self) -> Iterator[tuple[ImageArray, Labels]]:
        """ImageArrays and labels of what is done now."""
        return ((self.clip.picture(number), self.labels(number)) for number in range(len(self.masks)))


Look = Callable[[Sequence[ImageArray]], Tensor]
"""Patch features of pictures of one size, float32 [pictures, rows, columns, D]."""


@dataclass
class SharedFeatures:
    """Patch features from a model that others use between two frames: nobody waits for a whole clip."""

    patch_size: int
    size: int
    resize: Resize
    features: Look
    """The model's, when its turn comes."""

    @classmethod
    def of(cls, predictor: AttentionPredictor, look: Look | None = None) -> "SharedFeatures":
        """A predictor's; `look` takes its turn first."""
        return cls(predictor.patch_size, predictor.size, predictor.resize, look or predictor.features)


def begin(
    token: str, clip: Clip, first_mask: Labels, source: SharedFeatures, model: str, limits: Limits
) -> Following:
    """What will be followed, once it is seen that it can be.

    Args:
        token, clip: whose frames.
        first_mask: labels of the first frame, uint8 [height, width]; 0 is no object.
        source: which model looks, at which resolution.
        model: what visitors call it.
        limits: how much may be asked of it.

    Raises:
        LabError: no object, too many of them or too small, or a resolution that cannot be.
    """
    ids = object_ids(first_mask)
    _check(clip, first_mask, ids, source, limits)
    return Following(token, clip, model, source.size, ids)


def steps(following: Following, first_mask: Labels, source: SharedFeatures) -> Iterator[None]:
    """Follow the objects of a first mask through a clip, a frame with every step.

    Raises:
        LabError: a model that gives no features.
    """
    try:
        for labels in propagate_frames(following.clip.pictures(), first_mask, source, batch=1):
            following.add(labels)
            yield
    except ValueError as error:  # features that are not finite
        raise LabError(
            f"{following.model} gives no usable features of this clip: choose another model."
        ) from error


def _check(clip: Clip, mask: Labels, ids: tuple[int, ...], source: SharedFeatures, limits: Limits) -> None:
    if mask.shape != clip.size:
        raise LabError(
            f"The mask is {mask.shape[1]} × {mask.shape[0]} pixels, the frames are "
            f"{clip.size[1]} × {clip.size[0]}: they must be of one size."
        )
    if not ids:
        raise LabError("Nothing is marked yet: click an object on the first frame, or paint it.")
    if len(ids) > MAX_OBJECTS:
        raise LabError(f"{len(ids)} objects are marked, more than the {MAX_OBJECTS} allowed.")
    height, width = fed_size(*clip.size, source.size, source.resize, source.patch_size)
    patches = height * width // source.patch_size**2
    if patches > limits.max_patches:
        raise LabError(
            f"At resolution {source.size} a frame would make {patches:,} patches, more than the "
            f"{limits.max_patches:,} allowed: choose a lower resolution."
        )
    if vanished := vanished_objects(mask, (height, width), source.patch_size):
        raise LabError(
            f"Object {vanished[0]} is smaller than a patch of the model: paint more of it, "
            "or choose a higher resolution."
        )


def from_runs(runs: Sequence[int], size: tuple[int, int], most: int = MAX_OBJECTS) -> Labels:
    """Labels [height, width] from runs in reading order, as the page sends them: [label, pixels, label, …].

    Args:
        runs: whole numbers.
        size: height and width of the picture.
        most: the greatest label.

    Raises:
        LabError: runs of another picture, or none at all.
    """
    labels, lengths = runs[::2], runs[1::2]
    whole = len(runs) % 2 == 0 and min(runs, default=0) >= 0
    if not whole or max(labels, default=0) > most or sum(lengths) != size[0] * size[1]:
        raise LabError("The mask that came from the page does not fit this picture: open it again.")
    return np.repeat(np.array(labels, np.uint8), lengths).reshape(size)
