"""Following objects through a clip; what came of it, for as long as its visitor holds the clip's token."""

import io
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from app.cache import BoundedCache
from app.clips import Clip
from app.engine import Engine, LabError
from app.limits import MEGABYTE, Limits
from dino_model.predictor import Resize, fed_size
from segmentation.export import palette
from segmentation.propagation import Labels, Picture, object_ids, propagate_frames, vanished_objects
from segmentation.render import head_colors

MAX_OBJECTS = 8
COLORS = head_colors(MAX_OBJECTS + 1)[1:]  # of objects; the first head's is the colour of fur and wood
MASK_BYTES = 20_000  # what the mask of a frame is reckoned to weigh: several times what most do


@dataclass
class Following:
    """A first mask on its way through a clip.

    Attributes:
        clip: whose frames.
        ids: labels of the objects.
        masks: palette PNGs of the frames done so far, the first mask among them.
        stopped: asked to end; frames that come later are not taken.
    """

    clip: Clip
    ids: tuple[int, ...]
    masks: list[bytes] = field(default_factory=list)
    stopped: bool = False

    def add(self, labels: Labels) -> None:
        """Take the labels of the next frame, uint8 [height, width]."""
        if not self.stopped:
            self.masks.append(mask_png(labels))

    @property
    def state(self) -> str:
        """With every frame "done", whoever asked to end since; before, "cancelled" or "running"."""
        if len(self.masks) == len(self.clip.frames):
            return "done"
        return "cancelled" if self.stopped else "running"

    def labels(self, number: int) -> Labels:
        """Labels of a frame that is done, uint8 [height, width]."""
        return np.array(Image.open(io.BytesIO(self.masks[number])))

    def frames(self) -> Iterator[tuple[Picture, Labels]]:
        """Pictures and labels of what is done now."""
        return ((self.clip.picture(number), self.labels(number)) for number in range(len(self.masks)))


@dataclass
class Held:
    """A clip that a visitor holds, and what was followed through it last, if anything was."""

    clip: Clip
    following: Following | None = None

    def stop(self) -> None:
        """End what is being followed; what is done stays."""
        if self.following:
            self.following.stopped = True

    @property
    def done(self) -> Following:
        """What was followed.

        Raises:
            LabError: nothing was.
        """
        if self.following is None or not self.following.masks:
            raise LabError("Nothing has been followed through this clip yet: mark an object and follow it.")
        return self.following


class Shelf:
    """Clips by tokens that cannot be guessed, in bounded memory; the one used longest ago goes first."""

    def __init__(self, limits: Limits) -> None:
        self._held: BoundedCache[str, Held] = BoundedCache(limits.max_clips_mb * MEGABYTE)

    def put(self, clip: Clip) -> str:
        """Keep a clip; returns its token."""
        token = secrets.token_urlsafe(16)
        self._held.put(token, Held(clip), sum(map(len, clip.frames)) + MASK_BYTES * len(clip.frames))
        return token

    def get(self, token: str | None) -> Held:
        """The clip behind a token.

        Raises:
            LabError: unknown token, or forgotten by now.
        """
        held = None if token is None else self._held.get(token)
        if held is None:
            raise LabError("This clip is no longer in the server's memory: open it again.")
        return held


@cache
def shelf_of(engine: Engine) -> Shelf:
    """The one shelf beside an engine, for the page, its routes and the interface for programs."""
    return Shelf(engine.limits)


@dataclass
class SharedFeatures:
    """Patch features from a model that others use between two frames: nobody waits for a whole clip."""

    engine: Engine
    model: str
    input_size: int
    patch_size: int
    size: int
    resize: Resize

    @classmethod
    def of(cls, engine: Engine, model: str, size: int) -> "SharedFeatures":
        """Of one of the engine's models at a resolution.

        Raises:
            LabError: no such model.
        """
        with engine.borrow(model, size) as predictor:
            return cls(engine, model, size, predictor.patch_size, predictor.size, predictor.resize)

    def features(self, images: Sequence[Picture]) -> Tensor:
        """Patch features, float32 [pictures, rows, columns, D]; holds the model only for these pictures."""
        with self.engine.borrow(self.model, self.input_size) as predictor:
            return predictor.features(images)


def propagate(engine: Engine, held: Held, first_mask: Labels, model: str, size: int) -> Iterator[Following]:
    """Follow the objects of a first mask through a clip, frame by frame.

    Args:
        engine: whose models are used.
        held: the clip; what was followed through it before is replaced.
        first_mask: labels of the first frame, uint8 [height, width]; 0 is no object.
        model, size: which model looks, at which resolution.

    Yields:
        What is done so far, once for every frame that came to it.

    Raises:
        LabError: no object, too many of them or too small, or a model or resolution that cannot be.
    """
    source = SharedFeatures.of(engine, model, size)
    ids = object_ids(first_mask)
    _check(held.clip, first_mask, ids, source, engine.limits)
    held.stop()
    following = held.following = Following(held.clip, ids)
    try:
        for labels in propagate_frames(held.clip.pictures(), first_mask, source, batch=1):
            following.add(labels)
            yield following
            if following.stopped:
                return
    except ValueError as error:  # features that are not finite
        raise LabError(f"{model} gives no usable features of this clip: choose another model.") from error


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


def from_runs(runs: Any, size: tuple[int, int]) -> Labels:
    """Labels [height, width] from runs in reading order, as the page sends them: [label, pixels, label, …].

    Raises:
        LabError: anything else than that, such as runs of another picture.
    """
    whole = isinstance(runs, list) and len(runs) % 2 == 0 and len(runs) <= 2 * size[0] * size[1]
    if not whole or not all(type(value) is int and value >= 0 for value in runs):
        raise LabError("The mask that came from the page cannot be read: load the page again.")
    labels, lengths = runs[::2], runs[1::2]
    if max(labels, default=0) > MAX_OBJECTS or sum(lengths) != size[0] * size[1]:
        raise LabError("The mask that came from the page does not fit this clip: open the clip again.")
    return np.repeat(np.array(labels, np.uint8), lengths).reshape(size)


def mask_png(labels: Labels) -> bytes:
    """Labels [height, width] as a palette PNG that keeps their values, as in DAVIS."""
    image = Image.fromarray(labels, mode="P")
    image.putpalette(palette().tobytes())
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()
