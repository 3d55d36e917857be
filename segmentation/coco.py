"""COCO files of masks: results that `COCO.loadRes` reads, and the images and categories they refer to."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from dino_model.files import replacing, write_json
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


def write_coco_results(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write detections as the JSON list that `COCO.loadRes` reads."""
    write_json(path, list(records))


def write_coco_images(
    path: Path, images: Mapping[int, tuple[str, tuple[int, int]]], categories: Mapping[int, str]
) -> None:
    """Write the images and categories that detections refer to, as a COCO file for `COCO(...)`.

    Args:
        path: File to write.
        images: File name with suffix and (height, width) by id. File names are unique.
        categories: Name by id.

    Raises:
        ValueError: Two images have the same file name.
    """
    names = [name for name, _ in images.values()]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"Two images have the file name {twice!r}; expected unique file names.")
    described = [
        {"id": number, "file_name": name, "height": height, "width": width}
        for number, (name, (height, width)) in images.items()
    ]
    named = [{"id": number, "name": name} for number, name in categories.items()]
    write_json(path, {"info": {}, "images": described, "annotations": [], "categories": named})


class CocoWriter:
    """Writes the labels of many frames as COCO files, with one frame in memory at a time.

    Each label is a category. Create it with `coco_writer`.
    """

    def __init__(self, results: TextIO, images: TextIO) -> None:
        self._results, self._images = results, images
        self._labels: set[int] = set()
        self._frames = 0
        results.write("[")
        images.write('{"info": {}, "annotations": [], "images": [')

    def add(self, file_name: str, labels: Labels) -> None:
        """Append one frame: its file name with suffix, and its labels uint8 [height, width]."""
        self._frames += 1
        height, width = labels.shape
        image = {"id": self._frames, "file_name": file_name, "height": height, "width": width}
        self._images.write((",\n" if self._frames > 1 else "\n") + json.dumps(image))
        for label in object_ids(labels):
            record = coco_record(self._frames, label, labels == label)
            self._results.write((",\n" if self._labels else "\n") + json.dumps(record))
            self._labels.add(label)

    def close(self) -> None:
        """Write the categories and the ends of both files."""
        categories = [{"id": label, "name": f"object {label}"} for label in sorted(self._labels)]
        self._results.write("\n]\n")
        self._images.write(f'\n], "categories": {json.dumps(categories)}}}\n')


@contextmanager
def coco_writer(results: Path, images: Path) -> Iterator[CocoWriter]:
    """Write both COCO files frame by frame; they appear when the block ends without error."""
    with (
        replacing(results) as new_results,
        replacing(images) as new_images,
        new_results.open("w", encoding="utf-8") as results_file,
        new_images.open("w", encoding="utf-8") as images_file,
    ):
        writer = CocoWriter(results_file, images_file)
        yield writer
        writer.close()
