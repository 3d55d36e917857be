"""Propagation of the labels of a first frame through a video by nearest neighbors of patch features.

Each patch of the next frame takes the average label of the most similar patches in the frames before. The
step is exact, ties included, and its memory is bounded by tiles.

Source: DINO, section 4.2.2 and table 5; Jabri et al. 2020, appendix F. Protocol: docs/protocols.md.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import ceil
from typing import Literal

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dino_model.data.images import IMAGENET_STD
from dino_model.inference.predictor import AttentionPredictor
from dino_model.inference.resize import Resize, fed_size
from dino_model.models.weights import LoadedModel
from dino_model.runtime.ahead import run_ahead
from segmentation.labels import Labels, check_size, object_ids, resize_nearest, without_void
from segmentation.masks import ImageArray

ReadFrames = Callable[[int, int | None], Iterable[ImageArray]]


@dataclass(frozen=True)
class Preset:
    """Settings of label propagation. Equals of the last neighbor count too."""

    name: str
    previous: int  # frames before the present one that give labels, in addition to the first frame
    radius: int  # half side of the square window, or radius of the disk, in patches
    window: Literal["square", "disk"]  # square: |dy|, |dx| <= radius; disk: distance < radius
    topk: int  # neighbors per patch, over all context frames jointly
    temperature: float  # of the softmax over the neighbors' cosine similarities
    first_unmasked: bool  # the first frame gives labels from anywhere, not only from the window
    repeat_first: bool  # the first frame replaces missing ones of the `previous` frames
    mask_resize: Literal["nearest", "bilinear"]  # of the first mask to the patch grid, per channel
    min_max: bool  # each channel is scaled to [0, 1] over the image before the argmax


DINO = Preset("dino", 7, 12, "square", 5, 0.1, False, False, "nearest", True)
"""The official DINO evaluation of DAVIS-2017."""

CRW = Preset("crw", 20, 12, "disk", 10, 0.05, True, True, "bilinear", False)
"""Contrastive random walk (Jabri et al. 2020), but equals of the last neighbor count."""

PRESETS = {preset.name: preset for preset in (DINO, CRW)}

OFFICIAL_STD = (0.228, 0.224, 0.225)
"""Standard deviation in the official DAVIS evaluation of DINO; ImageNet's is 0.229 for red."""


def official_std(model: LoadedModel, preset: Preset) -> tuple[float, ...] | None:
    """Return `OFFICIAL_STD` for the official preset and a model with ImageNet's statistics, else None."""
    return OFFICIAL_STD if preset.name == "dino" and tuple(model.std) == IMAGENET_STD else None


def propagate_step(target: Tensor, contexts: Tensor, labels: Tensor, preset: Preset = DINO) -> Tensor:
    """Compute the soft labels of one frame from those of its context frames.

    Args:
        target: Patch features of the frame, float [h, w, D]. All features have length 1.
        contexts: Patch features of the context frames, the first frame first, float [n, h, w, D].
        labels: Soft labels of the context frames, float [n, C, h, w].

    Returns:
        float [C, h, w]: for each patch the mean label of the `topk` most similar patches over all contexts
        jointly, weighted by softmax(cosine / temperature). All patches as similar as the last of them count
        too. Not renormalized. Memory for 8 contexts of 60 x 104 patches with D = 384 is about 50 MB.
    """
    height, width, _ = target.shape
    label_vectors = labels.permute(0, 2, 3, 1)  # [contexts, h, w, C]
    result = target.new_empty(height, width, labels.shape[1])
    windowed = slice(1 if preset.first_unmasked else 0, None)
    # Small tiles waste least of the products outside the window; a GPU needs larger ones to be busy.
    tile_height, tile_width = (8, 13) if target.device.type == "cpu" else (20, 26)
    for columns, near_columns in _tiles(width, tile_width, preset.radius):
        # Copied once for a column of tiles; the rows near a tile are then a view of it.
        strip = contexts[windowed, :, near_columns].contiguous()  # [contexts, h, columns, D]
        strip_labels = label_vectors[windowed, :, near_columns]
        for rows, near in _tiles(height, tile_height, preset.radius):
            queries = target[rows, columns].flatten(0, 1)  # [queries, D]
            similarity = _similarity(queries, strip[:, near])
            outside = ~_in_window(rows, near, columns, near_columns, preset, target.device)
            sources = [(similarity.masked_fill_(outside[:, None], -torch.inf), strip_labels[:, near])]
            if preset.first_unmasked:
                sources.insert(0, (_similarity(queries, contexts[:1]), label_vectors[:1]))
            averages = _average(sources, preset.topk, preset.temperature)  # [queries, C]
            result[rows, columns] = averages.unflatten(0, (-1, columns.stop - columns.start))
    return result.permute(2, 0, 1)


def _tiles(length: int, size: int, radius: int) -> Iterator[tuple[slice, slice]]:
    """Divide a side into pieces; yield each piece, and all positions in the windows of its patches."""
    for start in range(0, length, size):
        stop = min(start + size, length)
        yield slice(start, stop), slice(max(start - radius, 0), min(stop + radius, length))


def _in_window(
    rows: slice, near_rows: slice, columns: slice, near_columns: slice, preset: Preset, device: torch.device
) -> Tensor:
    """Mark the patches nearby that are in the window of each query: [queries, rows, columns]."""
    down, right = (
        torch.arange(near.start, near.stop, device=device)
        - torch.arange(own.start, own.stop, device=device)[:, None]
        for own, near in ((rows, near_rows), (columns, near_columns))
    )
    down, right, radius = down[:, None, :, None], right[None, :, None, :], preset.radius
    if preset.window == "square":
        inside = (down.abs() <= radius) & (right.abs() <= radius)
    else:
        inside = down**2 + right**2 < radius**2
    return inside.flatten(0, 1)


def _similarity(queries: Tensor, contexts: Tensor) -> Tensor:
    """Compute the cosines of queries [queries, D] with contexts: [queries, contexts, rows, columns]."""
    count, rows, columns, _ = contexts.shape
    similarity = queries.new_empty(len(queries), count, rows * columns)
    for number, context in enumerate(contexts):
        # Products of all frames have one shape: equal frames then give equal bits, and ties stay ties.
        torch.mm(queries, context.flatten(0, 1).T, out=similarity[:, number])
    return similarity.unflatten(-1, (rows, columns))


_NEIGHBORS_AT_A_TIME = 1 << 18  # in a black border all patches of the window are equal neighbors


DENSE_DEVICES = ("cuda",)
"""Devices that weight all patches with 0 or more: the host does not wait for the number of neighbors."""


def _average(sources: list[tuple[Tensor, Tensor]], topk: int, temperature: float) -> Tensor:
    """Average the labels [queries, C] of the neighbors that are as similar as the k-th or more.

    A source is similarities [queries, contexts, rows, columns], -inf outside the window, and labels
    [contexts, rows, columns, C].
    """
    best = torch.cat([_largest(similarity.flatten(1, 2), topk) for similarity, _ in sources], dim=1)
    best = best.topk(min(topk, best.shape[1])).values
    # A window with fewer than k patches has -inf for its k-th; what lies outside it must stay out.
    threshold = best[:, -1:].clamp(min=torch.finfo(best.dtype).min)
    total = best.new_zeros(len(best))
    average = best.new_zeros(len(best), sources[0][1].shape[-1])
    for values, labels in ((similarity.flatten(1), labels.flatten(0, 2)) for similarity, labels in sources):
        if values.device.type in DENSE_DEVICES:
            weights = ((values - best[:, :1]) / temperature).exp_().mul_(values >= threshold)
            total += weights.sum(dim=1)
            average += weights @ labels
            continue
        for query, patch in (part.T for part in (values >= threshold).nonzero().split(_NEIGHBORS_AT_A_TIME)):
            weight = ((values[query, patch] - best[query, 0]) / temperature).exp()
            total.index_add_(0, query, weight)
            average.index_add_(0, query, labels[patch] * weight[:, None])
    return average / total[:, None]


def _largest(rows: Tensor, count: int) -> Tensor:
    """Return the largest values of each query, given [queries, rows, columns]: [queries, up to count].

    The `count` rows with the largest maxima hold them, so only those rows are searched.
    """
    best = rows.amax(-1).topk(min(count, rows.shape[1])).indices
    candidates = rows.gather(1, best[..., None].expand(-1, -1, rows.shape[2])).flatten(1)
    return candidates.topk(min(count, candidates.shape[1])).values


class Propagator:
    """Propagates labels frame by frame; its memory does not grow with the video.

    Keeps the normalized features and soft labels of the first frame and of the `preset.previous` latest ones.
    """

    def __init__(self, features: Tensor, labels: Tensor, preset: Preset = DINO) -> None:
        """Start with patch features [h, w, D] and labels [C, h, w] of the first frame, see `grid_labels`."""
        height, width, dimension = features.shape
        slots = 1 + preset.previous
        self.preset = preset
        self._features = features.new_empty(slots, height, width, dimension)
        self._labels = features.new_empty(slots, len(labels), height, width)
        self._frames = 1
        self._features[0] = _normalize(features)
        self._labels[0] = labels
        if preset.repeat_first:
            self._features[1:] = self._features[0]
            self._labels[1:] = self._labels[0]

    def step(self, features: Tensor) -> Tensor:
        """Compute the soft labels [C, h, w] of the next frame, given its patch features [h, w, D]."""
        target = _normalize(features)
        slots = len(self._features)
        known = slots if self.preset.repeat_first else min(self._frames, slots)
        contexts = self._features[:known], self._labels[:known]
        labels = propagate_step(target, *contexts, self.preset)
        if slots > 1:  # slot 0 keeps the first frame; the others are replaced in turn, the oldest first
            slot = 1 + (self._frames - 1) % (slots - 1)
            self._features[slot] = target
            self._labels[slot] = labels
        self._frames += 1
        return labels


def _normalize(features: Tensor) -> Tensor:
    if not features.isfinite().all():
        raise ValueError("patch features hold infinite or undefined numbers; compute them in fp32 instead")
    return F.normalize(features.float(), dim=-1)


def grid_labels(
    mask: Labels, ids: Sequence[int], input_size: tuple[int, int], patch_size: int, preset: Preset = DINO
) -> Tensor:
    """Convert labels [H, W] to channels on the patch grid: float32 [1 + len(ids), rows, columns].

    Channel 0 is the background, with void; the others are the objects `ids`, and may be empty. `input_size`
    is height and width in pixels of the model's input, padded at the bottom and right to whole patches.
    """
    grid = ceil(input_size[0] / patch_size), ceil(input_size[1] / patch_size)
    # The grid may reach beyond the image: give the mask the same share of background there.
    beyond = [round(m * g * patch_size / f) - m for m, g, f in zip(mask.shape, grid, input_size, strict=True)]
    mask = np.pad(mask, ((0, beyond[0]), (0, beyond[1])))
    if preset.mask_resize == "nearest":
        small = resize_nearest(mask, grid)
        channels = torch.from_numpy(np.stack([small == label for label in ids])).float()
    else:
        channels = torch.stack([_bilinear(torch.from_numpy(mask == label), grid) for label in ids])
    return torch.cat([1 - channels.sum(0, keepdim=True), channels])


def _bilinear(channel: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(channel[None, None].float(), size=size, mode="bilinear", align_corners=False)[0, 0]


def vanished_objects(
    mask: Labels, input_size: tuple[int, int], patch_size: int, preset: Preset = DINO
) -> tuple[int, ...]:
    """List the objects that cover no patch and cannot be followed; arguments as `grid_labels`."""
    ids = object_ids(mask)
    channels = grid_labels(mask, ids, input_size, patch_size, preset)[1:]
    return tuple(label for label, channel in zip(ids, channels, strict=True) if not channel.any())


def hard_labels(soft: Tensor, patch_size: int, preset: Preset = DINO) -> NDArray[np.uint8]:
    """Return the channel with the largest label at every pixel: uint8 [h * patch_size, w * patch_size].

    The labels on the patch grid, float [C, h, w], are enlarged bilinearly. Of equal channels the first wins.
    """
    height, width = (side * patch_size for side in soft.shape[1:])
    highest = soft.new_full((height, width), -torch.inf)
    winner = torch.zeros(height, width, dtype=torch.uint8, device=soft.device)
    for index, channel in enumerate(soft):
        large = _bilinear(channel, (height, width))
        low, high = channel.aminmax()
        # A constant channel is not scaled: the result would be 0 / 0 or rounding errors.
        if preset.min_max:
            scaled = (large - large.min()) / (large.max() - large.min())
            large = torch.where(high > low, scaled, large)
        winner = torch.where(large > highest, index, winner)
        highest = torch.maximum(highest, large)
    return winner.to(torch.uint8).cpu().numpy()


class ColorPatches:
    """Computes the colors of a patch as its feature: the baseline without a network."""

    resize: Resize = "davis"

    def __init__(self, patch_size: int = 8, size: int = 480) -> None:
        self.patch_size, self.size = patch_size, size

    def features(self, images: Sequence[ImageArray]) -> Tensor:
        """Subtract the mean patch of each frame: float32 [frames, rows, columns, 3 * patch_size**2]."""
        height, width = images[0].shape[:2]
        height, width = fed_size(height, width, self.size, self.resize, self.patch_size)
        resized = np.stack([cv2.resize(image, (width, height)) for image in images])  # bilinear
        beyond = -height % self.patch_size, -width % self.patch_size
        padded = np.pad(resized, ((0, 0), (0, beyond[0]), (0, beyond[1]), (0, 0)), mode="edge")
        pixels = torch.from_numpy(padded).float() / 255
        patches = pixels.unflatten(2, (-1, self.patch_size)).unflatten(1, (-1, self.patch_size))
        vectors = patches.transpose(2, 3).flatten(3)  # [frames, rows, columns, D]
        return vectors - vectors.mean((1, 2), keepdim=True)


def propagate_masks(
    read: ReadFrames,
    masks: Mapping[int, Labels],
    source: AttentionPredictor | ColorPatches,
    preset: Preset = DINO,
    batch: int = 4,
    *,
    overlap: bool = False,
    backward: bool = True,
) -> Iterator[Labels]:
    """Label every frame of a video from the labels of some frames, as `propagate_steps`.

    Yields:
        Labels of each frame, uint8 [H, W]; where it has a mask, that mask over the propagated labels.

    Raises:
        ValueError: As `propagate_steps`.
    """
    steps = propagate_steps(read, masks, source, preset, batch, overlap=overlap, backward=backward)
    return (labels for labels in steps if labels is not None)


def propagate_steps(
    read: ReadFrames,
    masks: Mapping[int, Labels],
    source: AttentionPredictor | ColorPatches,
    preset: Preset = DINO,
    batch: int = 4,
    *,
    objects: Mapping[int, Sequence[int]] | None = None,
    overlap: bool = False,
    backward: bool = True,
) -> Iterator[Labels | None]:
    """Label every frame of a video from the labels of some frames, forward and backward.

    A mask replaces the objects that it has, from its frame on; other objects continue. Between two masks each
    object's soft labels of both directions are averaged, weighted by the nearness of the masks that have it.
    Soft labels of the backward direction are kept in a file until their frame is reached, so memory does not
    grow with the video. A single mask of the first frame gives the official propagation.

    Args:
        read: Returns the frames from one number up to another, or to the end: uint8 [H, W, 3] each.
        masks: Labels of frames by their number, uint8 [H, W]: 0 background, 255 void, which is not an object.
        objects: Objects that each mask decides; one without a pixel ends there. Default: those with pixels.
        batch: Frames whose features are computed at once; at most a batch is read ahead.
        overlap: Read and compute in threads of their own.
        backward: False labels no frame from a later mask, so an object starts in its first mask.

    Yields:
        None for a frame of the backward direction, and the labels of each frame in order, uint8 [H, W].

    Raises:
        ValueError: No object, masks or frames of several sizes, or a mask after the last frame.
    """
    video = _Annotated(masks, source, preset, objects)
    numbers, ahead = sorted(masks), partial(run_ahead, depth=batch) if overlap else iter
    propagator, labels, spool = None, np.zeros(video.size, np.uint8), _Spool()
    in_forward = torch.zeros(len(video.ids), dtype=torch.bool)
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
            in_forward = in_forward | video.is_decided(number)
            yield labels
            continue
        if upcoming > number:
            share = (upcoming - number) / (upcoming - previous)
            back, in_backward = spool.pop().to(features.device), video.is_decided(upcoming)
            soft = back if soft is None else _blend(soft, back, in_forward, in_backward, share)
        yield labels if soft is None else video.enlarge(soft)  # None: before the first mask
    if numbers[-1] > number:
        raise ValueError(f"a mask belongs to frame {numbers[-1]}, but the last frame is {number}")


class _Annotated:
    """Masks of some frames of a video, its objects, and their grid."""

    def __init__(
        self,
        masks: Mapping[int, Labels],
        source: AttentionPredictor | ColorPatches,
        preset: Preset,
        objects: Mapping[int, Sequence[int]] | None,
    ) -> None:
        self.masks, self.source, self.preset = masks, source, preset
        self.objects = objects or {number: object_ids(mask) for number, mask in masks.items()}
        self.ids = sorted(set().union(*map(object_ids, masks.values())))
        if not self.ids:
            raise ValueError("the first mask marks no object: every pixel is 0 (background) or 255 (void)")
        first = masks[min(masks)]
        self.size = first.shape[0], first.shape[1]
        for number, mask in masks.items():
            check_size(f"the mask of frame {number}", mask.shape, "the first mask", self.size)
        self.input_size = fed_size(*self.size, source.size, source.resize, source.patch_size)

    def start(self, labels: Labels, features: Tensor) -> Propagator:
        """Propagate labels [H, W] from the frame that has these features."""
        channels = grid_labels(labels, self.ids, self.input_size, self.source.patch_size, self.preset)
        return Propagator(features, channels.to(features.device), self.preset)

    def enlarge(self, soft: Tensor) -> Labels:
        """Convert soft labels [C, h, w] to labels of the size of the frames."""
        winner = hard_labels(soft, self.source.patch_size, self.preset)
        names = np.array([0, *self.ids], np.uint8)
        return resize_nearest(names[winner[: self.input_size[0], : self.input_size[1]]], self.size)

    def is_decided(self, number: int) -> Tensor:
        """Mark the objects that the mask of a frame decides: Boolean [objects]."""
        return torch.tensor([label in self.objects[number] for label in self.ids])

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
    """Average soft labels [C, h, w] of two directions; each object counts where a mask has it [C - 1].

    `share` is the weight of `forward` for objects that both directions have.
    """
    ahead, behind = share * in_forward, (1 - share) * in_backward
    weight = (ahead / (ahead + behind).clamp(min=1e-9)).to(forward)[:, None, None]
    objects = weight * forward[1:] + (1 - weight) * backward[1:]
    return torch.cat([(1 - objects.sum(0, keepdim=True)).clamp(min=0), objects])


class _Spool:
    """Soft labels of one direction in a temporary file, from which they are taken in reverse order."""

    def __init__(self) -> None:
        self._file, self._count = tempfile.TemporaryFile(), 0  # noqa: SIM115  removed with this object

    def append(self, item: Tensor) -> None:
        """Write an item."""
        values = item.cpu().numpy().astype(np.float32)
        self._shape = values.shape
        self._file.write(values.tobytes())
        self._count += 1

    def pop(self) -> Tensor:
        """Return the item that was written last, of those that are left."""
        self._count -= 1
        values = np.empty(self._shape, np.float32)
        self._file.seek(self._count * values.nbytes)
        values[:] = np.frombuffer(self._file.read(values.nbytes), np.float32).reshape(self._shape)
        return torch.from_numpy(values)


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
    source: AttentionPredictor | ColorPatches,
    batch: int,
) -> Iterator[Tensor]:
    """Yield the patch features [rows, columns, D] of each frame, computed in batches."""
    numbered = enumerate(frames)
    while images := list(islice(numbered, batch)):
        for number, image in images:
            check_size(f"frame {number}", image.shape, "the first mask", size)
        yield from source.features([image for _, image in images])
