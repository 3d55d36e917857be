"""The paper's figure for one photograph: the masks of two models' heads, side by side."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.engine import Encoding, QueriesKeys
from app.objects import COLORS, Recipe, cls_map
from segmentation import render
from segmentation.masks import enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard

HEIGHT = 480  # pixels of each picture in the figure


@dataclass(frozen=True)
class Figure:
    """Two encodings of one photograph, a head of each ("mean" or its number), and the share kept.

    Raises:
        LabError: a head or share that cannot be.
    """

    left: str
    right: str
    left_head: str = "mean"
    right_head: str = "mean"
    mass: float = 0.6

    def __post_init__(self) -> None:
        for head in (self.left_head, self.right_head):
            Recipe(head=head, mass=self.mass)


def png(encodings: Sequence[Encoding], blocks: Sequence[QueriesKeys], asked: Figure) -> bytes:
    """The figure as a PNG file: the photograph, both masks, and how well they agree.

    Args:
        encodings: of the left and the right model.
        blocks: queries and keys of their last blocks.
        asked: which heads, and how much they keep.

    Source: Figure 4 of the paper, "Segmentations from supervised versus DINO".
    """
    picture = encodings[0].picture
    scale = HEIGHT / picture.shape[0]
    small = cv2.resize(
        picture, (max(1, round(picture.shape[1] * scale)), HEIGHT), interpolation=cv2.INTER_AREA
    )
    cells = [("Photograph", np.asarray(small, np.uint8))]
    masks = []
    for encoding, block, head in zip(encodings, blocks, (asked.left_head, asked.right_head), strict=True):
        kept = keep_mass_of_maps(cls_map(encoding, block, head), asked.mass)
        masks.append(enlarge(kept, (picture.shape[0], picture.shape[1])))
        name = "mean of the heads" if head == "mean" else f"head {head}"
        shown = render.overlay_masks(cells[0][1], enlarge(kept, (HEIGHT, small.shape[1])), colors=COLORS[:1])
        cells.append((f"{encoding.model}, {name}", shown))
    agreement = float(jaccard(masks[0], masks[1]))
    words = f"{asked.mass:.0%} of [CLS]'s attention kept; Jaccard similarity of both masks: {agreement:.3f}"
    return _png(render.caption(render.contact_sheet([cells], height=HEIGHT), words))


def _png(picture: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="PNG")
    return buffer.getvalue()
