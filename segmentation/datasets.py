"""Readers of DAVIS 2016 and 2017, YouTube-VOS, and PASCAL VOC 2007 and 2012."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from dino_model.data import tables
from dino_model.data.images import SUFFIXES, ImageError, suffix_of
from segmentation.annotations import VOC_CLASSES, VOC_LIST, MaskReader, MaskRules
from segmentation.frames import frame_files
from segmentation.labels import DataError, Labels, check_size, object_ids
from segmentation.masks import Box


def nearby_hint(root: Path, is_right: Callable[[Path], bool]) -> str:
    """Name the folder below or above `root` that fulfills a condition, for the end of a message."""
    below = (folder for depth in ("*/", "*/*/", "*/*/*/") for folder in sorted(root.glob(depth)))
    right = next((folder for folder in (*below, *root.resolve().parents[:3]) if is_right(folder)), None)
    return f"; {right} looks right" if right else ""


@dataclass(frozen=True)
class Clip:
    """A sequence of DAVIS or YouTube-VOS, whose labels are propagated from the first masks."""

    name: str
    frames: tuple[Path, ...]  # image files, in order
    masks: tuple[Path, ...]  # files of the labels of frames, in order; test sets have the first ones only
    objects: str = ""  # their classes, where the data set has some
    has_truth: bool = True  # masks beyond the first of each object


def open_davis(
    root: Path,
    *,
    split: str = "val",
    sequences: Sequence[str] = (),
    listed: Path | None = None,
    appearance: bool = False,
) -> list[Clip]:
    """Find the sequences of a folder with the layout of DAVIS at 480p, or of YouTube-VOS, with meta.json.

    Args:
        root: Folder that holds ImageSets, JPEGImages/480p and Annotations/480p; or meta.json, JPEGImages and
            Annotations.
        split: Name of a list of DAVIS in ImageSets without .txt; in ImageSets/2017 if it names no folder.
        sequences: Only these; empty for all of the list.
        listed: File with the order of the frames, see `frame_files`.
        appearance: Objects may appear after the first frame; otherwise it has a mask.

    Raises:
        DataError: No list, or a sequence, folder, first mask or frame that is missing.
    """
    facts: dict[str, dict[str, Any]] = {}
    if (listed_in := root / "meta.json").is_file() and not (root / "ImageSets").is_dir():
        folder, facts = Path(), _read_meta(listed_in)
        names = tuple(facts)
    else:
        listed_in, folder = root / "ImageSets" / ("2017" * ("/" not in split)) / f"{split}.txt", Path("480p")
        lists = ", ".join(
            f"{file.parent.name}/{file.stem}" for file in sorted(root.glob("ImageSets/*/*.txt"))
        )
        hint = f"; pass --split with one of {lists}" if lists else nearby_hint(root, _is_video_root)
        names = read_names(listed_in, _names_in(root / "JPEGImages/480p"), hint)
    if unknown := [name for name in sequences if name not in names]:
        raise DataError(f"sequence {unknown[0]!r} is not in {listed_in}; it has {', '.join(names)[:300]}")
    clips = []
    for name in (name for name in names if name in sequences or not sequences):
        clip = _find_clip(root / "JPEGImages" / folder / name, root / "Annotations" / folder / name, listed)
        if clip.masks[:1] == () or (not appearance and clip.masks[0].stem != clip.frames[0].stem):
            missing = root / "Annotations" / folder / name / f"{clip.frames[0].stem}.png"
            raise DataError(
                f"the first mask {missing} is missing; it says which objects to follow. Pass --objects "
                "appearance if objects appear later"
            )
        clips.append(replace(clip, **facts[name]) if facts else clip)
    return clips


def _is_video_root(folder: Path) -> bool:
    return (folder / "ImageSets").is_dir() or (folder / "meta.json").is_file()


def _read_meta(file: Path) -> dict[str, dict[str, Any]]:
    """Read the objects of each video of YouTube-VOS: fields of its `Clip`."""
    facts = {}
    try:
        for name, video in sorted(json.loads(tables.read_text(file))["videos"].items()):
            classes = ", ".join(f"{label} {each['category']}" for label, each in video["objects"].items())
            has_truth = any(len(each["frames"]) > 1 for each in video["objects"].values())
            facts[name] = {"objects": classes, "has_truth": has_truth}
    except (ImageError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file} cannot be read as meta.json of YouTube-VOS: {error!r}") from None
    return facts


def _find_clip(images: Path, annotations: Path, listed: Path | None) -> Clip:
    for folder in (images, annotations):
        if not folder.is_dir():
            raise DataError(f"the folder {folder} is missing; restore it, or pass others with --sequences")
    frames = frame_files(images, listed)
    masks = {mask.stem: mask for mask in sorted(annotations.iterdir()) if mask.suffix.lower() == ".png"}
    if alone := [mask for stem, mask in masks.items() if stem not in {frame.stem for frame in frames}]:
        raise DataError(f"{alone[0]} has no frame in {images}; restore it or remove the mask")
    found = tuple(masks[frame.stem] for frame in frames if frame.stem in masks)
    return Clip(images.name, frames, found, has_truth=len(found) > 1)


def read_names(file: Path, known: Sequence[str], hint: str = "") -> tuple[str, ...]:
    """Read the names of sequences or images as `tables.read_names`; what is left out is printed.

    A line of DAVIS 2016 with a frame and its mask counts for the sequence of the frame.

    Raises:
        DataError: No such file, with `hint`; or no text, or no name in it.
    """
    if not file.is_file():
        there = ", ".join(sorted(path.stem for path in file.parent.glob("*.txt"))) or "none"
        raise DataError(f"the list {file} is missing{hint or f'; lists there: {there}'}")
    try:
        folders = [Path(line.split()[0]).parent.name for line in tables.read_lines(file)]
        if folders and set(folders) <= {*known}:
            return tuple(dict.fromkeys(folders))
        names, note = tables.read_names(file, known)
    except ImageError as error:
        raise DataError(f"the list {error}") from None
    if note:
        print(note, file=sys.stderr)
    return names


def _names_in(folder: Path) -> list[str]:
    """Return the sorted names of what is in a folder; empty if there is none."""
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def read_frame_mask(
    reader: MaskReader, file: Path, frame_size: tuple[int, ...], *, may_be_empty: bool = False
) -> Labels:
    """Read the labels of a frame of a video of this size (height, width): uint8 [H, W].

    Raises:
        DataError: Unreadable, of another size than the frames, or without object unless it `may_be_empty`.
    """
    labels = reader.read(file)
    if not may_be_empty and not object_ids(labels):
        threshold = reader.rules.threshold or 1
        remedy = f"every pixel is below {threshold}" if threshold > 1 else "every pixel is 0 or 255 (void)"
        raise DataError(f"the mask {file} marks no object: {remedy}")
    check_size(f"the mask {file}", labels.shape, "the frames", frame_size)
    return labels


class VocSample(NamedTuple):
    """Image of the list with its two annotations."""

    name: str
    image: Path
    classes: Path
    objects: Path | None

    @property
    def file_name(self) -> str:
        """Name of the image file."""
        return self.image.name

    @property
    def files(self) -> list[Path]:
        """The image and its annotations."""
        return [path for path in (self.image, self.classes, self.objects) if path]


class Annotation(NamedTuple):
    """Classes and objects per pixel, [height, width] each; void is a band around objects.

    Without annotated objects, `objects` are the classes.
    """

    classes: Labels
    objects: Labels


def find_voc(root: Path, year: int = 2012) -> Path:
    """Find the folder VOC<year> of a VOCdevkit; raises FileNotFoundError if `root` is none."""
    images_folder = Path(f"VOC{year}", "JPEGImages")
    if not (root / images_folder).is_dir():
        hint = nearby_hint(root, lambda folder: (folder / images_folder).is_dir())
        raise FileNotFoundError(f"{root} holds no {images_folder}; pass the VOCdevkit that holds it{hint}")
    return root / f"VOC{year}"


def read_voc_list(voc: Path, name: str) -> list[Path]:
    """Read the image files of a list in ImageSets, .jpg if there is none; errors as `read_names`."""
    names = read_names(voc / "ImageSets" / name, _names_in(voc / "JPEGImages"))
    files = (name if suffix_of(name) in SUFFIXES else f"{name}.jpg" for name in names)
    return [voc / "JPEGImages" / file for file in dict.fromkeys(files)]


def list_voc_samples(root: Path, split: str = "val", *, objects: bool = True) -> list[VocSample]:
    """List the images and annotations of a split of VOC 2012 segmentation; `objects`: also of single objects.

    Raises:
        FileNotFoundError: Wrong root (see `find_voc`), or a file of the list is missing.
        DataError: No list.
    """
    voc = find_voc(root)
    samples = []
    for image in read_voc_list(voc, f"Segmentation/{split}.txt"):
        name = image.stem
        masks = [voc / folder / f"{name}.png" for folder in ("SegmentationClass", "SegmentationObject")]
        sample = VocSample(name, image, masks[0], masks[1] if objects else None)
        for path in sample.files:
            if not path.is_file():
                raise FileNotFoundError(f"{path} is missing, though {split}.txt names {name}")
        samples.append(sample)
    return samples


class VocMasks:
    """Reads the annotations of the images of a split: classes by VOC's colors, objects of each image."""

    def __init__(self, samples: Sequence[VocSample], rules: MaskRules) -> None:
        """Look at all masks; raises DataError for classes in other colors than those of PASCAL VOC."""
        rules = replace(rules, classes=VOC_LIST)
        self.classes = MaskReader([sample.classes for sample in samples], rules)
        files = [sample.objects for sample in samples if sample.objects]
        self.objects = MaskReader(files, replace(rules, classes=()), scope="image") if files else None

    def table(self) -> str:
        """Format the classes, and the objects if there are some."""
        tables = [self.classes.table(), *([self.objects.table()] if self.objects else [])]
        return "\n".join(tables)

    def read(self, sample: VocSample, size: tuple[int, int]) -> Annotation:
        """Read the annotations of an image of `size` (height, width); raises DataError for unusable ones."""
        classes = self.classes.read(sample.classes)
        objects = self.objects.read(sample.objects) if self.objects and sample.objects else classes
        for path, labels in zip(sample.files[1:], (classes, objects), strict=False):
            check_size(str(path), labels.shape, "its image", size)
        return Annotation(classes, objects)


def voc_class_name(category: int) -> str:
    """Return the name of a category: 0 is the foreground."""
    return VOC_CLASSES[category - 1] if category else "foreground"


def read_voc_boxes(path: Path) -> list[Box]:
    """Read the boxes of all objects in a VOC annotation file, including difficult and truncated ones.

    Raises:
        ValueError: No such annotation, or a damaged one.
    """
    try:
        boxes = ElementTree.parse(path).getroot().findall("object/bndbox")
        corners = [
            [round(float(box.findtext(side, ""))) for side in ("xmin", "ymin", "xmax", "ymax")]
            for box in boxes
        ]
    except (OSError, ElementTree.ParseError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as a VOC annotation: {error}") from error
    # VOC counts pixels from 1 and its last pixel is inside; a Box counts from 0 and ends outside
    return [Box(left - 1, top - 1, right, bottom) for left, top, right, bottom in corners]
