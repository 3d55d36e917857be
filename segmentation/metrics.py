"""Region similarity J, contour accuracy F and their statistics over frames, as DAVIS defines them."""

from functools import cache
from math import ceil, hypot
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.labels import window

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]

CONTOUR_TOLERANCE = 0.008  # largest distance of matching contour pixels, as a share of the diagonal


def jaccard(prediction: Mask, ground_truth: Mask, void: Mask | None = None) -> Scores:
    """Compute the Jaccard similarity (intersection over union) of masks: J of DAVIS, the score of VOC.

    Args:
        prediction, ground_truth: Boolean masks [..., H, W]; leading axes broadcast.
        void: Excluded pixels, Boolean [..., H, W]; None excludes no pixel.

    Returns:
        float64 in [0, 1], shape [...] of the broadcast leading axes. An empty union gives 1.

    Raises:
        ValueError: A mask is not Boolean, or heights and widths differ.

    Source: Perazzi et al. 2016, section 4.1; DINO, figure 4.
    """
    for mask in (prediction, ground_truth) if void is None else (prediction, ground_truth, void):
        if mask.dtype != np.bool_:
            raise ValueError(f"a mask is of type {mask.dtype}; pass a Boolean mask, for example labels == 1")
        if mask.ndim < 2 or mask.shape[-2:] != prediction.shape[-2:]:
            found = f"a mask has shape {mask.shape}, the prediction {prediction.shape}"
            raise ValueError(f"{found}; expected the same height and width on the last two axes")
    if void is not None:
        prediction, ground_truth = prediction & ~void, ground_truth & ~void
    intersection = _area(prediction & ground_truth)
    union = _area(prediction | ground_truth)
    return np.where(union == 0, 1.0, intersection / np.maximum(union, 1))


def _area(masks: Mask) -> NDArray[np.int64]:
    flat = masks.reshape(-1, masks.shape[-2] * masks.shape[-1])
    # count_nonzero over an axis is many times slower than over one contiguous mask
    return np.array([np.count_nonzero(mask) for mask in flat]).reshape(masks.shape[:-2])


def contour_radius(height: int, width: int) -> int:
    """Return the largest distance in pixels at which two contour pixels match: 8 at 854x480."""
    return ceil(CONTOUR_TOLERANCE * hypot(height, width))


def contour(mask: Mask) -> Mask:
    """Mark the boundary pixels of a mask [H, W]: those unlike their right, lower or lower-right neighbor.

    Neighbors outside of the image do not count: a mask that fills the frame has no contour.

    Source: the boundary map of the Berkeley segmentation benchmark, as DAVIS uses it.
    """
    edges = np.zeros_like(mask)
    edges[:, :-1] = mask[:, :-1] ^ mask[:, 1:]
    edges[:-1, :] |= mask[:-1, :] ^ mask[1:, :]
    edges[:-1, :-1] |= mask[:-1, :-1] ^ mask[1:, 1:]
    return edges


class Contour(NamedTuple):
    """The contour of one mask, prepared for matching with other contours of the same image."""

    places: NDArray[np.int64]  # of the boundary pixels in the flat mask
    reach: Mask  # pixels within the matching radius of one: flat


def trace(mask: Mask, radius: int) -> Contour:
    """Compute the contour of a mask, Boolean [H, W], and the pixels within `radius` (Euclidean) of it."""
    part = window(radius + 1, mask.view(np.uint8))  # a contour starts one pixel before its mask
    reach = np.zeros_like(mask)
    reach[part] = edges = contour(mask[part])
    places = np.flatnonzero(reach)
    if len(places):
        reach[part] = cv2.dilate(edges.view(np.uint8), _disk(radius), borderType=cv2.BORDER_CONSTANT)
    return Contour(places, reach.ravel())


@cache
def _disk(radius: int) -> NDArray[np.uint8]:
    from skimage.morphology import disk  # slow to import

    return np.asarray(disk(radius))


def contour_match(prediction: Contour, ground_truth: Contour) -> float:
    """Compute the harmonic mean of contour precision and recall: F in [0, 1].

    Two masks without contour give 1, one mask without contour gives 0, as in the official evaluator.
    """
    if not len(prediction.places) or not len(ground_truth.places):
        return float(len(prediction.places) == len(ground_truth.places))
    precision = np.count_nonzero(ground_truth.reach[prediction.places]) / len(prediction.places)
    recalled = np.count_nonzero(prediction.reach[ground_truth.places]) / len(ground_truth.places)
    return 2 * precision * recalled / (precision + recalled) if precision + recalled else 0.0


def contour_accuracy(prediction: Mask, ground_truth: Mask) -> float:
    """Compute F of one pair of masks, Boolean [H, W]; source: Perazzi et al. 2016, section 4.2."""
    radius = contour_radius(*prediction.shape)
    return contour_match(trace(prediction, radius), trace(ground_truth, radius))


def statistics(values: Scores) -> dict[str, float]:
    """Compute mean, recall and decay of one object's J or F, float64 [frames], at least one frame.

    Recall is the share of frames whose score is above 0.5. Decay is the mean score of the first quarter of
    the frames minus that of the last; adjacent quarters share a frame.
    """
    # The small addend rounds halves up; round() alone rounds them to the even neighbor.
    edges = np.round(np.linspace(1, len(values), 5) + 1e-10).astype(np.int64) - 1
    decay = values[: edges[1] + 1].mean() - values[edges[-2] :].mean()
    return {"mean": float(values.mean()), "recall": float(np.mean(values > 0.5)), "decay": float(decay)}


def confusion(prediction: NDArray[np.uint8], ground_truth: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Count pixels of equal shapes by true and predicted label: [256, 256], without true label 255."""
    pairs = ground_truth.ravel().astype(np.int32) * 256 + prediction.ravel()
    counts = np.bincount(pairs, minlength=256 * 256).reshape(256, 256)
    counts[255] = 0
    return counts


def class_jaccard(counts: NDArray[np.int64]) -> dict[int, float]:
    """Compute the Jaccard similarity (IoU) of each class, given the sum of the `confusion` of all images.

    Returns values in [0, 1] by label. A label that occurs neither in the ground truth nor in the predictions
    is left out; one that occurs in the predictions only has 0.

    Source: Everingham et al. 2015, segmentation accuracy.
    """
    correct, union = counts.diagonal(), counts.sum(axis=0) + counts.sum(axis=1) - counts.diagonal()
    return {int(label): float(correct[label] / union[label]) for label in np.flatnonzero(union)}
