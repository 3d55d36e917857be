"""Read the masks that commands write, with pycocotools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imports matplotlib
    from pycocotools.coco import COCO


def load_results(folder: Path, stem: str = "masks") -> COCO:
    """Load the results of `STEM.json` for the images of `STEM_images.json`."""
    from pycocotools.coco import COCO

    return COCO(folder / f"{stem}_images.json").loadRes(str(folder / f"{stem}.json"))
