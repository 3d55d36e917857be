"""Labelled data sets in their publishers' layouts, as torchvision reads them; nothing is downloaded."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torchvision import datasets

CollectionName = Literal["cifar10", "cifar100", "flowers", "cars", "inat18", "inat19"]


@dataclass(frozen=True)
class _Source:
    parts: Callable[[Path], tuple[Any, Any]]
    where: str


def _inaturalist(year: str) -> Callable[[Path], tuple[Any, Any]]:
    def parts(root: Path) -> tuple[Any, Any]:
        whole = datasets.INaturalist(str(root), version=year)
        raise ValueError(
            f"{len(whole):,} pictures of iNaturalist {year} lie in {root}, but torchvision does not tell"
            " which train: give two folders with --data and --test"
        )

    return parts


_SOURCES = {
    "cifar10": _Source(
        lambda root: (datasets.CIFAR10(root, True), datasets.CIFAR10(root, False)),
        "cifar-10-batches-py, 170 MB from https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
    "cifar100": _Source(
        lambda root: (datasets.CIFAR100(root, True), datasets.CIFAR100(root, False)),
        "cifar-100-python, 169 MB from https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
    "flowers": _Source(
        lambda root: (_Both(root, "train", "val"), datasets.Flowers102(root, "test")),
        "flowers-102, 345 MB from https://www.robots.ox.ac.uk/~vgg/data/flowers/102",
    ),
    "cars": _Source(
        lambda root: (datasets.StanfordCars(root, "train"), datasets.StanfordCars(root, "test")),
        "stanford_cars, about 2 GB; its first address is gone, torchvision's documentation names copies",
    ),
    "inat18": _Source(_inaturalist("2018"), "2018, about 120 GB from https://github.com/visipedia/inat_comp"),
    "inat19": _Source(_inaturalist("2019"), "2019, about 75 GB from https://github.com/visipedia/inat_comp"),
}


class _Both:
    """Flowers' training and validation pictures, both of which the published figures learn from."""

    def __init__(self, root: Path, *parts: str) -> None:
        self.parts = [datasets.Flowers102(root, part) for part in parts]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, index: int) -> Any:
        for part in self.parts:
            if index < len(part):
                return part[index]
            index -= len(part)
        raise IndexError(index)


@dataclass(frozen=True)
class Collection:
    """One part of a data set: pictures by number, with labels."""

    items: Any

    def __len__(self) -> int:
        return len(self.items)

    def read(self, index: int) -> np.ndarray:
        """uint8 RGB [height, width, 3]."""
        return np.asarray(self.items[index][0].convert("RGB"))

    def labels(self) -> list[int]:
        """Of every picture, from 0."""
        known = getattr(self.items, "targets", None)
        return list(known) if known is not None else [self.items[i][1] for i in range(len(self.items))]


def open_collection(name: CollectionName, root: Path) -> tuple[Collection, Collection]:
    """Training and test pictures of a data set as torchvision lays it out below `root`.

    Raises:
        ValueError: it is not there: what was expected where, where it comes from, how large it is.
    """
    source = _SOURCES[name]
    try:
        train, test = source.parts(root)
    except (RuntimeError, OSError) as error:
        raise ValueError(f"{name} is not complete in {root}: expected there {source.where}") from error
    return Collection(train), Collection(test)
