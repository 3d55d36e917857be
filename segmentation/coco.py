"""COCO files of masks: results that `COCO.loadRes` reads, their images, and labels from instance files."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from dino_model.data.tables import NameIndex, clean_path, read_text
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import printable, write_text
from segmentation.annotations import LabelSet, NamedClass, match_names
from segmentation.labels import VOID, DataError, Labels, object_ids
from segmentation.mask_files import StoredMask, count_values
from segmentation.masks import Mask, bounding_box, decode, rle

_BACKGROUND, _CROWD = -1, -2  # values of pixels without an object, and of crowds: no ids
_FARTHEST = 100_000  # corner of a polygon, in pixels: pycocotools draws each pixel of an edge


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


class CocoMasks:
    """Masks of a COCO file of annotated objects: the ids of categories are their values.

    Ids may be numbers or texts of digits. Smaller objects are on top.

    Attributes:
        damaged: Annotations that cannot be used, with the reasons.
        notes: Remarks on annotations without an image, and on classes that have crowds only.
        count: Number of annotations in the file.
    """

    def __init__(self, file: Path, *, crowds: bool = False) -> None:
        """Read the file; regions with iscrowd are void, with `crowds` objects.

        Raises:
            DataError: No COCO file of annotations, or no annotation of a listed image.
        """
        self.file, self.crowds = file, crowds
        self.damaged, self.notes = list[str](), list[str]()
        try:
            content = json.loads(read_text(file))
            parts = ("images", "annotations", "categories")
            if missing := [part for part in parts if not isinstance(content, dict) or part not in content]:
                reason = f"it has no {' and no '.join(missing)}"
                raise DataError(f"{file} is no COCO file of annotations: {reason}; convert it to COCO")
            unique = {(image["id"], image["file_name"]): image for image in content["images"]}
            names = [(printable(str(image["file_name"])), image) for image in unique.values()]
            self._images = {form: image for name, image in names for form in (clean_path(name), name)}
            ids, file_names = Counter(_id(key) for key, _ in unique), Counter(name for name, _ in names)
            for kind, counts in (("id", ids), ("file name", file_names)):
                if repeated := [value for value, count in counts.items() if count > 1]:
                    raise ValueError(f"two images have the {kind} {repeated[0]!r}")
            self._index, self._found = NameIndex(self._images), dict[str, Path]()
            pairs = [(int(each["id"]), printable(str(each["name"]))) for each in content["categories"]]
            self._names, self.count = dict(sorted(pairs)), len(content["annotations"])
            if len(self._names) < len(set(pairs)) or min(self._names, default=0) < 0:
                raise ValueError("categories have one id, or one below 0")
            strays = self._group(content["annotations"])
        except DataError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{file} cannot be read as a COCO file of annotations: {error!r}") from None
        if strays:
            images = ", ".join(map(repr, list(strays)[:5]))
            count = pluralize(sum(strays.values()), "annotation")
            self.notes.append(f"{count} left out, because no listed image has the id {images}")
        if self.count and not any(self._annotations.values()):
            raise DataError(f"{file} has no usable annotation: {(*self.notes, *self.damaged)[0]}")
        used, solid = set[int](), set[int]()
        for each in (each for group in self._annotations.values() for each in group):
            used.add(_id(each.get("category_id")))
            solid |= {_id(each.get("category_id"))} if crowds or not _is_crowd(each) else set()
        self._kept = [key for key in self._names if key in used or 0 < key < VOID]
        if len(self._kept) >= VOID:
            self._kept = [key for key in self._kept if key in used]
        if void := [self._names[key] for key in self._kept if key in used - solid]:
            self.notes.append(
                f"{', '.join(sorted(void))} has iscrowd regions only, which are void; --crowds takes them"
            )

    def label_set(self, classes: Sequence[NamedClass] = (), *, is_exact: bool = True) -> LabelSet:
        """Return the labels of the categories: their ids, or of the classes of these names.

        If an id in use is below 1 or above 254, the categories are numbered in ascending order. `is_exact`
        refuses classes that the file lacks.
        """
        known = [NamedClass(self._names[key], key) for key in self._kept]
        ((name, count),) = Counter(each.name for each in known).most_common(1) or [("", 0)]
        if count > 1:
            raise DataError(f"{self.file} has {count} categories named {name!r}; rename them in the file")
        if classes:
            classes = classes[classes[0].name.casefold() == "background" :]
            extra = [] if is_exact else [each for each in classes if each.name not in self._names.values()]
            ordered = match_names(self.file, [*known, *extra], classes)
        elif known and all(0 < key < VOID for key in self._kept):
            by_id = {each.color: each for each in known}
            ids = range(1, max(self._kept) + 1)
            ordered = tuple(by_id[key] if key in by_id else NamedClass(f"class {key}") for key in ids)
        else:
            ordered = tuple(known)
        if not 0 < len(ordered) < VOID:
            raise DataError(f"{self.file} has {len(ordered)} categories in use; expected 1 to {VOID - 1}")
        values = (_BACKGROUND, *(each.color for each in ordered))
        return LabelSet("value", values, ("background", *(each.name for each in ordered)), (_CROWD,))

    def load(self, image: Path) -> StoredMask:
        """Draw the objects of an image, whose listed path is the end of `image`, or ends with it.

        Annotations that cannot be used are added to `damaged`. Raises DataError for an image that is not
        listed, or without height and width.
        """
        listed = self._find(str(image))
        try:
            height, width = int(listed["height"]), int(listed["width"])
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{self.file} lists {image} without height and width; expected both") from None
        masks = []
        for annotation in self._annotations[_id(listed["id"])]:
            try:
                if (key := _id(annotation["category_id"])) not in self._names:
                    raise ValueError(f"no category {key}")
                is_crowd = _is_crowd(annotation) and not self.crowds
                mask = _decode(annotation.get("segmentation"), height, width)
                if not mask.any():
                    raise ValueError("it covers no pixel; corners are in pixels, from 0 to the image's size")
                masks.append((_CROWD if is_crowd else key, mask))
            except (ValueError, KeyError, TypeError, IndexError) as error:
                lacks = "it lacks " * isinstance(error, KeyError)
                problem = f"annotation {annotation.get('id')} of {image}: {lacks}{error}"
                if problem not in self.damaged:
                    self.damaged.append(problem)
        values = np.full((height, width), _BACKGROUND, np.int64)
        for key, mask in sorted(masks, key=lambda pair: -int(pair[1].sum())):
            values[mask] = key
        return StoredMask(image, "gray", count_values(values), values)

    def _group(self, annotations: Sequence[Any]) -> Counter[Any]:
        """Group annotations by image, and count those of each image that is not listed."""
        self._annotations: dict[Any, list[Any]] = {_id(image["id"]): [] for image in self._images.values()}
        strays = Counter[Any]()
        for place, annotation in enumerate(annotations, start=1):
            if not isinstance(annotation, dict) or annotation.get("image_id") is None:
                self.damaged.append(f"annotation {place} of the file: no image_id")
            elif (flag := _id(annotation.get("iscrowd") or 0)) not in (0, 1):
                self.damaged.append(f"annotation {place} of the file: iscrowd is {flag!r}; expected 0 or 1")
            elif (key := _id(annotation["image_id"])) in self._annotations:
                self._annotations[key].append(annotation)
            else:
                strays[key] += 1
        return strays

    def _find(self, file_name: str) -> dict[str, Any]:
        if not (found := self._index.find(file_name)):
            near = get_close_matches(printable(file_name), self._images, 3, 0)
            raise DataError(
                f"{self.file} lists no image '{printable(file_name)}'; nearest names there: {', '.join(near)}"
            )
        if len(found) > 1:
            names = " and ".join(map(repr, found[:2]))
            raise DataError(f"{self.file} lists {names}, which can both be {file_name!r}; expected one")
        path = Path(file_name).absolute()
        if (first := self._found.setdefault(found[0], path)) != path:
            raise DataError(f"{self.file} lists one image {found[0]!r} for {first} and {path}; expected both")
        return self._images[found[0]]


def _is_crowd(annotation: Mapping[str, Any]) -> bool:
    return bool(_id(annotation.get("iscrowd") or 0))


def _id(value: Any) -> Any:
    """Return an id as a number if it is a whole one: 7, 7.0 and "7" are equal."""
    try:
        return int(value) if isinstance(value, str) or int(value) == value else str(value)
    except (ValueError, TypeError, OverflowError):
        return str(value)


def _decode(segmentation: Any, height: int, width: int) -> Mask:
    """Decode polygons, run lengths or compressed run lengths of COCO: [height, width]."""
    from pycocotools import mask as coco_mask

    if not segmentation:
        raise ValueError("it has no segmentation")
    if isinstance(segmentation, dict):
        if (size := [*segmentation.get("size", ())]) not in ([], [height, width]):
            raise ValueError(f"its size is {size}, the image's [{height}, {width}]")
        return decode({"size": [height, width], "counts": segmentation["counts"]})
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
        if abs(corners).max() > _FARTHEST:
            raise ValueError(f"a corner is farther than {_FARTHEST:,} pixels")
        polygons.append(corners.ravel().tolist())
    merged = coco_mask.merge(coco_mask.frPyObjects(polygons, height, width))
    return np.asarray(coco_mask.decode(merged), dtype=bool)
