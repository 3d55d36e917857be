"""Masks as files for other programs: palette PNGs, and COCO run lengths that `COCO.loadRes` reads."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dino_model.files import replacing, write_text
from segmentation.masks import Mask, bounding_box, rle

__all__ = [
    "coco_record",
    "palette",
    "rle",
    "write_coco_images",
    "write_coco_results",
    "write_json",
    "write_mask_png",
    "write_npz",
    "write_text",
]


def palette() -> NDArray[np.uint8]:
    """Colours of the label values 0–255 in PASCAL VOC and DAVIS masks: [256, 3].

    The three lowest bits of a label become the highest bits of red, green and blue, the next three bits the
    second highest, and so on: neighbouring labels get colours far apart.
    """
    labels = np.arange(256)
    colors = np.zeros((256, 3), dtype=np.uint8)
    for group in range(3):
        for channel in range(3):
            bit = (labels >> (3 * group + channel)) & 1
            colors[:, channel] |= (bit << (7 - group)).astype(np.uint8)
    return colors


def write_mask_png(path: Path, labels: NDArray[np.uint8]) -> None:
    """Write labels [height, width] as a palette PNG that keeps their values; whole or not at all.

    Raises:
        ValueError: `labels` is no uint8 array of two axes.
    """
    if labels.dtype != np.uint8 or labels.ndim != 2:
        raise ValueError(
            f"{path.name}: labels are {labels.dtype} {labels.shape}; expected uint8 [height, width]"
        )
    picture = Image.fromarray(labels, mode="P")
    picture.putpalette(palette().tobytes())
    with replacing(path) as beside:
        picture.save(beside, format="PNG")


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


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all; not-a-number and infinity become null, which every reader accepts."""
    write_text(path, json.dumps(_finite(content), indent=2) + "\n")


def write_npz(path: Path, **arrays: NDArray[Any]) -> None:
    """Write named arrays as .npz, compressed, whole or not at all; `np.load` reads them without pickle."""
    with replacing(path) as beside, beside.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    if isinstance(content, (float, np.floating)):
        return float(content) if np.isfinite(content) else None
    if isinstance(content, np.integer):
        return int(content)
    return content
