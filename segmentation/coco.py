"""COCO files of masks: results that `COCO.loadRes` reads, their images, and labels from instance files."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from dino_model.files import replacing
from segmentation.labels import VOID, LabelError, Labels, object_ids
from segmentation.masks import Mask, bounding_box, decode, rle


def coco_record(image_id: int, category_id: int, mask: Mask, score: float = 1.0) -> dict[str, Any]:
    """Describe one mask in COCO's results format.

    Args:
        image_id: `id` of the image in the images file.
        category_id: `id` of the category in the images file.
        mask: Boolean [height, width]. An empty mask gets an empty box.
        score: Confidence, higher is better.

    Returns:
        `image_id`, `category_id`, `segmentation`, `bbox` ([left, top, width, height] in pixels), `score`.
    """
    left, top, right, bottom = bounding_box(mask) if mask.any() else (0, 0, 0, 0)
    return {
        "image_id": image_id,
        "category_id": category_id,
        "segmentation": rle(mask),
        "bbox": [left, top, right - left, bottom - top],
        "score": float(score),
    }


class CocoWriter:
    """Writes the masks of many images as COCO files, with one image in memory at a time.

    Create it with `coco_writer`.
    """

    def __init__(self, results: TextIO, images: TextIO) -> None:
        self._results, self._images = results, images
        self._file_names: set[str] = set()
        self._separator = "\n"
        self.categories: set[int] = set()
        results.write("[")
        images.write('{"info": {}, "annotations": [], "images": [')

    def add(
        self, file_name: str, size: tuple[int, int], masks: Iterable[tuple[int, Mask, float]] = ()
    ) -> None:
        """Append one image.

        Args:
            file_name: With suffix, unique.
            size: Height and width in pixels.
            masks: Category, Boolean mask [height, width] and score of each mask.

        Raises:
            ValueError: A file name that was added before.
        """
        if file_name in self._file_names:
            raise ValueError(f"two images have the file name {file_name!r}; expected unique file names")
        first, number = not self._file_names, len(self._file_names) + 1
        self._file_names.add(file_name)
        image = {"id": number, "file_name": file_name, "height": int(size[0]), "width": int(size[1])}
        self._images.write(("\n" if first else ",\n") + json.dumps(image))
        for category, mask, score in masks:
            record = coco_record(number, category, mask, score)
            self._results.write(self._separator + json.dumps(record))
            self._separator = ",\n"
            self.categories.add(category)

    def add_labels(self, file_name: str, labels: Labels) -> None:
        """Append one image whose labels, uint8 [height, width], are the categories."""
        masks = ((label, labels == label, 1.0) for label in object_ids(labels))
        self.add(file_name, (labels.shape[0], labels.shape[1]), masks)


@contextmanager
def coco_writer(
    results: Path, images: Path, categories: Mapping[int, str] | None = None
) -> Iterator[CocoWriter]:
    """Write both COCO files image by image; they appear when the block ends without error.

    Args:
        results: File of the masks.
        images: File of the images and categories.
        categories: Name by id; None names the labels in use "object 1", "object 2", ….
    """
    with (
        replacing(results) as new_results,
        replacing(images) as new_images,
        new_results.open("w", encoding="utf-8") as results_file,
        new_images.open("w", encoding="utf-8") as images_file,
    ):
        writer = CocoWriter(results_file, images_file)
        yield writer
        named = categories or {number: f"object {number}" for number in sorted(writer.categories)}
        listed = [{"id": number, "name": name} for number, name in named.items()]
        results_file.write("\n]\n")
        images_file.write(f'\n], "categories": {json.dumps(listed)}}}\n')


class CocoLabels:
    """Labels per pixel from a COCO file of annotated objects.

    Attributes:
        names: Name of each label: 0 is the background, the others are category ids.

    Raises:
        LabelError: Missing, damaged, or category ids outside of 1 to 254.
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
            raise LabelError(f"{file} cannot be read as a COCO file of annotations: {error!r}") from None
        if not categories or min(categories) < 1 or max(categories) >= VOID:
            raise LabelError(f"{file} has category ids {sorted(categories)[:5]}…; expected 1 to {VOID - 1}")
        self.names = {0: "background", **categories}

    def read(self, file_name: str) -> Labels:
        """Draw the objects of an image, smaller ones on top; crowds are 255: uint8 [height, width].

        Raises:
            LabelError: An image that the file does not list, or an annotation that cannot be used.
        """
        if file_name not in self._images:
            raise LabelError(f"{self.file} lists no image {file_name!r}")
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
            raise LabelError(f"annotations of {file_name} in {self.file} cannot be used: {error}") from None
        labels = np.zeros((height, width), dtype=np.uint8)
        for label, mask in sorted(masks, key=lambda pair: -int(pair[1].sum())):
            labels[mask] = label
        return labels


def _decode(segmentation: Any, height: int, width: int) -> Mask:
    """Decode polygons, run lengths or compressed run lengths of COCO: [height, width]."""
    from pycocotools import mask as coco_mask

    if isinstance(segmentation, dict):
        counts, size = segmentation["counts"], [int(side) for side in segmentation["size"]]
        if size != [height, width]:
            raise ValueError(f"run lengths are of {size}, the image of {[height, width]}")
        if isinstance(counts, str):
            return decode({"size": size, "counts": counts})
        if min(counts, default=-1) < 0 or sum(counts) != height * width:
            raise ValueError("run lengths do not cover the image")
        return (np.arange(len(counts)) % 2 == 1).repeat(counts).reshape(width, height).T
    polygons = []
    for polygon in segmentation:
        corners = np.array(polygon, dtype=float).reshape(-1, 2)
        if len(corners) < 3 or not np.isfinite(corners).all():
            raise ValueError("a polygon has fewer than three corners, or one that is not finite")
        polygons.append(corners.clip(0, [width, height]).ravel().tolist())  # C code trusts them
    merged = coco_mask.merge(coco_mask.frPyObjects(polygons, height, width))
    return np.asarray(coco_mask.decode(merged), dtype=bool)
