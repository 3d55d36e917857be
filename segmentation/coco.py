"""COCO files of masks: results that `COCO.loadRes` reads, their images, and labels from instance files."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dino_model.runtime.files import write_text
from segmentation.labels import VOID, DataError, Labels, object_ids
from segmentation.masks import Mask, bounding_box, decode, rle


def coco_record(image_id: int, category_id: int, mask: Mask, score: float = 1.0) -> dict[str, Any]:
    """Describe a mask, Boolean [height, width], in COCO's results format; without pixels its box is empty."""
    left, top, right, bottom = bounding_box(mask) if mask.any() else (0, 0, 0, 0)
    return {
        "image_id": image_id,
        "category_id": category_id,
        "segmentation": rle(mask),
        "bbox": [left, top, right - left, bottom - top],
        "score": float(score),
    }


class CocoWriter:
    """Collects the masks of many images as run lengths, and writes them as COCO files.

    `results` is the file of the masks, `images` that of images and categories. `categories` are names by id;
    None names the labels in use "object 1", "object 2", ….
    """

    def __init__(self, results: Path, images: Path, categories: Mapping[int, str] | None = None) -> None:
        self._files, self._categories = (results, images), categories
        self._records: list[dict[str, Any]] = []
        self._images: dict[str, dict[str, Any]] = {}

    def add(
        self, file_name: str, size: tuple[int, int], masks: Iterable[tuple[int, Mask, float]] = ()
    ) -> None:
        """Append an image of `size` (height, width): category, mask [height, width] and score of each mask.

        File names are unique.
        """
        if file_name in self._images:
            raise ValueError(f"two images have the file name {file_name!r}; expected unique file names")
        number, (height, width) = len(self._images) + 1, map(int, size)
        self._images[file_name] = {"id": number, "file_name": file_name, "height": height, "width": width}
        self._records += [coco_record(number, category, mask, score) for category, mask, score in masks]

    def add_labels(self, file_name: str, labels: Labels) -> None:
        """Append one image whose labels, uint8 [height, width], are the categories."""
        masks = ((label, labels == label, 1.0) for label in object_ids(labels))
        self.add(file_name, (labels.shape[0], labels.shape[1]), masks)

    def write(self) -> None:
        """Write both files, each whole or not at all."""
        used = sorted({record["category_id"] for record in self._records})
        named = self._categories or {number: f"object {number}" for number in used}
        categories = [{"id": number, "name": name} for number, name in named.items()]
        images = list(self._images.values())
        contents = self._records, {"info": {}, "annotations": [], "images": images, "categories": categories}
        for file, content in zip(self._files, contents, strict=True):
            write_text(file, json.dumps(content) + "\n")


class CocoLabels:
    """Labels per pixel from a COCO file of annotated objects, which DataError refuses if it is damaged.

    The attribute `names` has the name of each label: 0 is the background, the others are category ids.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            self._images = {image["file_name"]: image for image in content["images"]}
            self._annotations = defaultdict(list)
            for annotation in content["annotations"]:
                self._annotations[annotation["image_id"]].append(annotation)
            categories = {int(category["id"]): str(category["name"]) for category in content["categories"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} cannot be read as a COCO file of annotations: {error!r}") from None
        if not categories or min(categories) < 1 or max(categories) >= VOID:
            raise DataError(f"{file} has category ids {sorted(categories)[:5]}…; expected 1 to {VOID - 1}")
        self.names = {0: "background", **categories}

    def read(self, file_name: str) -> Labels:
        """Draw the objects of an image, smaller ones on top; crowds are 255: uint8 [height, width].

        Raises DataError for an image that is not listed, or an annotation that cannot be used.
        """
        if file_name not in self._images:
            raise DataError(f"{self.file} lists no image {file_name!r}")
        image = self._images[file_name]
        try:
            height, width = int(image["height"]), int(image["width"])
            masks = []
            for annotation in self._annotations[image["id"]]:
                label = VOID if annotation.get("iscrowd") else int(annotation["category_id"])
                if label != VOID and label not in self.names:
                    raise ValueError(f"its category {label} is not listed")
                masks.append((label, _decode(annotation["segmentation"], height, width)))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DataError(f"annotations of {file_name} in {self.file} cannot be used: {error}") from None
        labels = np.zeros((height, width), dtype=np.uint8)
        for label, mask in sorted(masks, key=lambda pair: -int(pair[1].sum())):
            labels[mask] = label
        return labels


def _decode(segmentation: Any, height: int, width: int) -> Mask:
    """Decode polygons, run lengths or compressed run lengths of COCO: [height, width]."""
    from pycocotools import mask as coco_mask

    if isinstance(segmentation, dict):
        return decode({"size": [height, width], "counts": segmentation["counts"]})
    polygons = []
    for polygon in segmentation:
        corners = np.array(polygon, dtype=float).reshape(-1, 2)
        if len(corners) < 3 or not np.isfinite(corners).all():
            raise ValueError("a polygon has fewer than three corners, or one that is not finite")
        polygons.append(corners.clip(0, [width, height]).ravel().tolist())  # C code trusts them
    merged = coco_mask.merge(coco_mask.frPyObjects(polygons, height, width))
    return np.asarray(coco_mask.decode(merged), dtype=bool)
