"""Jaccard similarity of attention masks on PASCAL VOC 2012: protocol and scores.

The paper leaves the protocol open. A snippet that its author published later settles a part; `VocProtocol`
states the rest.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dino_model.quantities import lift
from segmentation.datasets import Annotation, voc_class_name
from segmentation.labels import VOID, Labels, object_ids
from segmentation.masks import Mask, RunLengths, best_head, enlarge, keep_mass_of_maps, rle

GroundTruth = Literal["class", "object", "foreground"]
Void = Literal["union", "exclude"]

PAPER = {
    "ViT-S/16": {"random": 22.0, "supervised": 27.3, "DINO": 45.9},
    "ViT-S/8": {"random": 21.8, "supervised": 23.7, "DINO": 44.7},
}
"""Percent on VOC12 val, best head: Fig. 4 of the paper, 60 % of the mass; the same in its appendix, 80 %."""


@dataclass(frozen=True, kw_only=True)
class VocProtocol:
    """Everything that decides the score; the defaults follow the author's snippet where it specifies them."""

    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    ground_truth: GroundTruth = "class"
    """Regions to compare masks with: each class of an image, each object, or all objects as one."""
    void: Void = "union"
    """Unannotated pixels (255) stay in the union, or are excluded."""
    head: Literal["best", "mean"] | int = "best"
    """The best head for each class or object, the mean of all heads' maps, or one head by number."""
    resize: Literal["squash", "short-side", "native"] = "squash"
    """How an image is resized for the model."""
    size: int = 480
    """Pixels of the model's input: both sides with squash, the short side with short-side."""
    block: int = -1
    """Block whose [CLS] attention is taken; -1 is the last."""
    split: str = "val"
    """List of images in ImageSets/Segmentation."""

    def __str__(self) -> str:
        size = "own size" if self.resize == "native" else f"{self.resize} {self.size}"
        head = {"best": "best head", "mean": "mean of the heads"}.get(str(self.head), f"head {self.head}")
        return (
            f"{self.split}, ground truth {self.ground_truth}, void {self.void}, {self.mass:.0%} of the mass, "
            f"{head}, {size}, block {self.block}, masks enlarged by nearest, "
            f"mean over each image's regions, then over images"
        )


class Target(NamedTuple):
    """A region that a mask is compared with."""

    label: int  # value in the mask file; 1 for the foreground
    category: int  # class 1–20; 0 for the foreground and where none is known
    mask: Mask  # [height, width]


class TargetScore(NamedTuple):
    """Score of the chosen mask on one target."""

    label: int
    category: int
    head: int  # -1 for the mean of the heads, and where there are none
    jaccard: float  # in [0, 1]
    mask: RunLengths  # of the prediction
    lift: float | None = None  # of the attention, all heads; None without attention, or too small for a patch


class ImageScore(NamedTuple):
    """The targets of one image."""

    name: str
    targets: tuple[TargetScore, ...]

    @property
    def jaccard(self) -> float:
        """Mean over the image's targets, in [0, 1]."""
        return float(np.mean([target.jaccard for target in self.targets]))

    @property
    def lift(self) -> float | None:
        """Mean over the image's targets that have one, at least 0."""
        lifts = [target.lift for target in self.targets if target.lift is not None]
        return float(np.mean(lifts)) if lifts else None


def targets(annotation: Annotation, ground_truth: GroundTruth) -> tuple[list[Target], Mask]:
    """Return the regions to compare masks with, and the void pixels [height, width]."""
    classes, objects = annotation
    if ground_truth == "foreground":
        foreground = (classes != 0) & (classes != VOID)
        return ([Target(1, 0, foreground)] if foreground.any() else []), classes == VOID
    labels = classes if ground_truth == "class" else objects
    found = [
        Target(label, _category(classes, labels == label), labels == label) for label in object_ids(labels)
    ]
    return found, labels == VOID


def _category(classes: Labels, mask: Mask) -> int:
    """Return the class that most pixels of a mask have; 0 if none has one."""
    counts = np.bincount(classes[mask], minlength=256)
    counts[[0, VOID]] = 0
    return int(counts.argmax())


def _select_heads(attention: NDArray[np.floating], head: Literal["best", "mean"] | int) -> dict[int, NDArray]:
    """Return the maps to threshold, each [rows, columns], by head; -1 is the mean of the heads."""
    if head == "best":
        return dict(enumerate(attention))
    if head == "mean":
        return {-1: attention.mean(axis=0)}
    if not 0 <= head < len(attention):
        raise ValueError(f"head is {head}; this model has heads 0 to {len(attention) - 1}")
    return {head: attention[head]}


def score_masks(
    name: str,
    masks: dict[int, Mask],
    annotation: Annotation,
    ground_truth: GroundTruth,
    void: Void,
    attention: NDArray[np.floating] | None = None,
) -> ImageScore:
    """Choose the best mask for every target of an image.

    Args:
        name: Name of the image.
        masks: Boolean [height, width] by head; -1 for a mask of no head.
        annotation: Classes and objects.
        ground_truth, void: See `VocProtocol`.
        attention: Maps of all heads [heads, rows, columns], for the lift of each target.
    """
    regions, unannotated = targets(annotation, ground_truth)
    heads, stacked = list(masks), np.stack(list(masks.values()))
    scores = []
    for label, category, region in regions:
        best, jaccard = best_head(stacked, region, unannotated if void == "exclude" else None)
        lifted = None if attention is None else lift(attention, region)
        scores.append(TargetScore(label, category, heads[best], jaccard, rle(stacked[best]), lifted))
    return ImageScore(name, tuple(scores))


def score_attention(
    name: str, attention: NDArray[np.floating], annotation: Annotation, protocol: VocProtocol
) -> ImageScore:
    """Choose the best mask for every target, among attention maps [heads, rows, columns] with a threshold.

    Each target's lift is computed from the mean over all heads, whichever heads give masks.

    Raises:
        ValueError: The model has no such head, or a map cannot be thresholded.
    """
    maps = _select_heads(attention, protocol.head)
    size = (annotation.classes.shape[0], annotation.classes.shape[1])
    kept = enlarge(keep_mass_of_maps(np.stack(list(maps.values())), protocol.mass), size)
    masks = dict(zip(maps, kept, strict=True))
    return score_masks(name, masks, annotation, protocol.ground_truth, protocol.void, attention)


def centered_box(size: tuple[int, int]) -> Mask:
    """Return the baseline without a network: a centered box of half the height and width."""
    height, width = size
    mask = np.zeros(size, dtype=bool)
    mask[height // 4 : height // 4 + height // 2, width // 4 : width // 4 + width // 2] = True
    return mask


def score_box(name: str, annotation: Annotation, protocol: VocProtocol) -> ImageScore:
    """`score_masks` for the centered box."""
    box = centered_box((annotation.classes.shape[0], annotation.classes.shape[1]))
    return score_masks(name, {-1: box}, annotation, protocol.ground_truth, protocol.void)


def mean_jaccard(scores: Iterable[ImageScore]) -> float:
    """Average over images in percent; images without a target do not count.

    Raises:
        ValueError: no image has a target.
    """
    values = [score.jaccard for score in scores if score.targets]
    if not values:
        raise ValueError("no image has an annotated object, so there is nothing to score")
    return 100 * float(np.mean(values))


def mean_lift(scores: Iterable[ImageScore]) -> float | None:
    """Average the lifts of images that have one; None if none has."""
    lifts = [score.lift for score in scores if score.lift is not None]
    return float(np.mean(lifts)) if lifts else None


def per_class(scores: Iterable[ImageScore]) -> dict[str, tuple[float, int]]:
    """Average over the targets of each class in percent, with their number, in label order."""
    values: dict[int, list[float]] = {}
    for score in scores:
        for target in score.targets:
            values.setdefault(target.category, []).append(target.jaccard)
    return {
        voc_class_name(label): (100 * float(np.mean(values[label])), len(values[label]))
        for label in sorted(values)
    }
