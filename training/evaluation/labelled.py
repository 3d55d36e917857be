"""Labelled pictures: which train and which are tested, draws of few labels, and what is refused."""

import math
import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dino_model.images import Images, open_images
from training.evaluation.imagenet import is_published, open_published

BACKGROUND = "BACKGROUND_Google"
"""Caltech-101's folder of pictures that belong to no class."""


@dataclass(frozen=True)
class Split:
    """Pictures that classifiers learn from, and pictures that they name."""

    train: Images
    test: Images
    how: str
    """How they were told apart, in words."""

    def __post_init__(self) -> None:
        for part in (self.train, self.test):
            labels_of(part)
        if not len(self.train) or not len(self.test):
            raise ValueError(
                f"{len(self.train)} pictures train and {len(self.test)} are tested: both are needed"
            )
        unknown = sorted(set(present(self.test)).difference(present(self.train)))
        if unknown:
            found = f"{len(unknown)} of the classes to test have no training pictures"
            raise ValueError(f"{found}, the first is {unknown[0]!r}")
        if len(set(present(self.train))) == 1:
            raise ValueError(
                f"all training pictures are of one class, {present(self.train)[0]!r}: two are needed"
            )
        if twice := _in_both(self.train, self.test):
            raise ValueError(f"{len(twice)} test pictures also train, the first is {twice[0]}: take them out")

    def __str__(self) -> str:
        return f"{len(self.test):,} tested ({self.how}), {len(self.train):,} train"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that train, sorted: what labels are numbers of."""
        return tuple(sorted(set(present(self.train))))

    def labels(self, images: Images) -> Tensor:
        """Labels of pictures of this split as numbers of `classes`: int64 [images]."""
        number = {name: index for index, name in enumerate(self.classes)}
        return torch.tensor([number[name] for name in present(images)])


def open_split(
    data: Path,
    *,
    test: Path | None = None,
    split: Path | None = None,
    leave_out: Collection[str] = (BACKGROUND,),
) -> Split:
    """The pictures to learn from and to name.

    Args:
        data: folder, tar or list with a folder for each class; or a folder with `train` and `val` (or
            `test`), each of that kind; or one with ImageNet's own tars.
        test: pictures to test on, which then are none of `data`.
        split: text file with the names of the pictures of `data` that are tested, one a line.
        leave_out: classes that are neither trained on nor tested.

    Left out `test` and `split`, and without folders `train` and `val`, every fifth of each class is tested.

    Raises:
        ImageError: as `open_images`; names in `split` that are not there.
        ValueError: no classes, one class, an empty class folder, classes that are only tested, pictures that
            would train and be tested.
    """
    if test is not None and split is not None:
        raise ValueError("--test and --split both tell what is tested: leave one out")
    if test is None and split is None and is_published(data):
        train, val = open_published(data)
        return Split(train, val, "the validation pictures")
    train_folder, val_folder = (
        data / "train",
        next((data / n for n in ("val", "test") if (data / n).is_dir()), None),
    )
    if test is None and split is None and train_folder.is_dir() and val_folder is not None:
        data, test = train_folder, val_folder
    images = _of_classes(data, leave_out)
    if test is not None:
        tested = _of_classes(test, {*leave_out}, foreign=True)
        return Split(images, tested, f"those in {test.name}")
    if split is not None:
        tested = images.named(split)
        names = set(tested.names)
        rest = images.subset(i for i, name in enumerate(images.names) if name not in names)
        return Split(rest, tested, f"those that {split.name} names")
    voting, asked = split_every_fifth(images, ())
    return Split(images.subset(voting), images.subset(asked), "every fifth of each class, by name")


def split_every_fifth(
    images: Images, leave_out: Collection[str] = (BACKGROUND,)
) -> tuple[list[int], list[int]]:
    """Indices of training and of test pictures: of each class, sorted by name, every fifth is tested.

    Args:
        images: with classes. On Caltech-101 this gives 6,982 and 1,695.
        leave_out: classes that go to neither part.

    Raises:
        ValueError: pictures without classes, a class to leave out that does not exist (but for Caltech's
            background, which other collections lack), or nothing left to test.

    Source: the project's protocol, docs/embedded-model.md.
    """
    by_class: defaultdict[int, list[int]] = defaultdict(list)
    for index in sorted(kept(images, leave_out), key=lambda index: images.names[index]):
        by_class[labels_of(images)[index]].append(index)
    places = [(place, index) for members in by_class.values() for place, index in enumerate(members)]
    train = sorted(index for place, index in places if place % 5 != 4)
    test = sorted(index for place, index in places if place % 5 == 4)
    if not test:
        raise ValueError(f"none of the {len(by_class)} classes has five pictures: there is none to test")
    return train, test


def draw_per_class(labels: Tensor, count: int, seed: int, names: Sequence[str]) -> Tensor:
    """Indices of `count` pictures of each class, sorted; which ones is a matter of the seed.

    Args:
        labels: int64 [pictures], from 0.
        count: of each class, at least 1.
        seed: the same draws the same.
        names: of the classes, for the error.

    Raises:
        ValueError: a class with fewer.
    """
    random = np.random.default_rng(seed)
    chosen = []
    for label in labels.unique().tolist():
        members = (labels == label).nonzero()[:, 0].numpy()
        if len(members) < count or count < 1:
            raise ValueError(
                f"class {names[label]!r} has {len(members)} training pictures, {count} of each are wanted"
            )
        chosen.append(random.choice(members, count, replace=False))
    return torch.from_numpy(np.sort(np.concatenate(chosen)))


def draw_share(labels: Tensor, share: float, seed: int) -> Tensor:
    """Indices of a share of the pictures of each class, at least one of each, sorted.

    Args:
        labels: int64 [pictures], from 0.
        share: above 0, at most 1.
        seed: the same draws the same.

    Raises:
        ValueError: a share that cannot be.
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share of labels is {share}: expected more than 0, at most 1")
    random = np.random.default_rng(seed)
    chosen = []
    for label in labels.unique().tolist():
        members = (labels == label).nonzero()[:, 0].numpy()
        chosen.append(random.choice(members, max(1, math.floor(share * len(members) + 0.5)), replace=False))
    return torch.from_numpy(np.sort(np.concatenate(chosen)))


def listed(images: Images, file: Path) -> Tensor:
    """Indices of the pictures that a list names, such as the published 1 % and 10 % of ImageNet.

    Args:
        images: the pictures.
        file: names of files, one a line, with or without folders; each must be of one picture.

    Raises:
        ValueError: a name that is not there, or none.
    """
    lines = {line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()}
    of = {posixpath.basename(name): index for index, name in enumerate(images.names)}
    of |= {name: index for index, name in enumerate(images.names)}
    missing = sorted(lines.difference(of))
    if missing or not lines:
        found = (
            f"{len(missing)} pictures that are not there, the first is {missing[0]}" if missing else "nothing"
        )
        raise ValueError(f"{file} names {found}; names look like {images.names[0]}")
    return torch.tensor(sorted({of[line] for line in lines}))


def present(images: Images) -> list[str]:
    """The name of every picture's class."""
    return [images.classes[label] for label in labels_of(images)]


def kept(images: Images, leave_out: Collection[str]) -> list[int]:
    """Indices of the pictures whose class is not left out.

    Raises:
        ValueError: no classes, or a class to leave out that does not exist.
    """
    labels = labels_of(images)
    unknown = sorted(set(leave_out).difference(images.classes, {BACKGROUND}))
    if unknown:
        raise ValueError(f"no class {unknown[0]!r} to leave out; classes look like {images.classes[0]!r}")
    return [index for index, label in enumerate(labels) if images.classes[label] not in leave_out]


def labels_of(images: Images) -> Sequence[int]:
    """Number of every picture's class in `images.classes`.

    Raises:
        ValueError: pictures without classes.
    """
    if images.labels is None:
        raise ValueError(
            f"pictures in {images.root} have no classes: expected two folders or more, one for each class"
        )
    return images.labels


def _of_classes(path: Path, leave_out: Collection[str], *, foreign: bool = False) -> Images:
    """Labelled pictures; `foreign`: what is left out may be missing here."""
    images = open_images(path)
    labels_of(images)
    if path.is_dir():
        _refuse_empty(path, images.names)
    if "." in images.classes:
        loose = [name for name in images.names if "/" not in name]
        raise ValueError(
            f"{len(loose)} pictures in {path} lie in no class folder, the first is {loose[0]}: move them"
        )
    if foreign:
        leave_out = {*leave_out}.intersection(images.classes)
    return images.subset(kept(images, leave_out))


def _refuse_empty(folder: Path, names: Iterable[str]) -> None:
    """A class folder without pictures is a mistake: figures would be of fewer classes than it seems."""
    full = {parent.as_posix() for name in names for parent in Path(name).parents}
    beside = {Path(parent).parent.as_posix() for parent in {posixpath.dirname(name) for name in names}}
    for parent in sorted(beside):
        for child in sorted((folder / parent).iterdir()):
            name = child.relative_to(folder).as_posix()
            if child.is_dir() and not child.name.startswith(".") and name not in full:
                raise ValueError(f"the class folder {child} holds no picture: fill it, or take it out")


def _in_both(train: Images, test: Images) -> list[str]:
    """Names of test pictures whose file, or a copy of it under the same name, also trains."""
    places = set(train.places())
    twice = [i for i, place in enumerate(test.places()) if place in places]
    of: defaultdict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(train.names):
        of[name].append(index)
    copies = [
        i
        for i, name in enumerate(test.names)
        if any(train.read_bytes(other) == test.read_bytes(i) for other in of[name])
    ]
    return [test.names[i] for i in sorted({*twice, *copies})]
