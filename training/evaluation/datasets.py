"""Labeled images, and which of them are test images."""

import posixpath
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dino_model.data.classes import LabelOptions, describe_classes, sort_classes
from dino_model.data.collection import Images, find_listed, label_by_table, open_images
from dino_model.data.folders import is_left_out
from dino_model.data.images import ImageError
from dino_model.runtime.errors import pluralize

FEW_IMAGES = 5
"""Images of a class below which a warning is printed: every fifth one is a test image."""


@dataclass(frozen=True)
class Split:
    """Training and test images of one data set; the same, if each image is searched among all others."""

    train: Images
    test: Images
    rule: str
    """Rule that selected the test images."""
    unused: str = ""
    """Images of the data set that are in neither part, in words."""

    def __post_init__(self) -> None:
        if not len(self.train) or not len(self.test):
            raise ValueError(
                f"Found {len(self.train)} training and {len(self.test)} test images: both are needed."
            )
        train, test = ({*_class_names(images)} for images in (self.train, self.test))
        if unknown := sort_classes(test - train):
            raise ValueError(f"Test classes without training images: {describe_classes(unknown)}.")
        if len(train) < 2 and not self.several:
            raise ValueError(f"All training images are of one class, {min(train)!r}: two are needed.")
        if self.test is not self.train and (shared := _in_both(self.train, self.test)):
            found = f"{pluralize(len(shared), 'test image')} among the training images"
            raise ValueError(f"Found {found}, the first is {shared[0]}: remove them.")

    def __str__(self) -> str:
        test, train = pluralize(len(self.test), "test image"), pluralize(len(self.train), "training image")
        return f"{test} ({self.rule}), {train}, {describe_classes(self.classes)}{self.unused}"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the training classes, in the order of `sort_classes`. A label is a position in it."""
        return sort_classes(_class_names(self.train))

    @property
    def several(self) -> bool:
        """True if an image can have several classes, or none."""
        return self.train.label_sets is not None or self.test.label_sets is not None

    def labels(self, images: Images) -> Tensor:
        """Return the labels of images of this split: int64 [images]; bool [images, classes] if `several`."""
        number = {name: index for index, name in enumerate(self.classes)}
        if not self.several:
            return torch.tensor([number[name] for name in _class_names(images)], dtype=torch.long)
        labels = torch.zeros(len(images), len(number), dtype=torch.bool)
        for index in range(len(images)):
            labels[index, [number[name] for name in images.label_names(index)]] = True
        return labels

    def check_single(self, protocol: str) -> None:
        """Raise ValueError if images have several classes, which a protocol has no metric for."""
        if self.several:
            raise ValueError(
                f"Images have several classes, which {protocol} does not support: use knn or linear."
            )

    def warnings(self) -> list[str]:
        """Return what makes a score uncertain: classes without a test image, or of few images."""
        tested = Counter(_class_names(self.test))
        total = Counter(_class_names(self.train)) + tested
        found = {
            "have no test image": [name for name in self.classes if not tested[name]],
            f"have fewer than {FEW_IMAGES} images": [
                name for name in self.classes if total[name] < FEW_IMAGES
            ],
        }
        return [
            f"{len(names)} of {describe_classes(self.classes).partition(' (')[0]} {what}: "
            + describe_classes(names).partition(" (")[2].rstrip(")")
            for what, names in found.items()
            if names
        ]

    def unreadable(self, train: Images, test: Images) -> list[str]:
        """Return the classes that have no image among those that could be read, as `warnings` does."""
        pairs = {"training": (self.train, train), "test": (self.test, test)}
        lost = {part: {*_class_names(a)} - {*_class_names(b)} for part, (a, b) in pairs.items()}
        texts = {part: describe_classes(sort_classes(names)) for part, names in lost.items() if names}
        return [f"no {part} image can be read of {text}" for part, text in texts.items()]


def open_split(
    data: Path,
    test: Path | None = None,
    split: Path | None = None,
    *,
    test_labels: Path | None = None,
    arrays: bool = False,
    options: LabelOptions | None = None,
) -> Split:
    """Open training and test images: the first of these ways that the arguments or the images have.

    Args:
        data: Labeled images as `open_images` takes them.
        test: Test images, if they are not part of `data`. Of `data`, the split train is for training, or all.
        split: Text file with the names of the test images of `data`, one per line.
        test_labels: Table of the test images and their classes, of `test`, else of `data`.
        arrays: Count .npy files as images, too.
        options: Where classes and splits are. The split val, else test, has the test images.

    Without these, every fifth image of each class is a test image.

    Raises:
        ImageError: As `open_images` and `Images.require_classes`.
        ValueError: One class, an empty class folder, classes without training images, images that are in both
            parts, names in `split` that do not exist, splits without training or test images.
    """
    options = options or LabelOptions()
    if test is not None or test_labels is not None:
        if test_labels is None:
            tested = open_labeled(test or data, arrays=arrays, options=options)
        else:
            of_table = replace(options, split_folders="none")
            tested = label_by_table(open_images(test or data, arrays=arrays), test_labels, of_table)
        left_out = {*tested.names} if test is None else set()
        train = open_labeled(data, arrays=arrays, options=options, without=left_out)
        unused = ""
        if train.splits is not None:
            unused = _describe_unused(Counter(train.splits), "train")
            train = _of_split(train, "train")
        tested = tested.require_classes()
        return Split(train, tested, f"those in {(test_labels or test or data).name}", unused)
    images = open_labeled(data, arrays=arrays, options=options)
    if split is not None:
        chosen = set(find_listed(images, split, options))
        train = images.subset(index for index in range(len(images)) if index not in chosen)
        return Split(train, images.subset(sorted(chosen)), f"those listed in {split.name}")
    if images.splits is None:
        try:
            rest, fifth = every_fifth(class_labels(images))
        except ValueError as error:
            read = f"{images.reading}: {pluralize(len(images), 'image')}, {describe_classes(images.classes)}"
            raise ValueError(
                f"{error} {read}. If these are no classes, pass --class-column, --class-key or --class-level,"
                " such as --class-key none for class folders; else pass --test or --split."
            ) from None
        parts = images.subset(rest.tolist()), images.subset(fifth.tolist())
        return Split(*parts, "every fifth of each class, in order")
    counts: Counter[str] = Counter(images.splits)
    tested_split = "val" if counts["val"] else "test"
    if not counts["train"] or not counts[tested_split]:
        found = ", ".join(f"{number:,} of {name or 'no split'}" for name, number in counts.items())
        raise ValueError(
            f"The images of {data} are {found}: training and test images are needed. Pass --test or --split,"
            " or --split-folders none or --split-column none."
        )
    train, tested = (_of_split(images, name) for name in ("train", tested_split))
    return Split(train, tested, f"the split {tested_split}", _describe_unused(counts, "train", tested_split))


def _of_split(images: Images, wanted: str) -> Images:
    return images.subset(index for index, split in enumerate(images.splits or ()) if split == wanted)


def open_labeled(
    path: Path,
    *,
    arrays: bool = False,
    options: LabelOptions | None = None,
    without: Container[str] = (),
) -> Images:
    """Open labeled images, see `Images.require_classes`; arguments and errors as `open_split`."""
    opened = open_images(path, arrays=arrays, options=options)
    if without:
        opened = opened.subset(index for index, name in enumerate(opened.names) if name not in without)
    images = opened.require_classes()
    if images.labels is not None and (options is None or options.labels is None) and path.is_dir():
        _refuse_empty_class(path, images.names, opened.names)
    return images


def _describe_unused(counts: Mapping[str, int], *used: str) -> str:
    """Describe the images of other splits."""
    left = {name: number for name, number in counts.items() if name not in used and number}
    return "".join(
        f"; not used: {pluralize(number, 'image')} ({name or 'no split'})" for name, number in left.items()
    )


def class_labels(images: Images) -> Tensor:
    """Labels that images are divided by; one for all images if they have several classes."""
    return torch.zeros(len(images)) if images.labels is None else torch.tensor(images.labels)


def every_fifth(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Divide images: of each class every fifth one in their order is for testing, or for model selection.

    On Caltech-101, in the order of names, this gives 6,982 and 1,695 images.

    Args:
        labels: int64 [images]; of images with several classes, bool [images, classes], which are one group.

    Returns:
        Ascending indices of the training and of the test images.

    Raises:
        ValueError: No class has five images.
    """
    is_test = torch.zeros(len(labels), dtype=torch.bool)
    labels = labels if labels.ndim == 1 else torch.zeros(len(labels))
    for label in labels.unique():
        is_test[(labels == label).nonzero()[4::5, 0]] = True
    if not is_test.any():
        raise ValueError("No class has five images: there is none to test, or to select a classifier on.")
    return (~is_test).nonzero()[:, 0], is_test.nonzero()[:, 0]


def draw_labeled(labels: Tensor, seed: int, names: Sequence[str], wanted: str) -> Tensor:
    """Draw a share or a number of the images of each class, by a seed.

    Args:
        labels: int64 [images], from 0.
        seed: Seed of the draw.
        names: Names of the classes, for the error.
        wanted: Share of each class, such as 10 %, at least one image of each; or the number of images of
            each class.

    Returns:
        Sorted indices.

    Raises:
        ValueError: A share outside (0, 100 %], or a class with fewer images than wanted.
    """
    share = float(wanted[:-1]) / 100 if wanted.endswith("%") else None
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"The share of labels is {wanted}: expected more than 0, at most 100 %.")
    random, chosen = np.random.default_rng(seed), []
    for label in labels.unique().tolist():
        members = (labels == label).nonzero()[:, 0].numpy()
        count = int(wanted) if share is None else max(1, int(share * len(members) + 0.5))
        if not 1 <= count <= len(members):
            raise ValueError(
                f"Class {names[label]!r} has {pluralize(len(members), 'training image')}, expected {count}."
            )
        chosen.append(random.choice(members, count, replace=False))
    return torch.from_numpy(np.sort(np.concatenate(chosen)))


def _class_names(images: Images) -> list[str]:
    """Classes of all images, one after the other."""
    return [name for index in range(len(images)) for name in images.label_names(index)]


def _refuse_empty_class(folder: Path, names: Iterable[str], all_names: Iterable[str]) -> None:
    """Raise ValueError for a class folder without images: the result would be of fewer classes."""
    classes = {folder / posixpath.dirname(name) for name in names}
    filled = {folder / posixpath.dirname(name) for name in all_names}
    filled = filled.union(*(path.parents for path in filled))
    for parent in sorted({path.parent for path in classes - {folder}} - classes):
        for child in sorted(parent.iterdir()):
            if child.is_dir() and child not in filled and not is_left_out(child.name):
                raise ValueError(f"The class folder {child} holds no image: fill or remove it.")


def _in_both(train: Images, test: Images) -> list[str]:
    """Return names of test images whose file, or a copy of it with the same name, is a training image."""
    places, same_name = set(train.places()), defaultdict(list)
    for index, name in enumerate(train.names):
        same_name[train.label_names(index), posixpath.basename(name)].append(index)

    def has_copy(index: int, name: str) -> bool:
        key = test.label_names(index), posixpath.basename(name)
        return any(_is_same(train, other, test, index) for other in same_name.get(key, ()))

    pairs = enumerate(zip(test.names, test.places(), strict=True))
    return [name for index, (name, place) in pairs if place in places or has_copy(index, name)]


def _is_same(train: Images, first: int, test: Images, second: int) -> bool:
    """Compare two files; unreadable ones are named when their features are computed."""
    with suppress(ImageError):
        return train.read_bytes(first) == test.read_bytes(second)
    return False
