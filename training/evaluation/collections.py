"""Labelled data sets as they are published, where torchvision would look for them; nothing is fetched."""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from scipy.io import loadmat
from torchvision import datasets

from dino_model.images import Images

CollectionName = Literal["cifar10", "cifar100", "flowers", "cars", "inat18", "inat19"]


class Pictures(Protocol):
    """What is learnt from or tested: pictures by number, with labels."""

    @property
    def labels(self) -> Sequence[int] | None:
        """Of every picture, from 0."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> np.ndarray:
        """uint8 RGB [height, width, 3]."""

    def inventory(self) -> str:
        """Equal for copies of the same pictures."""


class Cifar:
    """One part of CIFAR: pictures of 32 pixels in one array, which torchvision checks and reads."""

    def __init__(self, part: Any) -> None:
        self.pictures: np.ndarray = part.data
        self.labels: list[int] = part.targets

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int) -> np.ndarray:
        """uint8 RGB [32, 32, 3]."""
        picture: np.ndarray = self.pictures[index]
        return picture

    def inventory(self) -> str:
        """Numbers alone: torchvision compares what it reads with what was published."""
        return f"{self.pictures.shape} {max(self.labels)}"


def open_collection(name: CollectionName, root: Path) -> tuple[Pictures, Pictures]:
    """Training and test pictures of a data set as it is published, below `root`.

    Args:
        name: which.
        root: folder that holds `cifar-10-batches-py`, `cifar-100-python`, `flowers-102`, `stanford_cars`; of
            iNaturalist `2018` (or `train_val2018`) and the publisher's `train2018.json` and `val2018.json`,
            of which the latter are tested; 2019 alike. Of Flowers the validation pictures train too.

    Raises:
        ValueError: it is not there: what was expected where, where it comes from, how large it is.
    """
    opened, where = _SOURCES[name]
    try:
        return opened(root)
    except (RuntimeError, OSError, KeyError) as error:  # torchvision's, a file's, a table's
        reason = str(error).partition(". You can")[0]
        raise ValueError(f"{name} is not complete in {root} ({reason}): expected there {where}") from error


def _cifar(kind: type[datasets.CIFAR10], root: Path) -> tuple[Pictures, Pictures]:
    return Cifar(kind(root, True)), Cifar(kind(root, False))


def _flowers(root: Path) -> tuple[Pictures, Pictures]:
    folder = root / "flowers-102"
    parts, labels = (_table(folder / name) for name in ("setid.mat", "imagelabels.mat"))

    def pictures(*which: str) -> Images:
        numbers = np.concatenate([np.atleast_1d(parts[part]) for part in which]).tolist()
        names = (f"jpg/image_{number:05d}.jpg" for number in numbers)
        return _images(folder, names, (int(labels["labels"][number - 1]) - 1 for number in numbers))

    return pictures("trnid", "valid"), pictures("tstid")


def _cars(root: Path) -> tuple[Pictures, Pictures]:
    folder = root / "stanford_cars"

    def pictures(part: str, table: str) -> Images:
        rows = np.atleast_1d(_table(folder / table)["annotations"])
        names = (f"{part}/{row['fname']}" for row in rows)
        return _images(folder, names, (int(row["class"]) - 1 for row in rows))

    return (
        pictures("cars_train", "devkit/cars_train_annos.mat"),
        pictures("cars_test", "cars_test_annos_withlabels.mat"),
    )


def _inaturalist(year: str, root: Path) -> tuple[Pictures, Pictures]:
    folder = next((root / name for name in (year, f"train_val{year}") if (root / name).is_dir()), root / year)

    def pictures(part: str) -> Images:
        told = json.loads((root / f"{part}{year}.json").read_text(encoding="utf-8"))
        label = {one["image_id"]: int(one["category_id"]) for one in told["annotations"]}
        names = (one["file_name"].removeprefix(f"train_val{year}/") for one in told["images"])
        return _images(folder, names, (label[one["id"]] for one in told["images"]))

    return pictures("train"), pictures("val")


def _table(file: Path) -> Any:
    return loadmat(file, squeeze_me=True)


def _images(folder: Path, names: Iterable[str], labels: Iterable[int]) -> Images:
    """Pictures of a folder with labels that are told elsewhere.

    Raises:
        FileNotFoundError: one that is not there.
    """
    found = Images(tuple(names), tuple(labels), (), folder)
    for name in found.names:
        (folder / name).stat()
    return found


_SOURCES: dict[str, tuple[Callable[[Path], tuple[Pictures, Pictures]], str]] = {
    "cifar10": (
        partial(_cifar, datasets.CIFAR10),
        "cifar-10-batches-py, 170 MB from https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
    "cifar100": (
        partial(_cifar, datasets.CIFAR100),
        "cifar-100-python, 169 MB from https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
    "flowers": (
        _flowers,
        "flowers-102 with jpg, setid.mat and imagelabels.mat, 345 MB from"
        " https://www.robots.ox.ac.uk/~vgg/data/flowers/102",
    ),
    "cars": (
        _cars,
        "stanford_cars with devkit, cars_train, cars_test and cars_test_annos_withlabels.mat, about 2 GB; its"
        " first address is gone, torchvision's documentation names copies",
    ),
    "inat18": (
        partial(_inaturalist, "2018"),
        "2018, train2018.json and val2018.json, about 120 GB from https://github.com/visipedia/inat_comp",
    ),
    "inat19": (
        partial(_inaturalist, "2019"),
        "2019, train2019.json and val2019.json, about 75 GB from https://github.com/visipedia/inat_comp",
    ),
}
