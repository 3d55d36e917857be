"""Masks of attention maps: mass threshold, best head, connected components, boxes, run lengths."""

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

import cv2
import numpy as np
from numpy.typing import NDArray

from dino_model.inference.resize import resample_nearest
from segmentation.metrics import Mask, jaccard

if TYPE_CHECKING:  # commands import this module before they need PyTorch
    from torch import Tensor

_RUNS = re.compile(r"(?:[P-o]{0,6}[0-O])+")  # from P on, more of the same run follows

ImageArray = NDArray[np.uint8]
"""RGB image: [height, width, 3], values 0 to 255."""

Interpolation = Literal["nearest", "bilinear"]


class Box(NamedTuple):
    """A box in pixels; `right` and `bottom` are the first column and row outside it."""

    left: int
    top: int
    right: int
    bottom: int


class RunLengths(TypedDict):
    """A mask in COCO's run-length encoding; compressed counts are text, so that they fit into JSON."""

    size: list[int]  # height, width
    counts: str | list[int]


def keep_mass(attention: "Tensor", mass: float) -> "Tensor":
    """Select the smallest set of patches that holds a given share of each map's attention.

    Args:
        attention: Non-negative maps without the [CLS] entry, [..., patches].
        mass: Share of the total attention to keep, in (0, 1].

    Returns:
        Boolean mask, same shape. The patch that crosses the threshold is included, of equals the later.

    Raises:
        ValueError: If `mass` is outside (0, 1], or a map has a negative or non-finite value or sums to zero.

    Source: Section 4.2.2, "Probing the self-attention map".
    """
    import torch

    check_mass(mass)
    attention = attention.double() if attention.dtype == torch.float64 else attention.float()
    total = attention.sum(-1, keepdim=True)
    if not bool(torch.isfinite(total).all()) or bool((attention < 0).any()):
        raise ValueError("an attention map holds negative or non-finite values; pass it after the softmax")
    if bool((total == 0).any()):
        raise ValueError("an attention map sums to zero, so no share of it can be kept")
    ascending, order = torch.sort(attention, dim=-1, stable=True)
    # Divide, sum up, compare with 1 - mass: the order of the official code, for the same bits.
    kept = (ascending / total).cumsum(-1) > 1 - mass
    kept[..., -1] = True  # rounding may leave the sum below 1 - mass, but a mask is never empty
    return torch.zeros_like(kept).scatter(-1, order, kept)


def check_mass(mass: float, name: str = "mass") -> None:
    """Raise ValueError if a share of attention is outside (0, 1]; `name` is its name in the message."""
    if not 0 < mass <= 1:
        raise ValueError(f"{name} is {mass}; expected a share above 0 and up to 1, such as 0.6")


def keep_mass_of_maps(attention: NDArray[np.floating], mass: float) -> Mask:
    """Apply `keep_mass` to maps on a grid: [..., rows, columns] -> Boolean, same shape."""
    import torch

    flat = attention.reshape(*attention.shape[:-2], -1)
    return keep_mass(torch.from_numpy(np.ascontiguousarray(flat)), mass).numpy().reshape(attention.shape)


def enlarge(
    maps: NDArray[Any], size: tuple[int, int], interpolation: Interpolation = "nearest"
) -> NDArray[Any]:
    """Resample maps on a patch grid to `size` (height, width) pixels: [..., rows, columns] -> [..., *size].

    `nearest` takes the patch that holds the center of the pixel; `bilinear` returns float32.
    """
    if interpolation == "bilinear":
        flat = np.ascontiguousarray(maps, dtype=np.float32).reshape(-1, *maps.shape[-2:])
        height, width = size
        resized = [cv2.resize(one, (width, height), interpolation=cv2.INTER_LINEAR) for one in flat]
        return np.stack(resized).reshape(*maps.shape[:-2], *size)
    return resample_nearest(maps, size)


def best_head(masks: Mask, ground_truth: Mask, void: Mask | None = None) -> tuple[int, float]:
    """Return the head whose mask [heads, height, width] is most similar to the truth, and the Jaccard."""
    scores = jaccard(masks, ground_truth[None], None if void is None else void[None])
    head = int(scores.argmax())
    return head, float(scores[head])


def central_head(masks: Mask) -> int:
    """Return the head whose mask is nearest to the image center: a choice without ground truth.

    The distance is the mean squared distance of a mask's pixels, [heads, height, width], from the center of a
    1 × 1 image. Ties go to the first head; an empty mask comes last.
    """
    _, height, width = masks.shape
    down, across = ((np.arange(length) + 0.5) / length - 0.5 for length in (height, width))
    distance = (masks * (down[:, None] ** 2 + across**2)).sum(axis=(1, 2))
    area = masks.sum(axis=(1, 2))
    return int(np.where(area > 0, distance / np.maximum(area, 1), np.inf).argmin())


def components(mask: Mask, connectivity: Literal[4, 8] = 4) -> NDArray[np.int32]:
    """Number the connected components of a mask from 1 by descending area, 0 outside: [height, width].

    Components of the same area are numbered in reading order of their first pixel.
    """
    from skimage.measure import label

    labels = label(mask, connectivity=1 if connectivity == 4 else 2)  # in reading order
    areas = np.bincount(labels.ravel())[1:]
    number = np.zeros(len(areas) + 1, dtype=np.int32)
    number[1 + np.argsort(-areas, kind="stable")] = np.arange(1, len(areas) + 1)
    return number[labels]


def component_at(mask: Mask, row: int, column: int) -> Mask:
    """Return the connected component of `mask` at one cell; empty if the cell is outside the mask."""
    labels = components(mask)
    return mask & (labels == labels[row, column])


def bounding_box(mask: Mask) -> Box:
    """Return the smallest box around a mask; raises ValueError if the mask is empty."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if rows.size == 0:
        raise ValueError("an empty mask has no bounding box")
    return Box(int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)


def rle(mask: Mask) -> RunLengths:
    """Encode a mask [height, width] as COCO run lengths for JSON and `COCO.loadRes`."""
    from pycocotools import mask as coco_mask

    encoded = coco_mask.encode(np.asfortranarray(mask, dtype=np.uint8))
    return {"size": [int(side) for side in encoded["size"]], "counts": encoded["counts"].decode("ascii")}


def decode(encoded: RunLengths) -> Mask:
    """Decode run lengths from any source, also as a list of numbers, to a mask [height, width].

    Raises:
        ValueError: The counts are no run lengths, or cover more or fewer pixels than the size.
    """
    (height, width), counts = encoded["size"], encoded["counts"]
    if isinstance(counts, str):
        runs = runs_of(counts) if _RUNS.fullmatch(counts) else [-1]
    else:
        runs = [int(count) for count in counts]
    if min(runs, default=-1) < 0 or sum(runs) != height * width:  # bounds the memory
        raise ValueError(f"the counts are not COCO's run lengths of {height} × {width} pixels")
    values = np.arange(len(runs)) % 2 == 1
    return values.repeat(runs).reshape(width, height).T


def runs_of(counts: str) -> list[int]:
    """Parse COCO's compressed counts: 5 bits per letter, lowest first; differences from the third run on."""
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
