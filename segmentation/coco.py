"""COCO files of masks: results that `COCO.loadRes` reads, their images, and labels from instance files."""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dino_model.data.tables import read_text
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import printable, write_text
from segmentation.labels import VOID, DataError, Labels, object_ids
from segmentation.masks import Mask, bounding_box, decode, rle


def coco_record(image_id: int, category_id: int, mask: Mask, score: float = 1.0) -> dict[str, Any]:
    """Describe a mask, Boolean [height, width], in COCO's results format.

    Without a box: `COCO.loadRes` would take the area of the box for that of the mask.
    """
    return {
        "image_id": image_id,
        "category_id": category_id,
        "segmentation": rle(mask),
        "score": float(score),
    }


def fill_results(
    records: list[dict[str, Any]], size: tuple[int, int], category_id: int = 1
) -> list[dict[str, Any]]:
    """Return results that `COCO.loadRes` reads, which fails for an empty list.

    Args:
        records: From `coco_record`.
        size: Height and width of the image with number 1, in pixels.
        category_id: Category of the image.

    Returns:
        The records; without any, an empty mask with score 0.
    """
    return records or [coco_record(1, category_id, np.zeros(size, dtype=bool), 0.0)]


def coco_annotation(number: int, image_id: int, category_id: int, mask: Mask) -> dict[str, Any]:
    """Describe a mask, Boolean [height, width], in the format of COCO's data sets, with box and area."""
    left, top, right, bottom = bounding_box(mask) if mask.any() else (0, 0, 0, 0)
    measures = {"area": int(mask.sum()), "bbox": [left, top, right - left, bottom - top], "iscrowd": 0}
    return {"id": number, **coco_record(image_id, category_id, mask), **measures}


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

        File names are unique, and written as `printable`.
        """
        file_name = printable(file_name)
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
        if self._images:
            first = next(iter(self._images.values()))
            size = first["height"], first["width"]
            self._records = fill_results(self._records, size, min(self._categories or [1]))
        used = sorted({record["category_id"] for record in self._records})
        named = self._categories or {number: f"object {number}" for number in used}
        categories = [{"id": number, "name": name} for number, name in named.items()]
        images = list(self._images.values())
        contents = self._records, {"info": {}, "annotations": [], "images": images, "categories": categories}
        for file, content in zip(self._files, contents, strict=True):
            write_text(file, json.dumps(content) + "\n")


class CocoLabels:
    """Labels per pixel from a COCO file of annotated objects, which DataError refuses if it is damaged.

    Category ids are labels. If a used one is below 1 or above 254, all categories are numbered in ascending
    order of their ids. Ids may be numbers or texts of digits.

    Attributes:
        names: Of each label; 0 is the background.
        damaged: Annotations that cannot be used, with the reasons.
        annotations: Number of annotations in the file.
    """

    def __init__(
        self, file: Path, classes: Sequence[str] = (), *, crowds: bool = False, is_exact: bool = False
    ) -> None:
        """Read the file; categories have the labels of their names in `classes`, names of all labels.

        Regions with iscrowd are void, with `crowds` objects. `is_exact` refuses other names than the file's.
        """
        self.file, self.damaged, self.crowds = file, list[str](), crowds
        if classes and classes[0].casefold() != "background":
            classes = ["background", *classes]
        try:
            content = json.loads(read_text(file))
            parts = ("images", "annotations", "categories")
            if missing := [part for part in parts if not isinstance(content, dict) or part not in content]:
                reason = f"it has no {' and no '.join(missing)}"
                raise DataError(f"{file} is no COCO file of annotations: {reason}")
            unique = {(image["id"], image["file_name"]): image for image in content["images"]}
            self._images = [(_parts(image["file_name"]), image) for image in unique.values()]
            categories = {
                _id(each["id"]): printable(str(each.get("name", f"class {each['id']}")))
                for each in content["categories"]
            }
            if len(categories) < len({str(each) for each in content["categories"]}):
                raise ValueError("two categories have one id")
            self._annotations, self._strays = self._by_image(content["annotations"])
        except DataError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{file} cannot be read as a COCO file of annotations: {error!r}") from None
        self.annotations = len(content["annotations"])
        if self.annotations and not self._annotations:
            raise DataError(f"{file} has no usable annotation: {self._strays_in_words() or self.damaged[0]}")
        if is_exact and (differing := set(classes[1:]) ^ set(categories.values())):
            raise DataError(
                f"the classes and the categories of {file} differ in {', '.join(sorted(differing))[:200]}; "
                f"the categories are {', '.join(categories.values())[:200]}"
            )
        self._labels = self._number(categories, classes)
        self.names = {0: "background"} | {label: categories[key] for key, label in self._labels.items()}

    def describe(self) -> str:
        """Return in words how categories are numbered, and which annotations have no image; or nothing."""
        numbered = [
            f"{label} = {self.names[label]} (id {key})" for key, label in self._labels.items() if label != key
        ]
        labels = f"labels of categories: {', '.join(numbered)}" if numbered else ""
        parts = "; ".join(filter(None, (labels, self._strays_in_words())))
        return parts and f"{self.file.name}: {parts}"

    def table(self, file_names: Sequence[str]) -> str:
        """Look at the annotations of images, and format files, regions and pixels of each category."""
        rows: dict[int, list[int]] = {}
        for file_name in file_names:
            try:
                image = self._find(file_name)
            except DataError:
                continue  # `read` raises it again
            height, width = int(image.get("height") or 0), int(image.get("width") or 0)
            labels = self.read(file_name, (height, width)) if height and width else np.zeros((0, 0), np.uint8)
            counts = np.bincount(labels.ravel(), minlength=VOID + 1)
            for label in {0, *np.flatnonzero(counts).tolist()}:
                row = rows.setdefault(label, [0, 0])
                row[0], row[1] = row[0] + 1, row[1] + int(counts[label])
        lines = [f"{self.file.name}: {pluralize(self.annotations, 'annotation')}"]
        lines.append(f"{'label':>5}  {'class':<24}{'id':<10}{'files':>7}{'pixels':>14}")
        keys = {label: str(key) for key, label in self._labels.items()}
        for label, (files, pixels) in sorted(rows.items()):
            name = "void" if label == VOID else self.names[label]
            lines.append(f"{label:>5}  {name:<24}{keys.get(label, ''):<10}{files:>7}{pixels:>14,}")
        lines += [f"note: {text}" for text in (self.describe(), *self._only_crowds()) if text]
        lines += [f"dropped: {problem}" for problem in self.damaged[:5]]
        lines += [f"dropped: {len(self.damaged) - 5} more"] * (len(self.damaged) > 5)
        return "\n".join(lines)

    def _only_crowds(self) -> list[str]:
        """Name the classes whose regions are all void."""
        used = {_id(each.get("category_id")) for group in self._annotations.values() for each in group}
        solid = {
            _id(each.get("category_id"))
            for group in self._annotations.values()
            for each in group
            if self.crowds or not each.get("iscrowd")
        }
        void = [self.names[self._labels[key]] for key in used - solid if key in self._labels]
        note = f"{', '.join(sorted(void))} has iscrowd regions only, which are void; --crowds takes them"
        return [note] if void else []

    def read(self, file_name: str, size: tuple[int, ...]) -> Labels:
        """Draw the objects of an image, smaller ones on top; crowds are 255: uint8 [height, width].

        `size` (height, width) is used if the file has none. Annotations that cannot be used are added to
        `damaged`. Raises DataError for an image that is not listed.
        """
        image = self._find(file_name)
        height, width = (
            int(image.get(side) or length) for side, length in zip(("height", "width"), size, strict=False)
        )
        masks = []
        for annotation in self._annotations.get(_id(image["id"]), ()):
            try:
                is_crowd = annotation.get("iscrowd") and not self.crowds
                label = VOID if is_crowd else self._labels[_id(annotation["category_id"])]
                mask = _decode(annotation.get("segmentation"), height, width)
                if not mask.any():
                    raise ValueError("it covers no pixel; corners are in pixels, from 0 to the image's size")
                masks.append((label, mask))
            except (ValueError, KeyError, TypeError, IndexError) as error:
                reason = f"no category {error}" if isinstance(error, KeyError) else error
                problem = f"annotation {annotation.get('id')} of {file_name}: {reason}"
                if problem not in self.damaged:
                    self.damaged.append(problem)
        labels = np.zeros((height, width), dtype=np.uint8)
        for label, mask in sorted(masks, key=lambda pair: -int(pair[1].sum())):
            labels[mask] = label
        return labels

    def _by_image(self, annotations: Sequence[Any]) -> tuple[dict[int | str, list[Any]], Counter[int | str]]:
        """Group annotations by image, and count those of each image that is not listed."""
        groups: dict[int | str, list[Any]] = {}
        for _, image in self._images:
            if _id(image["id"]) in groups:
                raise ValueError(f"two images have the id {image['id']!r}")
            groups[_id(image["id"])] = []
        strays = Counter[int | str]()
        for place, annotation in enumerate(annotations):
            if not isinstance(annotation, dict) or annotation.get("image_id") is None:
                self.damaged.append(f"annotation {place + 1} of the file: no image_id")
            elif (key := _id(annotation["image_id"])) in groups:
                groups[key].append(annotation)
            else:
                strays[key] += 1
        return {key: group for key, group in groups.items() if group}, strays

    def _strays_in_words(self) -> str:
        if not self._strays:
            return ""
        images = ", ".join(map(repr, list(self._strays)[:5]))
        count = pluralize(sum(self._strays.values()), "annotation")
        return f"{count} left out, because no listed image has the id {images}"

    def _number(self, categories: Mapping[int | str, str], classes: Sequence[str]) -> dict[int | str, int]:
        """Return the label of each category that is used or has the id of a label."""
        used = {_id(each.get("category_id")) for group in self._annotations.values() for each in group}
        keys = sorted(categories, key=lambda key: (isinstance(key, str), key))
        kept = [key for key in keys if key in used or _is_label(key)]
        unknown = [categories[key] for key in kept if categories[key] not in classes[1:]]
        if kept and not unknown:
            return {key: classes.index(categories[key], 1) for key in kept}
        if classes and unknown:
            raise DataError(
                f"{self.file} has the category {unknown[0]!r}; the classes are {', '.join(classes[1:])}"
            )
        if kept and all(map(_is_label, kept)):
            return {key: int(key) for key in kept}
        kept = kept if len(kept) < VOID else [key for key in kept if key in used]
        if not 0 < len(kept) < VOID:
            raise DataError(f"{self.file} has {len(kept)} categories in use; expected 1 to {VOID - 1}")
        return {key: label for label, key in enumerate(kept, start=1)}

    def _find(self, file_name: str) -> dict[str, Any]:
        """Return the listed image whose path is the end of `file_name`, or ends with it."""
        parts = _parts(file_name)
        exact = [image for listed, image in self._images if listed == parts]
        ends = [image for listed, image in self._images if listed[-len(parts) :] == parts[-len(listed) :]]
        if not (found := exact or ends):
            raise DataError(f"{self.file} lists no image '{printable(file_name)}'")
        if len(found) > 1:
            names = " and ".join(repr(image["file_name"]) for image in found[:2])
            raise DataError(f"{self.file} lists {names}, which can both be {file_name!r}; expected one")
        return found[0]


def _parts(file_name: str) -> tuple[str, ...]:
    """Divide a path, of any system, into its parts."""
    text = unicodedata.normalize("NFC", printable(str(file_name))).replace("\\", "/")
    return tuple(part for part in text.split("/") if part not in ("", "."))


def _id(value: Any) -> int | str:
    """Return an id as a number if it is a whole one: 7, 7.0 and "7" are equal."""
    try:
        return int(value) if isinstance(value, str) or int(value) == value else str(value)
    except (ValueError, TypeError, OverflowError):
        return str(value)


def _is_label(key: int | str) -> bool:
    return isinstance(key, int) and 0 < key < VOID


def _decode(segmentation: Any, height: int, width: int) -> Mask:
    """Decode polygons, run lengths or compressed run lengths of COCO: [height, width]."""
    from pycocotools import mask as coco_mask

    if not segmentation:
        raise ValueError("it has no segmentation")
    if isinstance(segmentation, dict):
        if (size := [*segmentation.get("size", ())]) not in ([], [height, width]):
            raise ValueError(f"its size is {size}, the image's [{height}, {width}]")
        return decode({"size": [height, width], "counts": segmentation["counts"]})
    if isinstance(segmentation[0], dict):
        return np.any([_decode(part, height, width) for part in segmentation], axis=0)
    polygons = []
    for polygon in [segmentation] if isinstance(segmentation[0], int | float) else segmentation:
        numbers = np.array(polygon, dtype=float)
        if numbers.size % 2:
            raise ValueError(f"a polygon has {numbers.size} numbers; expected pairs")
        corners = numbers.reshape(-1, 2)
        if corners.size and corners.max() <= 1 < min(height, width):
            raise ValueError("its corners are from 0 to 1; expected pixels")
        if len(corners) < 3 or not np.isfinite(corners).all():
            raise ValueError("a polygon has fewer than three corners, or one that is not finite")
        polygons.append(corners.clip(0, [width, height]).ravel().tolist())  # C code trusts them
    merged = coco_mask.merge(coco_mask.frPyObjects(polygons, height, width))
    return np.asarray(coco_mask.decode(merged), dtype=bool)
