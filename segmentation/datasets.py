"""Readers of DAVIS 2016 and 2017, and of PASCAL VOC 2007 and 2012."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from segmentation.frames import frame_files
from segmentation.labels import VOID, DataError, Labels, check_size, object_ids, read_labels
from segmentation.masks import Box

VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable"),
    *("dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
"""Names of labels 1 to 20."""


def nearby_hint(root: Path, is_right: Callable[[Path], bool]) -> str:
    """Name the folder below or above `root` that fulfills a condition, for the end of a message."""
    below = (folder for depth in ("*/", "*/*/", "*/*/*/") for folder in sorted(root.glob(depth)))
    right = next((folder for folder in (*below, *root.resolve().parents[:3]) if is_right(folder)), None)
    return f"; {right} looks right" if right else ""


@dataclass(frozen=True)
class Clip:
    """A sequence of DAVIS, whose labels are propagated from the first frame."""

    name: str
    frames: tuple[Path, ...]  # image files, in order
    masks: tuple[Path, ...]  # files of the labels of frames, in order; test sets have the first one only


def open_davis(root: Path, *, split: str = "val", sequences: Sequence[str] = ()) -> list[Clip]:
    """Find the sequences of a folder with the layout of DAVIS 2017 at 480p.

    Args:
        root: Folder that holds ImageSets/2017, JPEGImages/480p and Annotations/480p.
        split: Name of the list without .txt.
        sequences: Only these; empty for all of the list.

    Raises:
        DataError: No list, or a sequence, folder, first mask or frame that is missing.
    """
    lists = Path("ImageSets", "2017", f"{split}.txt")
    listed_in = root / lists
    missing = not listed_in.is_file()
    hint = nearby_hint(root, lambda folder: (folder / lists).is_file()) if missing else ""
    listed = read_names(listed_in, hint)
    if unknown := [name for name in sequences if name not in listed]:
        raise DataError(f"sequence {unknown[0]!r} is not in {listed_in}; it has {', '.join(listed)[:300]}")
    return [_find_clip(root, name) for name in listed if name in sequences or not sequences]


def _find_clip(root: Path, name: str) -> Clip:
    folders = root / "JPEGImages/480p" / name, root / "Annotations/480p" / name
    for folder in folders:
        if not folder.is_dir():
            raise DataError(f"the folder {folder} is missing; restore it, or pass others with --sequences")
    frames = frame_files(folders[0])
    masks = {mask.stem: mask for mask in sorted(folders[1].glob("*.png"))}
    if alone := [mask for stem, mask in masks.items() if stem not in {frame.stem for frame in frames}]:
        raise DataError(f"{alone[0]} has no frame in {folders[0]}; restore it or remove the mask")
    if frames[0].stem not in masks:
        missing = folders[1] / f"{frames[0].stem}.png"
        raise DataError(f"the first mask {missing} is missing; it says which objects to follow")
    return Clip(name, frames, tuple(masks[frame.stem] for frame in frames if frame.stem in masks))


def read_names(file: Path, hint: str = "") -> tuple[str, ...]:
    """Read the names of sequences or images from a text file: the first word of each line.

    Raises:
        DataError: No such file, with `hint`; no text, or an empty file.
    """
    if not file.is_file():
        there = ", ".join(sorted(path.stem for path in file.parent.glob("*.txt"))) or "none"
        raise DataError(f"the list {file} is missing; lists there: {there}{hint}")
    try:
        names = [line.split()[0] for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the list {file} cannot be read as text: {error}") from None
    if not names:
        raise DataError(f"the list {file} is empty; expected one name per line")
    return tuple(dict.fromkeys(names))


def read_first_mask(file: Path, frame_size: tuple[int, ...], *, binary: bool = False) -> Labels:
    """Read the labels of the first frame of a video of this size (height, width): uint8 [H, W].

    With `binary`, every label other than 0 is object 1.

    Raises:
        DataError: Unreadable, without object, or of another size than the frames.
    """
    labels = read_labels(file, binary=binary)
    if not object_ids(labels):
        is_binary = bool((labels == VOID).any())
        remedy = "it has 255 only, as binary masks have: pass --binary" if is_binary else "every pixel is 0"
        raise DataError(f"the mask {file} marks no object: {remedy}")
    check_size(f"the mask {file}", labels.shape, "the frames", frame_size)
    return labels


class VocSample(NamedTuple):
    """Image of the list with its two annotations."""

    name: str
    image: Path
    classes: Path
    objects: Path

    @property
    def file_name(self) -> str:
        """Name of the image file."""
        return self.image.name


class Annotation(NamedTuple):
    """Classes and objects per pixel, [height, width] each; void is a band around objects."""

    classes: Labels
    objects: Labels


def find_voc(root: Path, year: int = 2012) -> Path:
    """Find the folder VOC<year> of a VOCdevkit; raises FileNotFoundError if `root` is none."""
    images_folder = Path(f"VOC{year}", "JPEGImages")
    if not (root / images_folder).is_dir():
        hint = nearby_hint(root, lambda folder: (folder / images_folder).is_dir())
        raise FileNotFoundError(f"{root} holds no {images_folder}; pass the VOCdevkit that holds it{hint}")
    return root / f"VOC{year}"


def list_voc_samples(root: Path, split: str = "val") -> list[VocSample]:
    """List the images and annotations of a split of VOC 2012 segmentation.

    Raises:
        FileNotFoundError: Wrong root (see `find_voc`), or a file of the list is missing.
        DataError: No list.
    """
    voc = find_voc(root)
    files = {"JPEGImages": "jpg", "SegmentationClass": "png", "SegmentationObject": "png"}
    samples = []
    for name in read_names(voc / "ImageSets" / "Segmentation" / f"{split}.txt"):
        sample = VocSample(name, *(voc / folder / f"{name}.{suffix}" for folder, suffix in files.items()))
        for path in sample[1:]:
            if not path.is_file():
                raise FileNotFoundError(f"{path} is missing, though {split}.txt names {name}")
        samples.append(sample)
    return samples


def read_voc_annotation(sample: VocSample, size: tuple[int, int]) -> Annotation:
    """Read both annotations of an image of `size` (height, width); raises DataError if they are unusable."""
    annotation = Annotation(read_labels(sample.classes), read_labels(sample.objects))
    for path, labels in zip((sample.classes, sample.objects), annotation, strict=True):
        check_size(str(path), labels.shape, "its image", size)
    return annotation


def voc_class_name(category: int) -> str:
    """Return the name of a category: 0 is the foreground, unknown labels keep their number."""
    if category == 0:
        return "foreground"
    return VOC_CLASSES[category - 1] if category <= len(VOC_CLASSES) else f"label {category}"


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
