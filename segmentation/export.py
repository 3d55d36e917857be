"""Masks as files for other programs: palette PNGs, and COCO run lengths that `COCO.loadRes` reads."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dino_model.files import replacing, write_json
from segmentation.labels import palette, write_mask_png
from segmentation.masks import Mask, bounding_box, rle

__all__ = [
    "coco_record",
    "palette",
    "rle",
    "write_coco_images",
    "write_coco_results",
    "write_mask_png",
    "write_npz",
]


def coco_record(image_id: int, category_id: int, mask: Mask, score: float = 1.0) -> dict[str, Any]:
    """One detection in COCO's results format; `bbox` is [left, top, width, height] in pixels.

    Args:
        image_id: the picture's `id` in the images file.
        category_id: the category's `id` in the images file.
        mask: [height, width]; an empty mask gets an empty box.
        score: confidence, higher is better.
    """
    left, top, right, bottom = bounding_box(mask) if mask.any() else (0, 0, 0, 0)
    return {
        "image_id": image_id,
        "category_id": category_id,
        "segmentation": rle(mask),
        "bbox": [left, top, right - left, bottom - top],
        "score": float(score),
    }


def write_coco_results(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write detections as the JSON list that `COCO.loadRes` reads."""
    write_json(path, list(records))


def write_coco_images(
    path: Path, images: Mapping[int, tuple[str, tuple[int, int]]], categories: Mapping[int, str]
) -> None:
    """Write the pictures and categories that detections refer to, as a COCO file for `COCO(...)`.

    Args:
        path: the file to write.
        images: id -> file name and (height, width).
        categories: id -> name.
    """
    described = [
        {"id": number, "file_name": name, "height": height, "width": width}
        for number, (name, (height, width)) in images.items()
    ]
    named = [{"id": number, "name": name} for number, name in categories.items()]
    write_json(path, {"info": {}, "images": described, "annotations": [], "categories": named})


def write_npz(path: Path, **arrays: NDArray[Any]) -> None:
    """Write named arrays as .npz, compressed, whole or not at all; `np.load` reads them without pickle."""
    with replacing(path) as beside, beside.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
