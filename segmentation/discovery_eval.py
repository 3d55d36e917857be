"""Scores of object discovery: CorLoc of boxes, maxF of masks."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from segmentation.masks import Box, Mask

FConvention = Literal["tokencut", "found"]

PUBLISHED_CORLOC = {
    "voc07": {"lost": 61.9, "tokencut": 68.8},
    "voc12": {"lost": 64.0, "tokencut": 72.1},
}
"""Percent on trainval with DINO ViT-S/16, from the methods' own repositories."""


def is_localized(box: Box | None, objects: Sequence[Box]) -> bool:
    """Return whether a box is correct for CorLoc: Jaccard of at least 0.5 with any object."""
    if box is None or not objects:
        return False
    corners, objects_corners = np.array([box]), np.array(objects)
    sides = np.minimum(corners, objects_corners)[:, 2:] - np.maximum(corners, objects_corners)[:, :2]
    shared = sides.clip(0).prod(axis=1)
    one, others = ((area[:, 2:] - area[:, :2]).prod(axis=1) for area in (corners, objects_corners))
    return bool((2 * shared >= one + others - shared).any())


def f_curve(score: NDArray[np.floating], truth: Mask, convention: FConvention) -> NDArray[np.float64]:
    """Compute the F measure of one soft mask at 255 thresholds from 0 to 1: [255], in [0, 1].

    Pixels of `score` [height, width] at the threshold are inside. The convention is the weight beta squared
    of recall: 0.3 (tokencut) or 0.09 (found, which squares it once more).
    """
    weight = {"tokencut": 0.3, "found": 0.3**2}[convention]
    thresholds = np.linspace(0, 1 - 1e-10, 255)
    passed = np.searchsorted(thresholds, score.astype(np.float64), side="right")  # of each pixel
    inside, correct = (
        np.bincount(passed[chosen], minlength=256)[::-1].cumsum()[::-1][1:]
        for chosen in (np.ones_like(truth), truth)
    )
    precision = correct / np.maximum(inside, 1)
    recall = correct / max(int(truth.sum()), 1)
    return (1 + weight) * precision * recall / np.maximum(weight * precision + recall, 1e-20)


def max_f(curves: NDArray[np.float64], convention: FConvention) -> float:
    """Compute maxF of a data set in [0, 1] from the F curves of its images, [images, 255].

    `tokencut` takes the best common threshold; `found` the best threshold of each image.
    """
    reduced = {"tokencut": curves.mean(axis=0).max, "found": curves.max(axis=1).mean}
    return float(reduced[convention]())


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Average the scores of one method over all images, in percent.

    Each row has `objects`, with boxes `localized`, with masks `iou`, `accuracy`, `f_tokencut` and `f_found`.
    """
    means: dict[str, float] = {}
    for key, name in (("localized", "corloc"), ("iou", "iou"), ("accuracy", "accuracy")):
        if key in rows[0]:
            means[name] = 100 * float(np.mean([row[key] for row in rows]))
    for convention in get_args(FConvention):
        if f"f_{convention}" in rows[0]:
            curves = np.stack([row[f"f_{convention}"] for row in rows])
            means[f"max_f_{convention}"] = 100 * max_f(curves, convention)
    return means | {"objects_per_image": float(np.mean([row["objects"] for row in rows]))}
