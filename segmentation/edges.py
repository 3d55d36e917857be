"""Align masks with the edges of their image."""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.masks import ImageArray, Mask

FLAT = 1e-3  # variance of color (on a scale of 0 to 1) below which a region counts as flat
_PIXELS_AT_A_TIME = 1 << 19  # of a strip that is filtered at once: about 150 MB


def refine_edges(masks: Mask, image: ImageArray, radius: int) -> NDArray[np.float32]:
    """Align the edges of masks [..., height, width] with those of their image by the color-guided filter.

    `radius` is the largest shift of an edge in pixels, about the side of a patch. Returns soft masks in
    [0, 1]; above 0.5 is inside.

    Source: He, Sun, Tang 2013, "Guided image filtering", equations 14-16.
    """
    height, width = image.shape[:2]
    soft = np.empty(masks.shape, dtype=np.float32)
    rows = max(2 * radius, _PIXELS_AT_A_TIME // width)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        # Means of means depend on pixels up to two windows away.
        first, last = max(0, top - 2 * radius), min(height, bottom + 2 * radius)
        strip = _guided_filter(masks[..., first:last, :], image[first:last], radius)
        soft[..., top:bottom, :] = strip[..., top - first : bottom - first, :]
    return soft


def _guided_filter(masks: Mask, image: ImageArray, radius: int) -> NDArray[np.floating[Any]]:
    """Filter a strip; pixels within two windows of a cut are wrong."""
    size, window = image.shape[:2], (2 * radius + 1, 2 * radius + 1)

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        means = [cv2.blur(one, window, borderType=cv2.BORDER_REFLECT) for one in values.reshape(-1, *size)]
        return np.stack(means).reshape(values.shape)

    guide = np.ascontiguousarray(np.moveaxis(image, -1, 0)) / 255.0  # [3, height, width]
    center = mean(guide)
    covariance = mean(guide[:, None] * guide) - center[:, None] * center
    red, green, blue = covariance + FLAT * np.eye(3)[..., None, None]
    # Inverse of the covariance at each pixel, by cofactors.
    cofactors = np.stack([np.cross(*pair, axis=0) for pair in ((green, blue), (blue, red), (red, green))])
    determinant = (red * cofactors[0]).sum(axis=0)
    soft = np.empty(masks.shape)
    for place in np.ndindex(masks.shape[:-2]):
        wanted = masks[place].astype(np.float64)
        slope = (cofactors * (mean(guide * wanted) - center * mean(wanted))).sum(axis=1) / determinant
        offset = mean(wanted) - (slope * center).sum(axis=0)
        soft[place] = (mean(slope) * guide).sum(axis=0) + mean(offset)
    return soft.clip(0, 1)
