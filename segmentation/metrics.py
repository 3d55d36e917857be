"""Region similarity J, contour accuracy F and their statistics over frames, as DAVIS defines them."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, hypot
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]

CONTOUR_TOLERANCE = 0.008
"""Largest distance of matching contour pixels, as a share of the image diagonal."""


def jaccard(prediction: Mask, ground_truth: Mask, void: Mask | None = None) -> Scores:
    """Compute the Jaccard similarity (intersection over union) of masks: J of DAVIS, the score of VOC.

    Args:
        prediction: Boolean masks [..., H, W].
        ground_truth: Boolean masks [..., H, W]; leading axes broadcast against those of `prediction`.
        void: Excluded pixels, Boolean [..., H, W]; None excludes no pixel.

    Returns:
        float64 in [0, 1], shape [...] of the broadcast leading axes. An empty union gives 1.

    Raises:
        ValueError: A mask is not Boolean, or heights and widths differ.

    Source: Perazzi et al. 2016, section 4.1; DINO, figure 4.
    """
    _check_masks(prediction, ground_truth, void)
    if void is not None:
        prediction, ground_truth = prediction & ~void, ground_truth & ~void
    intersection = _area(prediction & ground_truth)
    union = _area(prediction | ground_truth)
    return np.where(union == 0, 1.0, intersection / np.maximum(union, 1))


def _area(masks: Mask) -> NDArray[np.int64]:
    """Number of set pixels of each mask: [..., H, W] -> [...]."""
    flat = masks.reshape(-1, masks.shape[-2] * masks.shape[-1])
    # count_nonzero over an axis is many times slower than over one contiguous mask
    counts = np.array([np.count_nonzero(mask) for mask in flat], dtype=np.int64)
    return counts.reshape(masks.shape[:-2])


def _check_masks(prediction: Mask, ground_truth: Mask, void: Mask | None) -> None:
    for mask in (prediction, ground_truth) if void is None else (prediction, ground_truth, void):
        if mask.dtype != np.bool_:
            raise ValueError(f"a mask is of type {mask.dtype}; pass a Boolean mask, for example labels == 1")
        if mask.ndim < 2 or mask.shape[-2:] != prediction.shape[-2:]:
            raise ValueError(
                f"a mask has shape {mask.shape}, the prediction {prediction.shape}; expected the same height "
                "and width on the last two axes"
            )


def contour_radius(height: int, width: int, tolerance: float = CONTOUR_TOLERANCE) -> int:
    """Return the largest distance in pixels at which two contour pixels match: 8 at 854x480.

    `tolerance` is a share of the diagonal if below 1, else a number of pixels.
    """
    return int(tolerance) if tolerance >= 1 else ceil(tolerance * hypot(height, width))


def contour(mask: Mask) -> Mask:
    """Mark the boundary pixels of a mask: those unlike their right, lower or lower-right neighbor.

    Args:
        mask: Boolean [H, W].

    Returns:
        Boolean [H, W]. The last row looks to the right only, the last column down only, and the bottom-right
        pixel is never a boundary: a mask that fills the frame has no contour.

    Source: the boundary map of the Berkeley segmentation benchmark, as DAVIS uses it.
    """
    edges = np.zeros_like(mask)
    edges[:, :-1] = mask[:, :-1] ^ mask[:, 1:]
    edges[:-1, :] |= mask[:-1, :] ^ mask[1:, :]
    edges[:-1, :-1] |= mask[:-1, :-1] ^ mask[1:, 1:]
    return edges


@dataclass(frozen=True)
class Contour:
    """The contour of one mask, prepared for matching with other contours of the same image.

    Attributes:
        y, x: Boundary pixels, int64 [points] each.
        corner: y and x of the top left corner of `reach` in the image; pixels outside are out of reach.
        reach: 1 where a boundary pixel is within the matching radius, uint8 [rows, columns].
    """

    y: NDArray[np.int64]
    x: NDArray[np.int64]
    corner: tuple[int, int]
    reach: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.y)

    def share_within_reach(self, other: "Contour") -> float:
        """Return the share of the boundary pixels within the radius of another contour, in [0, 1]."""
        y, x = self.y - other.corner[0], self.x - other.corner[1]
        inside = (y >= 0) & (y < other.reach.shape[0]) & (x >= 0) & (x < other.reach.shape[1])
        return int(np.count_nonzero(other.reach[y[inside], x[inside]])) / len(self)


def trace(mask: Mask, radius: int) -> Contour:
    """Compute the contour of a mask, Boolean [H, W], and the pixels within `radius` (Euclidean) of it."""
    height, width = mask.shape
    left, top, box_width, box_height = cv2.boundingRect(mask.view(np.uint8))
    # A contour starts one pixel before its mask, and reach ends at the radius.
    margin = radius + 1 if box_width else 0
    rows = slice(max(top - margin, 0), min(top + box_height + margin, height))
    columns = slice(max(left - margin, 0), min(left + box_width + margin, width))
    edges = contour(mask[rows, columns])
    y, x = np.divmod(np.flatnonzero(edges), max(edges.shape[1], 1))  # nonzero is many times slower
    reach = edges.view(np.uint8)
    if len(y):
        reach[:] = cv2.dilate(reach, _disk(radius), borderType=cv2.BORDER_CONSTANT)
    return Contour(y + rows.start, x + columns.start, (rows.start, columns.start), reach)


@lru_cache(maxsize=8)
def _disk(radius: int) -> NDArray[np.uint8]:
    y, x = np.ogrid[-radius : radius + 1, -radius : radius + 1]
    return (x * x + y * y <= radius * radius).astype(np.uint8)


def contour_match(prediction: Contour, ground_truth: Contour) -> float:
    """Compute the harmonic mean of contour precision and recall: F in [0, 1].

    Two masks without contour give 1, one mask without contour gives 0. So a full frame and an empty frame
    have F = 1 and J = 0, as in the official evaluator.
    """
    if not len(prediction) or not len(ground_truth):
        return float(len(prediction) == len(ground_truth))
    precision = prediction.share_within_reach(ground_truth)
    recalled = ground_truth.share_within_reach(prediction)
    return 2 * precision * recalled / (precision + recalled) if precision + recalled else 0.0


def contour_accuracy(
    prediction: Mask, ground_truth: Mask, void: Mask | None = None, tolerance: float = CONTOUR_TOLERANCE
) -> float:
    """Compute the contour accuracy F of DAVIS for one pair of masks.

    Args:
        prediction, ground_truth: Boolean [H, W].
        void: Boolean [H, W], cleared in both masks before their contours are computed; its edge may
            become a contour.
        tolerance: see `contour_radius`.

    Returns:
        F in [0, 1]; see `contour_match` for masks without contour.

    Raises:
        ValueError: A mask is not Boolean, or sizes differ.

    Source: Perazzi et al. 2016, section 4.2.
    """
    _check_masks(prediction, ground_truth, void)
    if void is not None:
        prediction, ground_truth = prediction & ~void, ground_truth & ~void
    height, width = prediction.shape
    radius = contour_radius(height, width, tolerance)
    return contour_match(trace(prediction, radius), trace(ground_truth, radius))


class Statistics(NamedTuple):
    """Statistics of the scores of one object over its frames, as shares; decay may be negative."""

    mean: float
    recall: float
    decay: float


def statistics(values: Scores) -> Statistics:
    """Compute mean, recall and decay of one object's J or F, float64 [frames], at least one frame."""
    return Statistics(float(values.mean()), recall(values), decay(values))


def recall(values: Scores, threshold: float = 0.5) -> float:
    """Return the share of frames whose score is strictly above the threshold."""
    return float(np.mean(values > threshold))


def decay(values: Scores, bins: int = 4) -> float:
    """Return the mean score of the first quarter of the frames minus that of the last quarter.

    Adjacent quarters share a frame. The official evaluator stores frame numbers in 8 bits and reports NaN or
    wrong values from 256 scored frames on; below, this function is equal to it.
    """
    # The small addend rounds halves up; round() alone rounds them to the even neighbor.
    edges = np.round(np.linspace(1, len(values), bins + 1) + 1e-10).astype(np.int64) - 1
    return float(values[: edges[1] + 1].mean() - values[edges[-2] :].mean())


def confusion(prediction: NDArray[np.uint8], ground_truth: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Count pixels by true and predicted label: [256, 256]; pixels with true label 255 are left out.

    Args:
        prediction, ground_truth: Labels of the same shape.
    """
    pairs = ground_truth.ravel().astype(np.int32) * 256 + prediction.ravel()
    counts = np.bincount(pairs, minlength=256 * 256).reshape(256, 256)
    counts[255] = 0
    return counts


def class_jaccard(counts: NDArray[np.int64]) -> dict[int, float]:
    """Compute the Jaccard similarity (IoU) of each class over all pixels of a data set.

    Args:
        counts: Sum of the `confusion` of all images, [256, 256].

    Returns:
        Value in [0, 1] by label, ascending. A label that occurs neither in the ground truth nor in the
        predictions is left out; one that occurs in the predictions only has 0.

    Source: Everingham et al. 2015, segmentation accuracy.
    """
    correct, union = counts.diagonal(), counts.sum(axis=0) + counts.sum(axis=1) - counts.diagonal()
    return {int(label): float(correct[label] / union[label]) for label in np.flatnonzero(union)}
