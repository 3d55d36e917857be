"""Propagation of labels from frame to frame by nearest neighbors of patch features.

Each patch of the next frame takes the average label of the most similar patches in the frames before. The
step is exact, ties included, and its memory is bounded by tiles. `tracking` applies it to whole videos.

Source: DINO, section 4.2.2 and table 5; Jabri et al. 2020, appendix F. Protocol: docs/protocols.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from dino_model.models.load import LoadedModel
from segmentation.labels import Labels, object_ids, resize_nearest
from segmentation.masks import ImageArray


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

    def __init__(self, size: int, patch_size: int = 8) -> None:
        self.patch_size, self.size = patch_size, size

    def features(self, images: Sequence[ImageArray]) -> Tensor:
        """Subtract the mean patch of each frame: float32 [frames, rows, columns, 3 * patch_size**2]."""
        height, width = input_size(images[0].shape, self)
        resized = np.stack([cv2.resize(image, (width, height)) for image in images])  # bilinear
        beyond = -height % self.patch_size, -width % self.patch_size
        padded = np.pad(resized, ((0, 0), (0, beyond[0]), (0, beyond[1]), (0, 0)), mode="edge")
        pixels = torch.from_numpy(padded).float() / 255
        patches = pixels.unflatten(2, (-1, self.patch_size)).unflatten(1, (-1, self.patch_size))
        vectors = patches.transpose(2, 3).flatten(3)  # [frames, rows, columns, D]
        return vectors - vectors.mean((1, 2), keepdim=True)


FrameSource = AttentionPredictor | ColorPatches
"""Computes patch features of frames."""


def input_size(size: tuple[int, ...], source: FrameSource) -> tuple[int, int]:
    """Return height and width of the input of `source` for frames of a size (height, width)."""
    return fed_size(size[0], size[1], source.size, source.resize, source.patch_size)


def vanished_objects(mask: Labels, source: FrameSource, preset: Preset = DINO) -> tuple[int, ...]:
    """List the objects of a mask [H, W] that cover no patch and cannot be followed."""
    if not (ids := object_ids(mask)):
        return ()
    channels = grid_labels(mask, ids, input_size(mask.shape, source), source.patch_size, preset)[1:]
    return tuple(label for label, channel in zip(ids, channels, strict=True) if not channel.any())
