"""Labeled images in class folders, and which of them are test images."""

import math
import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dino_model.collections import Images, open_images
from training.evaluation.options import BACKGROUND


@dataclass(frozen=True)
class Split:
    """Training and test images of one data set."""

    train: Images
    test: Images
    rule: str
    """How the test images were chosen."""

    def __post_init__(self) -> None:
        train, test = class_names(self.train), class_names(self.test)
        if not train or not test:
            raise ValueError(f"Found {len(train)} training and {len(test)} test images: both are needed.")
        if unknown := sorted({*test}.difference(train)):
            raise ValueError(
                f"{len(unknown)} test classes have no training images, the first is {unknown[0]!r}."
            )
        if len({*train}) == 1:
            raise ValueError(f"All training images are of one class, {train[0]!r}: two are needed.")
        if shared := _in_both(self.train, self.test):
            raise ValueError(
                f"{len(shared)} test images are also training images, the first is {shared[0]}: remove them."
            )

    def __str__(self) -> str:
        return f"{len(self.test):,} test images ({self.rule}), {len(self.train):,} training images"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the training classes, sorted; labels are their numbers."""
        return tuple(sorted({*class_names(self.train)}))

    def labels(self, images: Images) -> Tensor:
        """Return the labels of images of this split: int64 [images]."""
        number = {name: index for index, name in enumerate(self.classes)}
        return torch.tensor([number[name] for name in class_names(images)])

    def protocol(self, description: str, data: str) -> dict[str, Any]:
        """Return the entries that every evaluation on a split writes as its protocol."""
        return {"description": description, "data": data, "split": str(self), "classes": len(self.classes)}


def open_split(
    data: Path,
    test: Path | None = None,
    split: Path | None = None,
    leave_out: Collection[str] = (BACKGROUND,),
    *,
    arrays: bool = False,
) -> Split:
    """Open training and test images.

    Args:
        data: Folder, tar or list with a folder per class; or a folder with `train` and `val` (or `test`),
            each of that kind.
        test: Test images, if they are not part of `data`.
        split: Text file with the names of the test images of `data`, one per line.
        leave_out: Classes that are used neither for training nor for testing.
        arrays: Count .npy files as images, too.

    Without `test`, `split` and folders `train` and `val`, every fifth image of each class is a test image.

    Raises:
        ImageError: As `open_images`; names in `split` that do not exist.
        ValueError: No classes, one class, an empty class folder, classes without training images, images that
            are in both parts.
    """
    if test is None and split is None:
        val = next((data / name for name in ("val", "test") if (data / name).is_dir()), None)
        if (data / "train").is_dir() and val is not None:
            data, test = data / "train", val
    images = _open_classes(data, leave_out, arrays=arrays)
    if test is not None:
        tested = _open_classes(test, leave_out, is_test=True, arrays=arrays)
        return Split(images, tested, f"those in {test.name}")
    if split is not None:
        chosen = images.named(split)
        names = {*chosen.names}
        rest = images.subset(index for index, name in enumerate(images.names) if name not in names)
        return Split(rest, chosen, f"those listed in {split.name}")
    train_indices, test_indices = split_every_fifth(images, ())
    parts = images.subset(train_indices), images.subset(test_indices)
    return Split(*parts, "every fifth of each class, by name")


def split_every_fifth(
    images: Images, leave_out: Collection[str] = (BACKGROUND,)
) -> tuple[list[int], list[int]]:
    """Return indices of training and of test images: every fifth image of each class by name is for testing.

    On Caltech-101 this gives 6,982 and 1,695 images.

    Raises:
        ValueError: Images without classes, an unknown class to leave out (other than Caltech's background),
            or no class with five images.
    """
    labels = labels_of(images)
    members: defaultdict[int, list[int]] = defaultdict(list)
    for index in sorted(_kept(images, leave_out), key=lambda index: images.names[index]):
        members[labels[index]].append(index)
    test = sorted(index for indices in members.values() for index in indices[4::5])
    if not test:
        raise ValueError(f"None of the {len(members)} classes has five images: there is none to test.")
    train = {index for indices in members.values() for index in indices}.difference(test)
    return sorted(train), test


def draw_labeled(
    labels: Tensor, seed: int, names: Sequence[str], *, share: float | None = None, count: int | None = None
) -> Tensor:
    """Draw a share or a number of the images of each class, by a seed.

    Args:
        labels: int64 [images], from 0.
        seed: Seed of the draw.
        names: Names of the classes, for the error.
        share: Share of each class, in (0, 1]; at least one image of each.
        count: Number of images of each class, instead of a share.

    Returns:
        Sorted indices. ValueError for a share outside (0, 1], or a class with fewer images than `count`.
    """
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"The share of labels is {share}: expected more than 0, at most 1.")
    random, chosen = np.random.default_rng(seed), []
    for label in labels.unique().tolist():
        members = (labels == label).nonzero()[:, 0].numpy()
        wanted = count if share is None else max(1, math.floor(share * len(members) + 0.5))
        if wanted is None or not 1 <= wanted <= len(members):
            raise ValueError(
                f"Class {names[label]!r} has {len(members)} training images, {wanted} of each are wanted."
            )
        chosen.append(random.choice(members, wanted, replace=False))
    return torch.from_numpy(np.sort(np.concatenate(chosen)))


def find_listed(images: Images, file: Path) -> Tensor:
    """Return indices of the images that a list names, such as the published 1 % and 10 % of ImageNet.

    The file holds one name per line, with or without folders.

    Raises:
        ValueError: A name that does not exist, or an empty list.
    """
    lines = {line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()}
    number = {posixpath.basename(name): index for index, name in enumerate(images.names)}
    number |= {name: index for index, name in enumerate(images.names)}
    missing = sorted(lines.difference(number))
    if missing or not lines:
        found = f"{len(missing)} unknown images, the first is {missing[0]}" if missing else "no image"
        raise ValueError(f"{file} names {found}; names look like {images.names[0]}.")
    return torch.tensor(sorted({number[line] for line in lines}))


def labels_of(images: Images) -> Sequence[int]:
    """Return the number of every image's class in `images.classes`; raises ValueError without classes."""
    if images.labels is None:
        raise ValueError(
            f"Images in {images.root} have no classes: expected two folders or more, one per class."
        )
    return images.labels


def class_names(images: Images) -> list[str]:
    """Return the name of every image's class."""
    return [images.classes[label] for label in labels_of(images)]


def _kept(images: Images, leave_out: Collection[str]) -> list[int]:
    """Return indices of the images whose class is not left out."""
    if unknown := sorted({*leave_out}.difference(images.classes, {BACKGROUND})):
        raise ValueError(f"No class {unknown[0]!r} to leave out; classes look like {images.classes[0]!r}.")
    return [index for index, name in enumerate(class_names(images)) if name not in leave_out]


def _open_classes(
    path: Path, leave_out: Collection[str], *, is_test: bool = False, arrays: bool = False
) -> Images:
    """Open labeled images; test images may lack a class that is left out."""
    images = open_images(path, arrays=arrays)
    labels_of(images)
    if path.is_dir():
        _refuse_empty_class(path, images.names)
    if "." in images.classes:
        loose = [name for name in images.names if "/" not in name]
        raise ValueError(
            f"{len(loose)} images in {path} are in no class folder, the first is {loose[0]}: move them."
        )
    return images.subset(_kept(images, {*leave_out}.intersection(images.classes) if is_test else leave_out))


def _refuse_empty_class(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError for a class folder without images: the result would be of fewer classes."""
    parents = {posixpath.dirname(name) for name in names}
    filled = parents | {parent.as_posix() for name in parents for parent in Path(name).parents}
    for parent in sorted({posixpath.dirname(name) for name in parents}):
        for child in sorted((folder / parent).iterdir()):
            name = child.relative_to(folder).as_posix()
            if child.is_dir() and not child.name.startswith(".") and name not in filled:
                raise ValueError(f"The class folder {child} holds no image: fill or remove it.")


def _in_both(train: Images, test: Images) -> list[str]:
    """Return names of test images whose file, or a copy of it with the same name, is a training image."""
    places = set(train.places())
    shared = {index for index, place in enumerate(test.places()) if place in places}
    same_name: defaultdict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(train.names):
        same_name[name].append(index)
    for index, name in enumerate(test.names):
        if any(train.read_bytes(other) == test.read_bytes(index) for other in same_name.get(name, ())):
            shared.add(index)
    return [test.names[index] for index in sorted(shared)]
