"""Region similarity J, contour accuracy F and the statistics that DAVIS makes of them.

Pure functions on masks and on the scores of one object. The evaluation of whole folders is in `segmentation.davis`.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, hypot

import cv2
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]

CONTOUR_TOLERANCE = 0.008
"""How far apart two matching contours may be, as a share of the picture's diagonal."""


def jaccard(prediction: Mask, ground_truth: Mask, void: Mask | None = None) -> Scores:
    """Intersection over union of masks: the region similarity J of DAVIS, the Jaccard of VOC.

    Args:
        prediction: Boolean masks [..., H, W].
        ground_truth: Boolean masks [..., H, W]; leading axes broadcast against those of `prediction`.
        void: pixels that count neither way, Boolean [..., H, W]; None counts every pixel.

    Returns:
        float64 in [0, 1], shape [...] of the broadcast leading axes. An empty union gives 1.

    Raises:
        ValueError: a mask is not Boolean, or heights and widths differ.

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
    masks = {"prediction": prediction, "ground_truth": ground_truth}
    if void is not None:
        masks["void"] = void
    for name, mask in masks.items():
        if mask.dtype != np.bool_:
            raise ValueError(f"{name} is of type {mask.dtype}; pass a Boolean mask, for example labels == 1")
        if mask.ndim < 2 or mask.shape[-2:] != prediction.shape[-2:]:
            raise ValueError(
                f"{name} has shape {mask.shape}, prediction {prediction.shape}: "
                "masks need the same height and width on their last two axes"
            )


def contour_radius(height: int, width: int, tolerance: float = CONTOUR_TOLERANCE) -> int:
    """Largest distance in pixels at which two contour pixels still match: 8 at 854x480.

    Args:
        height, width: picture in pixels.
        tolerance: share of the diagonal below 1; from 1 on, pixels.
    """
    return int(tolerance) if tolerance >= 1 else ceil(tolerance * hypot(height, width))


def contour(mask: Mask) -> Mask:
    """Boundary pixels of a mask: those that differ from their right, lower or lower-right neighbour.

    Args:
        mask: Boolean [H, W].

    Returns:
        Boolean [H, W]. The last row looks to the right only, the last column down only, and the bottom-right pixel is
        never a boundary: a mask that fills the frame has no contour.

    Source: the boundary map of the Berkeley segmentation benchmark, as DAVIS uses it.
    """
    edges = np.zeros_like(mask)
    edges[:, :-1] = mask[:, :-1] ^ mask[:, 1:]
    edges[:-1, :] |= mask[:-1, :] ^ mask[1:, :]
    edges[:-1, :-1] |= mask[:-1, :-1] ^ mask[1:, 1:]
    return edges
