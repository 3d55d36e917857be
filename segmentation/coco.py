"""COCO files of masks: results that `COCO.loadRes` reads, and the images and categories they refer to."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from dino_model.files import replacing
from segmentation.labels import Labels, object_ids
from segmentation.masks import Mask, bounding_box, rle


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
