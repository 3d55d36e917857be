"""Labels of every frame of a video from the labels of some frames, forward and backward."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dino_model.runtime.ahead import run_ahead
from segmentation.labels import Labels, check_size, object_ids, resize_nearest, without_void
from segmentation.masks import ImageArray
from segmentation.propagation import (
    DINO,
    FrameSource,
    Preset,
    Propagator,
    grid_labels,
    hard_labels,
    input_size,
)

ReadFrames = Callable[[int, int | None], Iterable[ImageArray]]


def object_changes(masks: Mapping[int, Labels]) -> Iterator[tuple[int, str]]:
    """Yield the frame and the objects that end and begin, in words, for each mask after the first."""
    first, *later = sorted(masks)
    before = {*object_ids(masks[first])}
    for number in later:
        present = {*object_ids(masks[number])}
        changes = [(label, "ends") for label in before - present] + [
            (label, "begins") for label in present - before
        ]
        yield number, ", ".join(f"object {label} {verb}" for label, verb in changes)
        before = present


def propagate_masks(*arguments: Any, **options: Any) -> Iterator[Labels]:
    """Label every frame of a video as `propagate_steps`; yields the labels alone, uint8 [H, W] each."""
    return (labels for labels in propagate_steps(*arguments, **options) if labels is not None)


def propagate_steps(
    read: ReadFrames,
    masks: Mapping[int, Labels],
    source: FrameSource,
    preset: Preset = DINO,
    batch: int = 4,
    *,
    objects: Mapping[int, Sequence[int]] | None = None,
    overlap: bool = False,
    backward: bool = True,
) -> Iterator[Labels | None]:
    """Label every frame of a video from the labels of some frames, forward and backward.

    A mask decides all objects of its frame: those that it lacks end there, new ones begin there. Between
    two masks of an object, its soft labels of both directions are averaged, weighted by the nearness of the
    masks. Before the first mask that decides an object, its labels are those of the backward direction. They
    are kept in a file until their frame is reached, so memory does not grow with the video. A single mask of
    the first frame gives the official propagation.

    Args:
        read: Returns the frames from one number up to another, or to the end: uint8 [H, W, 3] each.
        masks: Labels of frames by their number, uint8 [H, W]: 0 background, 255 void, which is not an object.
        objects: Objects that each mask decides, if not all; the others continue.
        batch: Frames whose features are computed at once; at most a batch is read ahead.
        overlap: Read and compute in threads of their own.
        backward: False labels no frame from a later mask, so an object starts in its first mask.

    Yields:
        None for a frame of the backward direction, and the labels of each frame in order, uint8 [H, W]; where
        it has a mask, that mask over the propagated labels.

    Raises:
        ValueError: No object, masks or frames of several sizes, or a mask after the last frame.
    """
    video = _Annotated(masks, source, preset, objects)
    numbers, ahead = sorted(masks), partial(run_ahead, depth=batch) if overlap else iter
    propagator, labels, spool = None, np.zeros(video.size, np.uint8), _Spool()
    is_decided = is_present = torch.zeros(len(video.ids), dtype=torch.bool)  # by the masks so far
    previous, upcoming, number = -1, 0, -1
    for number, features in enumerate(
        ahead(_features(ahead(iter(read(0, None))), video.size, source, batch))
    ):
        soft = None if propagator is None else propagator.step(features)
        if number == previous + 1 and backward:  # the first frame after a mask
            upcoming = next((each for each in numbers if each >= number), number)
            spool = _Spool()
            for item in video.backward(read, upcoming, number, batch) if upcoming > number else ():
                spool.append(item)
                yield None
        if number in masks:
            labels = video.correct(labels if soft is None else video.enlarge(soft), number)
            propagator, previous = video.start(labels, features), number
            decided, present = video.decides(number), video.marks(labels)
            is_decided, is_present = is_decided | decided, torch.where(decided, present, is_present)
            yield labels
            continue
        if upcoming > number:
            share = (upcoming - number) / (upcoming - previous)
            back, is_ended = spool.pop().to(features.device), is_decided & ~is_present
            in_backward = video.decides(upcoming) & video.marks(masks[upcoming]) & ~is_ended
            soft = back if soft is None else _blend(soft, back, is_decided, in_backward, share)
        yield labels if soft is None else video.enlarge(soft)  # None: before the first mask
    if numbers[-1] > number:
        raise ValueError(f"a mask belongs to frame {numbers[-1]}, but the last frame is {number}")


class _Annotated:
    """Masks of some frames of a video, its objects, and their grid."""

    def __init__(
        self,
        masks: Mapping[int, Labels],
        source: FrameSource,
        preset: Preset,
        objects: Mapping[int, Sequence[int]] | None,
    ) -> None:
        self.masks, self.source, self.preset = masks, source, preset
        self.ids = sorted(set().union(*map(object_ids, masks.values())))
        self.objects = objects or dict.fromkeys(masks, self.ids)
        if not self.ids:
            raise ValueError("the first mask marks no object: every pixel is 0 (background) or 255 (void)")
        first = masks[min(masks)]
        self.size = first.shape[0], first.shape[1]
        for number, mask in masks.items():
            check_size(f"the mask of frame {number}", mask.shape, "the first mask", self.size)
        self.input_size = input_size(self.size, source)

    def start(self, labels: Labels, features: Tensor) -> Propagator:
        """Propagate labels [H, W] from the frame that has these features."""
        channels = grid_labels(labels, self.ids, self.input_size, self.source.patch_size, self.preset)
        return Propagator(features, channels.to(features.device), self.preset)

    def enlarge(self, soft: Tensor) -> Labels:
        """Convert soft labels [C, h, w] to labels of the size of the frames."""
        winner = hard_labels(soft, self.source.patch_size, self.preset)
        names = np.array([0, *self.ids], np.uint8)
        return resize_nearest(names[winner[: self.input_size[0], : self.input_size[1]]], self.size)

    def decides(self, number: int) -> Tensor:
        """Mark the objects that the mask of a frame decides: Boolean [objects]."""
        return torch.tensor([label in self.objects[number] for label in self.ids])

    def marks(self, labels: Labels) -> Tensor:
        """Mark the objects that have a pixel in labels [H, W]: Boolean [objects]."""
        return torch.from_numpy(np.isin(self.ids, labels))

    def correct(self, labels: Labels, number: int) -> Labels:
        """Replace the objects of the mask of a frame in propagated labels."""
        mask = without_void(self.masks[number])
        others = np.where(np.isin(labels, self.objects[number]), 0, labels)
        return np.where(mask > 0, mask, others).astype(np.uint8)

    def backward(self, read: ReadFrames, number: int, stop: int, batch: int) -> Iterator[Tensor]:
        """Yield the soft labels of the frames before a mask, the last first, down to frame `stop`."""
        propagator = None
        images = _read_backward(read, stop, number + 1)
        for features in _features(images, self.size, self.source, batch):
            if propagator is None:
                propagator = self.start(without_void(self.masks[number]), features)
            else:
                yield propagator.step(features)


def _blend(
    forward: Tensor, backward: Tensor, in_forward: Tensor, in_backward: Tensor, share: float
) -> Tensor:
    """Average soft labels [C, h, w] of two directions; each object counts in those that have it [C - 1].

    `share` is the weight of `forward` for objects that both directions have.
    """
    ahead, behind = share * in_forward, (1 - share) * in_backward
    weights = torch.stack([ahead, behind]) / (ahead + behind).clamp(min=1e-9)
    weights = weights.to(forward)[..., None, None]
    objects = weights[0] * forward[1:] + weights[1] * backward[1:]
    return torch.cat([(1 - objects.sum(0, keepdim=True)).clamp(min=0), objects])


class _Spool:
    """Soft labels of one direction in a temporary file, from which they are taken in reverse order."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  removed with this object
        self._places: list[int] = []

    def append(self, item: Tensor) -> None:
        """Write an item."""
        self._places.append(self._file.tell())
        np.save(self._file, item.float().cpu().numpy())

    def pop(self) -> Tensor:
        """Return the item that was written last, of those that are left."""
        self._file.seek(self._places.pop())
        return torch.from_numpy(np.load(self._file))


_FRAMES_AT_ONCE = 32  # held while a video is read backward


def _read_backward(read: ReadFrames, start: int, stop: int) -> Iterator[ImageArray]:
    """Yield frames from the one before `stop` down to `start`, read in pieces."""
    for last in range(stop, start, -_FRAMES_AT_ONCE):
        first = max(start, last - _FRAMES_AT_ONCE)
        images = list(read(first, last))
        if len(images) < last - first:
            raise ValueError(
                f"a mask belongs to frame {stop - 1}, but the last frame is {first + len(images) - 1}"
            )
        yield from images[::-1]


def _features(
    frames: Iterable[ImageArray],
    size: tuple[int, int],
    source: FrameSource,
    batch: int,
) -> Iterator[Tensor]:
    """Yield the patch features [rows, columns, D] of each frame, computed in batches."""
    numbered = enumerate(frames)
    while images := list(islice(numbered, batch)):
        for number, image in images:
            check_size(f"frame {number}", image.shape, "the first mask", size)
        yield from source.features([image for _, image in images])
