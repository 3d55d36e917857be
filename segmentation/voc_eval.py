"""Jaccard similarity of attention masks on PASCAL VOC 2012: protocol (docs/protocols.md) and scores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dino_model.inference.quantities import lift
from segmentation.datasets import Annotation, voc_class_name
from segmentation.labels import VOID, object_ids
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
    """Settings that determine the score. The defaults follow the author's snippet if it specifies them."""

    mass: float = 0.6
    """Share of the attention that a mask keeps, above 0 and up to 1."""
    ground_truth: GroundTruth = "class"
    """Regions to compare masks with: each class of an image, each object, or all objects as one."""
    void: Void = "union"
    """Unannotated pixels (255) stay in the union, or are excluded."""
    head: Literal["best", "mean"] | int = "best"
    """The best head for each class or object, the mean of all heads' maps, or one head by number."""
    resize: Literal["squash", "short-side", "native"] = "squash"
    """Resizing of the image for the model."""
    size: int = 480
    """Pixels of the model's input: both sides with squash, the short side with short-side."""
    block: int = -1
    """Block whose [CLS] attention is taken; -1 is the last."""
    split: str = "val"
    """List of images in ImageSets/Segmentation."""


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

    @classmethod
    def of(cls, name: str, record: Iterable[Sequence[Any]]) -> Self:
        """Restore the targets from JSON."""
        return cls(name, tuple(TargetScore(*target) for target in record))

    @property
    def jaccard(self) -> float:
        """Mean over the image's targets, in [0, 1]."""
        return float(np.mean([target.jaccard for target in self.targets]))

    @property
    def lift(self) -> float | None:
        """Mean over the image's targets that have one, at least 0."""
        return _mean(target.lift for target in self.targets)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def targets(annotation: Annotation, ground_truth: GroundTruth) -> tuple[dict[int, tuple[int, Mask]], Mask]:
    """Return the regions to compare masks with, and the void pixels [height, width].

    Regions are classes and masks [height, width] by label. The foreground has label 1 and class 0.
    """
    classes, objects = annotation
    if ground_truth == "foreground":
        foreground = (classes != 0) & (classes != VOID)
        return ({1: (0, foreground)} if foreground.any() else {}), classes == VOID
    labels = {"class": classes, "object": objects}[ground_truth]
    heads = {}
    for label in object_ids(labels):
        counts = np.bincount(classes[labels == label], minlength=256)
        counts[[0, VOID]] = 0
        heads[label] = int(counts.argmax()), labels == label
    return heads, labels == VOID


def score_masks(
    name: str,
    masks: dict[int, Mask],
    annotation: Annotation,
    protocol: VocProtocol,
    attention: NDArray[np.floating] | None = None,
) -> ImageScore:
    """Choose the best mask for every target of an image.

    Masks are Boolean [height, width] by head; -1 for a mask of no head. The lift of each target is computed
    from `attention`, the maps of all heads [heads, rows, columns].
    """
    regions, unannotated = targets(annotation, protocol.ground_truth)
    heads, stacked = list(masks), np.stack(list(masks.values()))
    scores = []
    for label, (category, region) in regions.items():
        best, jaccard = best_head(stacked, region, unannotated if protocol.void == "exclude" else None)
        lifted = None if attention is None else lift(attention, region)
        scores.append(TargetScore(label, category, heads[best], jaccard, rle(stacked[best]), lifted))
    return ImageScore(name, tuple(scores))


def score_attention(
    name: str, attention: NDArray[np.floating], annotation: Annotation, protocol: VocProtocol
) -> ImageScore:
    """Choose the best mask for every target, among attention maps [heads, rows, columns] with a threshold.

    Each target's lift is computed from the mean over all heads, whichever heads give masks.
    """
    if protocol.head == "mean":
        maps = {-1: attention.mean(axis=0)}
    else:
        heads = range(len(attention)) if protocol.head == "best" else [protocol.head]
        maps = {head: attention[head] for head in heads}
    height, width = annotation.classes.shape
    kept = enlarge(keep_mass_of_maps(np.stack(list(maps.values())), protocol.mass), (height, width))
    masks = dict(zip(maps, kept, strict=True))
    return score_masks(name, masks, annotation, protocol, attention)


def centered_box(size: tuple[int, int]) -> Mask:
    """Return the baseline without a network: a centered box of half the height and width."""
    height, width = size
    mask = np.zeros(size, dtype=bool)
    mask[height // 4 : height // 4 + height // 2, width // 4 : width // 4 + width // 2] = True
    return mask


def mean_jaccard(scores: Iterable[ImageScore]) -> float:
    """Average over images with a target, in percent; raises ValueError if there is none."""
    mean = _mean(score.jaccard for score in scores if score.targets)
    if mean is None:
        raise ValueError("no image has an annotated object, so there is nothing to score")
    return 100 * mean


def mean_lift(scores: Iterable[ImageScore]) -> float | None:
    """Average the lifts of images that have one; None if none has."""
    return _mean(score.lift for score in scores)


def per_class(scores: Iterable[ImageScore]) -> dict[str, tuple[float, int]]:
    """Average over the targets of each class in percent, with their number, in label order."""
    values: dict[int, list[float]] = {}
    for target in (target for score in scores for target in score.targets):
        values.setdefault(target.category, []).append(target.jaccard)
    return {
        voc_class_name(label): (100 * float(np.mean(found)), len(found))
        for label, found in sorted(values.items())
    }
