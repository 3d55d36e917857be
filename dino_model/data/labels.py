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

from dino_model.data.names import compose
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import printable

Split = Literal["train", "val", "test", ""]
_WORDS = (
    r"(?:(?P<train>train|training|trainval)|(?P<val>val|valid|validate|validation|dev)|(?P<test>test|testing|eval|evaluation))"
    r"(?:[-_ ]?(?:set|split|data|images|imgs|\d{4}))?"
)
SPLIT = re.compile(_WORDS, re.IGNORECASE)
SPLIT_WORD = re.compile(rf"(?:.*[\W\d_])?{_WORDS}(?:[\W\d_].*)?", re.IGNORECASE)
"""Name with the word of a split, such as seg_train: a split next to names with words of other splits."""
CONTAINERS = frozenset({"images", "image", "img", "imgs", "jpg", "jpeg", "jpegimages", "photos"})
"""Folders of images that are no class if all classes end with one, as in Tiny ImageNet."""
TRUTH = frozenset({"masks", "mask", "labels", "annotations", "gt", "ground_truth", "groundtruth", "trimaps"})
"""Folders of masks. Next to a folder of images, they are no class."""
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
    return _read_split(SPLIT, folder)


def has_word_of(split: str, folder: str) -> bool:
    """Return whether the name of a folder is or contains the word of a split."""
    return _read_split(SPLIT_WORD, folder) == split


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
        if not where and any(split for split, _ in divided.values()):
            where = "outside of the split folders, "
        reason = (
            f"{pluralize(len(loose), 'image')} of {len(found):,} in no class folder, {where}the first is"
            f" {printable(names[loose[0]])}"
        )
        return Labeling(None, (), reason=reason)
    kinds = {posixpath.basename(name).lower() for name in found}
    if kinds & TRUTH and kinds <= TRUTH | CONTAINERS:
        return Labeling(None, (), reason=f"its folders are kinds of files: {', '.join(sorted(kinds))}")
    return number_classes([(name,) for name in found])


def number_classes(sets: Sequence[tuple[str, ...]]) -> Labeling:
    """Number the classes of images by their names.

    An image without a class is possible only if another has several: then each class is a yes or no.
    """
    sets = [tuple(map(compose, given)) for given in sets]
    classes = sort_classes({name for given in sets for name in given})
    number = {name: index for index, name in enumerate(classes)}
    counts = {len(given) for given in sets}
    if counts == {1}:
        return Labeling(np.array([number[name] for (name,) in sets]), classes)
    if max(counts, default=0) < 2:
        empty = sum(not given for given in sets)
        return Labeling(None, (), reason=f"{pluralize(empty, 'image')} of {len(sets):,} without a class")
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
    if (level := _split_level(set(paths.values()))) is not None:
        depth, pattern = level
        splits = {
            folder: _read_split(pattern, path[depth]) if len(path) > depth else ""
            for folder, path in paths.items()
        }
        inside = {folder: path for folder, path in paths.items() if splits[folder]}
        is_double = all(path[depth + 1 : depth + 2] == path[depth : depth + 1] for path in inside.values())
        below = {folder: path[depth + 1 + is_double :] for folder, path in inside.items()}
        above = {folder: path[:depth] for folder, path in inside.items()}
        paths = dict.fromkeys(paths, ()) | _without_common(below if any(below.values()) else above)
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


def _split_level(paths: set[Folder]) -> tuple[int, re.Pattern[str]] | None:
    """Return the depth at which folders are splits, and the pattern of their names.

    It is the first depth at which every path has a split, or at which `train` and another split hold class
    folders. Then other paths are outside of the splits. At the top, `train` with class folders is enough.
    """
    for pattern in (SPLIT, SPLIT_WORD):
        for depth in range(max(map(len, paths), default=0)):
            found = {_read_split(pattern, path[depth]) if len(path) > depth else "" for path in paths}
            filled = {_read_split(pattern, path[depth]) for path in paths if len(path) > depth + 1} - {""}
            if "" not in found and (pattern is SPLIT or len(found) > 1):
                return depth, pattern
            if "train" in filled and (len(filled) > 1 or (depth == 0 and pattern is SPLIT)):
                return depth, pattern
    return None


def _read_split(pattern: re.Pattern[str], folder: str) -> Split:
    match = pattern.fullmatch(folder)
    return match.lastgroup if match else ""  # type: ignore[return-value]


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
