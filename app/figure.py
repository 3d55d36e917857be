"""The paper's figure for one photograph: the masks of two models' heads, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from app import files
from app.engine import Encoding, QueriesKeys
from app.objects import COLORS, Labels, Recipe, cls_map
from app.photos import Picture
from segmentation import drawing
from segmentation.masks import Mask, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard

HEIGHT = 480  # pixels of each picture in the figure


@dataclass(frozen=True)
class Side:
    """One model's: its encoding, queries and keys of its last block, and the head, "mean" or its number.

    Raises:
        LabError: a head that cannot be.
    """

    encoding: Encoding
    last: QueriesKeys
    head: str = "mean"

    def __post_init__(self) -> None:
        Recipe(head=self.head)

    @property
    def title(self) -> str:
        """Above the picture."""
        name = "mean of the heads" if self.head == "mean" else f"head {self.head}"
        return f"{self.encoding.key.model}, {name}"

    def mask(self, mass: float) -> Mask:
        """Patches that hold `mass` of [CLS]'s attention: [rows, columns].

        Raises:
            LabError: no such head.
        """
        return keep_mass_of_maps(cls_map(self.encoding, self.last, self.head), mass)


def png(picture: Picture, sides: Sequence[Side], mass: float, drawn: Labels | None = None) -> bytes:
    """The figure as a PNG file: the photograph, both masks, and how well they agree.

    Args:
        picture: the photograph.
        sides: the left and the right model.
        mass: share of the attention that is kept.
        drawn: a mask by hand, of any size: shown on the photograph, and both masks are scored by it.

    Raises:
        LabError: a head or share that cannot be.

    Source: Figure 4 of the paper, "Segmentations from supervised versus DINO".
    """
    Recipe(mass=mass)
    width = max(1, round(picture.shape[1] * HEIGHT / picture.shape[0]))
    small = np.asarray(cv2.resize(picture, (width, HEIGHT), interpolation=cv2.INTER_AREA), np.uint8)
    size = (picture.shape[0], picture.shape[1])
    kept = [side.mask(mass) for side in sides]
    cells = [(side.title, _tinted(small, mask)) for side, mask in zip(sides, kept, strict=True)]
    masks = [enlarge(mask, size) for mask in kept]
    words = f"{mass:.0%} of [CLS]'s attention kept; Jaccard similarity of both masks: "
    words += f"{float(jaccard(*masks)):.3f}"
    first = ("Photograph", small)
    if drawn is not None:
        truth = enlarge(drawn > 0, size)
        first = ("Photograph, drawn mask", _tinted(small, drawn > 0))
        scores = " and ".join(f"{float(jaccard(mask, truth)):.3f}" for mask in masks)
        words += f"; with the drawn mask: {scores}"
    return files.png(drawing.caption(drawing.contact_sheet([[first, *cells]], height=HEIGHT), words))


def _tinted(picture: Picture, mask: Mask) -> Picture:
    enlarged = enlarge(mask, (picture.shape[0], picture.shape[1]))
    return drawing.overlay_masks(picture, enlarged, colors=COLORS[:1])
