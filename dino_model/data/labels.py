"""Find the classes of images: below split folders, in folders, in tables; and how classes are described.

The class of an image is the path of its folders below the split folder (`train`, `val`, `test`). The rules
are in docs/protocols.md.
"""

import posixpath
import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dino_model.runtime.errors import counted
from dino_model.runtime.files import printable

Split = Literal["train", "val", "test", ""]
SPLIT = re.compile(
    r"(?:(?P<train>train|training)|(?P<val>val|valid|validation)|(?P<test>test|testing))"
    r"(?:[-_ ]?(?:set|split|data|images|imgs|\d{4}))?",
    re.IGNORECASE,
)
CONTAINERS = frozenset({"images", "image", "img", "imgs", "jpg", "jpeg", "jpegimages", "photos"})
"""Folders of images that are no class if all classes end with one, as in Tiny ImageNet."""
FIRST_NAMES = 5
Folder = tuple[str, ...]


class Labeling(NamedTuple):
    """Classes of images.

    Attributes:
        labels: int64 [images], indices into `classes`; None without classes, or with several for an image.
        classes: Names, in the order of `sort_classes`.
        sets: Indices of the classes of each image, if an image has several; else None.
        reason: Reason why there are no classes; empty if there are.
    """

    labels: NDArray[np.int64] | None
    classes: tuple[str, ...]
    sets: tuple[tuple[int, ...], ...] | None = None
    reason: str = ""


def split_of(folder: str) -> Split:
    """Return the part of a data set that a folder is named after, in any capitalization; empty if none."""
    match = SPLIT.fullmatch(folder)
    return match.lastgroup if match else ""  # type: ignore[return-value]


def find_splits(names: Sequence[str]) -> list[Split]:
    """Return the part of the data set that each image is in, by its folders; empty outside such folders."""
    splits = {folder: split for folder, (split, _) in _divide(names).items()}
    return [splits[posixpath.dirname(name)] for name in names]


def label_by_folders(names: Sequence[str], sources: Sequence[str] = ()) -> Labeling:
    """Label images by their folders.

    Args:
        names: Paths with "/".
        sources: Name of the source of each image, if there are several. Sources without folders, which are
            not named after splits or numbered shards, are the classes.
    """
    divided = _divide(names)
    found = [printable("/".join(divided[posixpath.dirname(name)][1])) for name in names]
    loose = [number for number, name in enumerate(found) if not name]
    if len(loose) == len(found) and len(set(sources)) > 1:
        if all(split_of(posixpath.basename(source)) for source in sources):
            return Labeling(None, (), reason="the sources are splits without class folders")
        if _are_shards(set(sources)):
            return Labeling(None, (), reason="the sources are numbered shards without class folders")
        return number_classes([(printable(source),) for source in sources])
    if loose:
        splits = sorted({split for split, path in divided.values() if split and not path})
        where = f"in the split {splits[0]!r}, " if splits else ""
        reason = (
            f"{counted(len(loose), 'image')} of {len(found):,} in no class folder, {where}the first is"
            f" {printable(names[loose[0]])}"
        )
        return Labeling(None, (), reason=reason)
    return number_classes([(name,) for name in found])


def number_classes(sets: Sequence[tuple[str, ...]]) -> Labeling:
    """Number the classes of images by their names.

    An image without a class is possible only if another has several: then each class is a yes or no.
    """
    classes = sort_classes({name for given in sets for name in given})
    number = {name: index for index, name in enumerate(classes)}
    counts = {len(given) for given in sets}
    if counts == {1}:
        return Labeling(np.array([number[name] for (name,) in sets]), classes)
    if max(counts, default=0) < 2:
        empty = sum(not given for given in sets)
        return Labeling(None, (), reason=f"{counted(empty, 'image')} of {len(sets):,} without a class")
    return Labeling(None, classes, tuple(tuple(sorted(number[name] for name in given)) for given in sets))


def sort_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Sort names of classes; numbers by their value."""
    unique = {*names}
    numeric = all(name.isdecimal() for name in unique)
    return tuple(sorted(unique, key=lambda name: (int(name), name) if numeric else (0, name)))


def describe_classes(classes: Sequence[str]) -> str:
    """Return number and first names of classes: `1,000 classes (n01440764, n01443537, …)`."""
    names = ", ".join(classes[:FIRST_NAMES]) + (", …" if len(classes) > FIRST_NAMES else "")
    number = "1 class" if len(classes) == 1 else f"{len(classes):,} classes"
    return f"{number} ({names})" if classes else "no classes"


def _divide(names: Sequence[str]) -> dict[str, tuple[Split, Folder]]:
    """Divide each folder of images into the split, and the path of the class below it."""
    folders = {posixpath.dirname(name) for name in names}
    parts = {folder: tuple(folder.split("/")) if folder else () for folder in folders}
    paths = _without_common(parts)
    splits: dict[str, Split] = dict.fromkeys(paths, "")
    if (depth := _split_depth(paths.values())) is not None:
        splits = {folder: split_of(path[depth]) for folder, path in paths.items()}
        below = {folder: path[depth + 1 :] for folder, path in paths.items()}
        above = {folder: path[:depth] for folder, path in paths.items()}
        paths = _without_common(below if any(below.values()) else above)
    else:
        tops = _split_tops(set(paths.values()))
        splits = {folder: split_of(path[0]) if path[:1] in tops else "" for folder, path in paths.items()}
        paths = {folder: path[1:] if splits[folder] else path for folder, path in paths.items()}
    while (
        (last := {path[-1].lower() for path in paths.values() if path})
        and len(last) == 1
        and last <= CONTAINERS
    ):
        paths = {folder: path[:-1] for folder, path in paths.items()}
    holders = set(paths.values()) - {()}

    def highest(path: Folder) -> Folder:
        return next((path[:end] for end in range(1, len(path)) if path[:end] in holders), path)

    return {folder: (splits[folder], highest(path)) for folder, path in paths.items()}


def _without_common(paths: dict[str, Folder]) -> dict[str, Folder]:
    """Remove the folders that all paths begin with, but not the whole of a path."""
    levels = zip(*paths.values(), strict=False)
    depth = len(list(takewhile(lambda level: len(set(level)) == 1, levels)))
    depth = min(depth, *(max(0, len(path) - 1) for path in paths.values()))
    return {folder: path[depth:] for folder, path in paths.items()}


def _split_depth(paths: Iterable[Folder]) -> int | None:
    """Return the first depth at which every path has a split."""
    return next((d for d, level in enumerate(zip(*paths, strict=False)) if all(map(split_of, level))), None)


def _split_tops(paths: set[Folder]) -> set[Folder]:
    """Top folders that are splits next to other folders; `train` alone, without folders, is the vehicle."""
    tops = {path[:1] for path in paths if path and split_of(path[0])}
    divided = {path[:1] for path in paths if len(path) > 1}
    is_vehicle = all(split_of(top[0]) == "train" for top in tops) and not tops & divided
    return set() if is_vehicle else tops


def _are_shards(sources: set[str]) -> bool:
    """Test if names differ only in a number behind `-`, `_` or `.`, such as shard-000."""
    beginnings = {
        match.group(1) if (match := re.fullmatch(r"(.+[-_.])\d+", name)) else name for name in sources
    }
    return len(beginnings) == 1
