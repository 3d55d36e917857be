"""Order of the frames of a video: by the numbers in file names."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from dino_model.data.images import SUFFIXES
from segmentation.labels import DataError

_BEHIND_POINT = re.compile(r"(?<=\d[.,])\d+")


def frame_files(folder: Path) -> tuple[Path, ...]:
    """List the images of a folder in the order of their names, see `order_names`.

    Raises:
        DataError: No such folder, no image, or names without one order.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; pass a folder of frames such as 00000.jpg, 00001.jpg")
    entries = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    files = {entry.name: entry for entry in entries if entry.suffix.lower() in SUFFIXES}
    if not files:
        inside = ", ".join(entry.name for entry in entries if entry.is_dir())
        hint = f"; it has folders: {inside[:200]}. Pass one of them" if inside else ""
        raise DataError(f"{folder} holds no image{hint}")
    return tuple(files[name] for name in order_names(list(files), folder))


def order_names(names: Sequence[str], folder: Path = Path()) -> list[str]:
    """Order file names by their numbers, compared from the left; alphabetically if none has a number.

    All names must have the same texts around their numbers, and equally many digits behind each point.
    Suffixes of files do not count.

    Raises:
        DataError: Other names, or two names with the same numbers.
    """
    stems = {name: Path(name).stem for name in names}
    if not any(re.search(r"\d", stem) for stem in stems.values()):
        return sorted(names, key=lambda name: (name.casefold(), name))
    digits = {name: tuple(map(int, re.findall(r"\d+", stem))) for name, stem in stems.items()}
    shapes = {
        name: (re.sub(r"\d+", "0", stem), *map(len, _BEHIND_POINT.findall(stem)))
        for name, stem in stems.items()
    }
    usual = Counter(shapes.values()).most_common(1)[0][0]
    order = sorted(names, key=digits.__getitem__)
    reasons = [
        f"{name} has other texts around its numbers, or other digits behind a point, than "
        f"{next(each for each in names if shapes[each] == usual)}"
        for name in names
        if shapes[name] != usual
    ] + [
        f"{first} and {second} have the same numbers"
        for first, second in pairwise(order)
        if digits[first] == digits[second]
    ]
    if reasons:
        raise DataError(
            f"the frames of {folder} have no certain order: {reasons[0]}; rename them with one number, such "
            "as 00000.png"
        )
    return order


def describe_order(files: Sequence[Path]) -> str:
    """Name the first, second and last frame, so that a reader sees the order."""
    names = [file.name for file in files]
    return ", ".join(names) if len(names) < 4 else f"{names[0]}, {names[1]} … {names[-1]}"
