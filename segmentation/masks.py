"""From attention maps to masks: the kept mass, the best head, connected components, boxes, run lengths."""

import re
from typing import Any, Literal, NamedTuple, TypedDict

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from pycocotools import mask as coco_mask
from torch import Tensor

from segmentation.metrics import jaccard

_RUNS = re.compile(r"(?:[P-o]{0,6}[0-O])+")  # letters from P on say that more of the same run follows

Mask = NDArray[np.bool_]
Interpolation = Literal["nearest", "bilinear"]


class Box(NamedTuple):
    """A box in pixels; `right` and `bottom` are the first column and row outside it."""

    left: int
    top: int
    right: int
    bottom: int


class RunLengths(TypedDict):
    """A mask in COCO's compressed run-length encoding; `counts` is text, so that it fits into JSON."""

    size: list[int]  # height, width
    counts: str


def keep_mass(attention: Tensor, mass: float = 0.6) -> Tensor:
    """Smallest set of patches that holds at least `mass` of each map's attention.

    Args:
        attention: non-negative, last axis = patches, [CLS] left out: [..., patches].
        mass: share to keep, in (0, 1].

    Returns:
        Boolean mask of the same shape. The patch that crosses the threshold is kept; ties go to the later
        patch.

    Raises:
        ValueError: `mass` outside (0, 1], a negative or non-finite value, or a map that sums to zero.

    Source: section 4.2.2, "Probing the self-attention map".
    """
    if not 0 < mass <= 1:
        raise ValueError(f"mass is {mass}; expected a share above 0 and up to 1, such as 0.6")
    attention = attention.double() if attention.dtype == torch.float64 else attention.float()
    total = attention.sum(-1, keepdim=True)
    if not bool(torch.isfinite(total).all()) or bool((attention < 0).any()):
        raise ValueError("an attention map holds negative or non-finite values; pass it after the softmax")
    if bool((total == 0).any()):
        raise ValueError("an attention map sums to zero, so no share of it can be kept")
    ascending, order = torch.sort(attention, dim=-1, stable=True)
    # Divided, then summed up, then compared with 1 - mass: in the official code's order, for equal bits.
    kept = (ascending / total).cumsum(-1) > 1 - mass
    kept[..., -1] = True  # where rounding left the sum below 1 - mass: a mask is never empty
    return torch.zeros_like(kept).scatter(-1, order, kept)


def keep_mass_of_maps(attention: NDArray[np.floating], mass: float = 0.6) -> Mask:
    """`keep_mass` for maps on a grid: [..., rows, columns] -> boolean mask of the same shape.

    Raises:
        ValueError: as `keep_mass`.
    """
    flat = attention.reshape(*attention.shape[:-2], -1)
    return keep_mass(torch.from_numpy(np.ascontiguousarray(flat)), mass).numpy().reshape(attention.shape)


def enlarge(
    maps: NDArray[Any], size: tuple[int, int], interpolation: Interpolation = "nearest"
) -> NDArray[Any]:
    """Maps on a patch grid, resampled to `size` (height, width) pixels: [..., rows, columns] -> [..., *size].

    Nearest takes the patch that holds the pixel's centre and keeps the type; bilinear gives float32, with a
    patch's value standing at the patch's centre.
    """
    if interpolation == "bilinear":
        flat = np.ascontiguousarray(maps, dtype=np.float32).reshape(-1, *maps.shape[-2:])
        height, width = size
        resized = [cv2.resize(one, (width, height), interpolation=cv2.INTER_LINEAR) for one in flat]
        return np.stack(resized).reshape(*maps.shape[:-2], *size)
    rows, columns = (
        (2 * np.arange(pixels) + 1) * patches // (2 * pixels)
        for pixels, patches in zip(size, maps.shape[-2:], strict=True)
    )
    return maps.take(columns, axis=-1).take(rows, axis=-2)


def best_head(masks: Mask, ground_truth: Mask, void: Mask | None = None) -> tuple[int, float]:
    """The head whose mask agrees best with the ground truth, and its Jaccard similarity in [0, 1].

    Args:
        masks: [heads, height, width].
        ground_truth: [height, width].
        void: pixels that count neither in the intersection nor in the union: [height, width].

    Source: the best of the heads is chosen with the ground truth at hand, as the paper's authors do.
    """
    scores = jaccard(masks, ground_truth[None], None if void is None else void[None])
    head = int(scores.argmax())
    return head, float(scores[head])


def central_head(masks: Mask) -> int:
    """The head whose mask lies nearest the middle, where objects tend to be: a choice without ground truth.

    Nearness is the mean squared distance of the mask's pixels from the centre, the picture being 1 × 1. No
    score is computed so: `best_head` is what `voc` and docs/embedded-model.md tell figures of.

    Args:
        masks: [heads, height, width]. Of equals the first is taken; an empty mask comes last.
    """
    _, height, width = masks.shape
    down, across = ((np.arange(length) + 0.5) / length - 0.5 for length in (height, width))
    distance = down[:, None] ** 2 + across**2  # [height, width]
    area = masks.sum(axis=(1, 2))
    spread = np.divide(
        (masks * distance).sum(axis=(1, 2)), area, out=np.full(len(masks), np.inf), where=area > 0
    )
    return int(spread.argmin())


def components(mask: Mask, connectivity: Literal[4, 8] = 4) -> NDArray[np.int32]:
    """Connected parts of a mask, numbered from 1 by falling area (0 outside): [height, width].

    Parts of one area are numbered in reading order of their first pixel.
    """
    count, labels, statistics, _ = cv2.connectedComponentsWithStats(
        np.ascontiguousarray(mask, dtype=np.uint8), connectivity=connectivity, ltype=cv2.CV_32S
    )
    areas = statistics[1:, cv2.CC_STAT_AREA]
    first = np.zeros(count, dtype=np.int64)
    first[labels.ravel()[::-1]] = np.arange(labels.size)[
        ::-1
    ]  # of several writes to one place the last stays
    number = np.zeros(count, dtype=np.int32)
    number[1 + np.lexsort((first[1:], -areas))] = np.arange(1, count)
    return number[labels]


def component_at(mask: Mask, row: int, column: int, connectivity: Literal[4, 8] = 4) -> Mask:
    """The connected part of `mask` that holds one cell; empty when the cell is outside the mask."""
    labels = components(mask, connectivity)
    return mask & (labels == labels[row, column])


def bounding_box(mask: Mask) -> Box:
    """The smallest box around a mask.

    Raises:
        ValueError: the mask is empty.
    """
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if rows.size == 0:
        raise ValueError("an empty mask has no bounding box")
    return Box(int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)


def rle(mask: Mask) -> RunLengths:
    """COCO run-length encoding of a mask [height, width], fit for JSON and for `COCO.loadRes`."""
    encoded = coco_mask.encode(np.asfortranarray(mask, dtype=np.uint8))
    return {"size": [int(side) for side in encoded["size"]], "counts": encoded["counts"].decode("ascii")}


def decode(encoded: RunLengths) -> Mask:
    """The mask [height, width] of a run-length encoding, whoever made it.

    The runs are summed up first: where they end early, pycocotools would hand out what lies in memory.

    Raises:
        ValueError: counts that are no compressed run lengths, or cover more or fewer pixels than the size.
    """
    (height, width), counts = encoded["size"], encoded["counts"]
    runs = runs_of(counts) if _RUNS.fullmatch(counts) else [-1]
    if min(runs) < 0 or sum(runs) != height * width:
        raise ValueError(f"the counts are not COCO's compressed run lengths of {height} × {width} pixels")
    return coco_mask.decode({"size": [height, width], "counts": counts.encode("ascii")}).astype(bool)


def runs_of(counts: str) -> list[int]:
    """Runs behind COCO's text: 5 bits a letter, the lowest first; from the third on, differences to the
    run before last.
    """
    runs: list[int] = []
    value = shift = 0
    for letter in np.frombuffer(counts.encode("ascii"), np.uint8).astype(int) - ord("0"):
        value |= (int(letter) & 31) << shift
        shift += 5
        if letter & 32:  # more of this run follows
            continue
        if letter & 16:
            value -= 1 << shift
        runs.append(value + runs[-2] if len(runs) > 2 else value)
        value = shift = 0
    return runs
