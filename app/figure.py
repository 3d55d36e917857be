"""The paper's figure for one image: the masks of two models side by side."""

from collections.abc import Sequence

import cv2
import numpy as np

from app import files
from app.objects import COLORS
from app.photos import Picture
from segmentation import drawing
from segmentation.labels import Labels
from segmentation.masks import Mask, enlarge
from segmentation.metrics import jaccard

HEIGHT = 480  # pixels of each image in the figure


def png(picture: Picture, masks: Sequence[tuple[str, Mask]], mass: float, drawn: Labels | None) -> bytes:
    """Draw the image, both masks, and the Jaccard similarity of the masks as a PNG file.

    Args:
        picture: The image.
        masks: Title and mask of the left and the right model, on their patch grids.
        mass: Share of the attention that the masks keep, for the caption.
        drawn: A mask by hand of any size. It is shown on the image, and both masks are scored by it.

    Source: Figure 4 of Caron et al. 2021, "Segmentations from supervised versus DINO".
    """
    size = (picture.shape[0], picture.shape[1])
    width = max(1, round(size[1] * HEIGHT / size[0]))
    small = np.asarray(cv2.resize(picture, (width, HEIGHT), interpolation=cv2.INTER_AREA), np.uint8)

    def tinted(mask: Mask) -> Picture:
        return drawing.overlay_masks(small, enlarge(mask, (HEIGHT, width)), colors=COLORS[:1])

    cells = [(title, tinted(mask)) for title, mask in masks]
    left, right = (enlarge(mask, size) for _, mask in masks)
    text = f"{mass:.0%} of [CLS]'s attention kept; Jaccard similarity of both masks: "
    text += f"{float(jaccard(left, right)):.3f}"
    first = ("Image", small)
    if drawn is not None:
        first = ("Image, drawn mask", tinted(drawn > 0))
        truth = enlarge(drawn > 0, size)
        text += "; with the drawn mask: "
        text += " and ".join(f"{float(jaccard(mask, truth)):.3f}" for mask in (left, right))
    return files.png(drawing.caption(drawing.contact_sheet([[first, *cells]], height=HEIGHT), text))
