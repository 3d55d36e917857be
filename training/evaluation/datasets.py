"""Labeled images, and which of them are test images."""

import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dino_model.data.collections import Images, find_listed, open_images
from dino_model.data.images import ImageError
from dino_model.data.labels import describe_classes, has_word_of, label_by_folders, sort_classes
from dino_model.data.names import is_left_out
from dino_model.runtime.errors import pluralize

FEW_IMAGES = 5
"""Images of a class below which a warning is printed: every fifth one is a test image."""


@dataclass(frozen=True)
class Split:
    """Training and test images of one data set."""

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
            raise ValueError(f"Test classes without training images: {', '.join(unknown)[:300]}.")
        if len(train) < 2 and not self.several:
            raise ValueError(f"All training images are of one class, {min(train)!r}: two are needed.")
        if shared := _in_both(self.train, self.test):
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
    arrays: bool = False,
    labels: Path | None = None,
) -> Split:
    """Open training and test images.

    Args:
        data: Labeled images as `open_images` takes them. Folders such as `train` and `val` (else `test`), in
            any capitalization, divide them; without `train`, all images outside `val` are for training. A
            column `split` of a list or of `labels` does the same.
        test: Test images, if they are not part of `data`.
        split: Text file with the names of the test images of `data`, one per line.
        arrays: Count .npy files as images, too.
        labels: Table of paths and classes, instead of class folders.

    Without `test`, `split` and such folders or columns, every fifth image of each class is a test image.

    Raises:
        ImageError: As `open_images`.
        ValueError: No classes, one class, an empty class folder, classes without training images, images that
            are in both parts, names in `split` that do not exist.
    """
    if test is not None:
        parts = (open_labeled(path, arrays=arrays, labels=labels) for path in (data, test))
        return Split(*_in_same_classes(*parts), f"those in {test.name}")
    images = open_images(data, arrays=arrays, labels=labels)
    names = images.names
    splits = images.splits()
    tested = next((split for split in ("val", "test") if split in splits), "")
    if images.table_splits is not None and split is None and not tested and "" in splits:
        raise ValueError(
            f"The table of {data} has training images and others, and none of val or test: name its test"
            " images test, or pass --split."
        )
    if split is not None or not tested:
        images = _without_background(images, None if labels else data, names)
        if split is not None:
            chosen, rule = torch.tensor(sorted(find_listed(images, split))), f"those listed in {split.name}"
            rest = torch.tensor(sorted({*range(len(images))}.difference(chosen.tolist())))
        else:
            (rest, chosen), rule = every_fifth(_groups(images)), "every fifth of each class, in order"
        return Split(images.subset(rest.tolist()), images.subset(chosen.tolist()), rule)
    trained = "train" if "train" in splits else ""
    if trained not in splits:
        others = " and ".join(sorted({*splits}))
        raise ValueError(f"Found {others} in {data}, and no training images: pass --data and --test.")
    left = Counter(split or "outside of them" for split in splits if split not in (trained, tested))
    unused = "".join(f"; not used: {pluralize(number, 'image')} ({name})" for name, number in left.items())
    images = images.subset(i for i, split in enumerate(splits) if split in (trained, tested))
    if not images.classes and (found := label_by_folders(images.names)).classes:
        images = images.with_labels(found)
    images = _without_background(images, None if labels else data, names)
    splits = images.splits()
    train, test_images = (
        images.subset(i for i, split in enumerate(splits) if split == wanted) for wanted in (trained, tested)
    )
    if images.table_splits is not None:
        return Split(train, test_images, f"those of {tested!r} in the table", unused)
    folder = next(part for part in test_images.names[0].split("/") if has_word_of(tested, part))
    return Split(train, test_images, f"those in {folder}", unused)


def open_labeled(path: Path, *, arrays: bool = False, labels: Path | None = None) -> Images:
    """Open labeled images, see `Images.without_background`; arguments and errors as `open_split`."""
    images = open_images(path, arrays=arrays, labels=labels)
    return _without_background(images, None if labels else path, images.names)


def _without_background(images: Images, folder: Path | None, names: Sequence[str]) -> Images:
    """Refuse images without classes and empty class folders; `names` are all images of the folder."""
    _class_names(images)  # raises for images without classes
    if images.label_sets is not None:
        return images
    if folder and folder.is_dir():
        _refuse_empty_class(folder, images.names, names)
    return images.without_background()


def _groups(images: Images) -> Tensor:
    """Labels that images are divided by; one for all images if they have several classes."""
    return torch.zeros(len(images)) if images.labels is None else torch.tensor(images.labels)


def _in_same_classes(train: Images, test: Images) -> tuple[Images, Images]:
    """Name the classes of two collections alike if their folders begin differently."""
    if {*_class_names(test)} <= {*_class_names(train)}:
        return train, test
    found = label_by_folders([*train.names, *test.names])
    if found.labels is None or train.labels is None:
        return train, test
    parts = found.labels[: len(train)], found.labels[len(train) :]
    first, second = (
        images.with_labels(found._replace(labels=part))
        for images, part in zip((train, test), parts, strict=True)
    )
    return (first, second) if {*_class_names(second)} <= {*_class_names(first)} else (train, test)


def every_fifth(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Divide images: of each class every fifth one in their order is for testing, or for model selection.

    On Caltech-101, in the order of names, this gives 6,982 and 1,695 images.

    Args:
        labels: int64 [images].

    Returns:
        Ascending indices of the training and of the test images.

    Raises:
        ValueError: No class has five images.
    """
    is_test = torch.zeros(len(labels), dtype=torch.bool)
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
    if not images.classes:
        raise ValueError(
            f"Images in {images.root} have no classes: {images.no_classes}. Expected a folder for each class:"
            " move them, or pass --labels TABLE."
        )
    if images.labels is not None:
        return [images.classes[label] for label in images.labels]
    return [images.classes[label] for given in images.label_sets or () for label in given]


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
