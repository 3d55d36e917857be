"""Labeled images in class folders, and which of them are test images."""

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dino_model.data.collections import Images, open_images
from dino_model.runtime.errors import counted

BACKGROUND = "BACKGROUND_Google"
"""Caltech-101's folder of images that belong to no class. It is left out."""


@dataclass(frozen=True)
class Split:
    """Training and test images of one data set."""

    train: Images
    test: Images
    rule: str
    """Rule that selected the test images."""

    def __post_init__(self) -> None:
        train, test = _class_names(self.train), _class_names(self.test)
        if not train or not test:
            raise ValueError(f"Found {len(train)} training and {len(test)} test images: both are needed.")
        if unknown := sorted({*test}.difference(train)):
            raise ValueError(f"Test classes without training images: {', '.join(unknown)[:300]}.")
        if len({*train}) == 1:
            raise ValueError(f"All training images are of one class, {train[0]!r}: two are needed.")
        if shared := _in_both(self.train, self.test):
            found = f"{counted(len(shared), 'test image')} among the training images"
            raise ValueError(f"Found {found}, the first is {shared[0]}: remove them.")

    def __str__(self) -> str:
        test, train = counted(len(self.test), "test image"), counted(len(self.train), "training image")
        return f"{test} ({self.rule}), {train}"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the training classes, sorted; labels are their numbers."""
        return tuple(sorted({*_class_names(self.train)}))

    def labels(self, images: Images) -> Tensor:
        """Return the labels of images of this split: int64 [images]."""
        number = {name: index for index, name in enumerate(self.classes)}
        return torch.tensor([number[name] for name in _class_names(images)])


def open_split(
    data: Path, test: Path | None = None, split: Path | None = None, *, arrays: bool = False
) -> Split:
    """Open training and test images.

    Args:
        data: Folder, tar or list with a folder per class; or a folder with `train` and `val` (or `test`),
            each of that kind.
        test: Test images, if they are not part of `data`.
        split: Text file with the names of the test images of `data`, one per line.
        arrays: Count .npy files as images, too.

    Without `test`, `split` and folders `train` and `val`, every fifth image of each class is a test image.

    Raises:
        ImageError: As `open_images`.
        ValueError: No classes, one class, an empty class folder, classes without training images, images that
            are in both parts, names in `split` that do not exist.
    """
    if test is None and split is None:
        val = next((data / name for name in ("val", "test") if (data / name).is_dir()), None)
        if (data / "train").is_dir() and val is not None:
            data, test = data / "train", val
    images = open_labeled(data, arrays=arrays)
    if test is not None:
        return Split(images, open_labeled(test, arrays=arrays), f"those in {test.name}")
    if split is not None:
        chosen, rule = find_listed(images, split), f"those listed in {split.name}"
        rest = torch.tensor([*{*range(len(images))}.difference(chosen.tolist())])
    else:
        (rest, chosen), rule = every_fifth(torch.tensor(images.labels)), "every fifth of each class, by name"
    return Split(images.subset(rest.tolist()), images.subset(chosen.tolist()), rule)


def open_labeled(path: Path, *, arrays: bool = False) -> Images:
    """Open images in class folders, except those of `BACKGROUND`; arguments and errors as `open_split`."""
    images = open_images(path, arrays=arrays)
    names = _class_names(images)
    if path.is_dir():
        _refuse_empty_class(path, images.names)
    if "." in images.classes:
        loose = [name for name in images.names if "/" not in name]
        found = counted(len(loose), "image")
        raise ValueError(
            f"Found {found} in {path} outside class folders, the first is {loose[0]}: move them."
        )
    return images.subset(index for index, name in enumerate(names) if name != BACKGROUND)


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
                f"Class {names[label]!r} has {counted(len(members), 'training image')}, expected {count}."
            )
        chosen.append(random.choice(members, count, replace=False))
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
        unknown = counted(len(missing), "unknown image")
        found = f"{unknown}, the first is {missing[0]}" if missing else "no image"
        raise ValueError(f"{file} names {found}; names look like {images.names[0]}.")
    return torch.tensor(sorted({number[line] for line in lines}))


def _class_names(images: Images) -> list[str]:
    if images.labels is None:
        raise ValueError(
            f"Images in {images.root} have no classes: expected two folders or more, one per class."
        )
    return [images.classes[label] for label in images.labels]


def _refuse_empty_class(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError for a class folder without images: the result would be of fewer classes."""
    classes = {folder / posixpath.dirname(name) for name in names}
    filled = classes.union(*(path.parents for path in classes))
    for parent in sorted({path.parent for path in classes - {folder}}):
        for child in sorted(parent.iterdir()):
            if child.is_dir() and not child.name.startswith(".") and child not in filled:
                raise ValueError(f"The class folder {child} holds no image: fill or remove it.")


def _in_both(train: Images, test: Images) -> list[str]:
    """Return names of test images whose file, or a copy of it with the same name, is a training image."""
    places, same_name = set(train.places()), defaultdict(list)
    for index, name in enumerate(train.names):
        same_name[name].append(index)
    return [
        name
        for index, (name, place) in enumerate(zip(test.names, test.places(), strict=True))
        if place in places
        or any(train.read_bytes(other) == test.read_bytes(index) for other in same_name.get(name, ()))
    ]
