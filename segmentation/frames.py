"""Order of the frames of a video: by the numbers in file names, or as a list says."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from dino_model.data.images import SUFFIXES
from dino_model.data.tables import read_lines
from dino_model.runtime.errors import pluralize
from segmentation.labels import DataError

_BEHIND_POINT = re.compile(r"(?<=\d[.,])\d+")


def frame_files(folder: Path, listed: Path | None = None) -> tuple[Path, ...]:
    """List the images of a folder in the order of their names, see `order_names`, or of a list.

    Args:
        folder: Folder of images.
        listed: Text file with one name a line, with or without suffix and folders. A line with folders counts
            if the last one has the name of `folder`. Images that are not in the list are left out.

    Raises:
        DataError: No such folder, no image, names without one order, or a listed name that is no image.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; pass a folder of frames such as 00000.jpg, 00001.jpg")
    entries = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    files = {entry.name: entry for entry in entries if entry.suffix.lower() in SUFFIXES}
    if not files:
        inside = ", ".join(entry.name for entry in entries if entry.is_dir())
        hint = f"; it has folders: {inside[:200]}. Pass one of them" if inside else ""
        raise DataError(f"{folder} holds no image{hint}")
    names = order_names(list(files), folder) if listed is None else _listed_names(list(files), folder, listed)
    return tuple(files[name] for name in names)


def order_names(names: Sequence[str], folder: Path = Path()) -> list[str]:
    """Order file names by their numbers, compared from the left; alphabetically if none has a number.

    All names must have the same texts around their numbers, and equally many digits behind each point.
    Suffixes of files do not count.

    Raises:
        DataError: Other names, or two names with the same numbers. It names `--frames`.
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
            f"the frames of {folder} have no certain order: {reasons[0]}; pass --frames LIST, a text file "
            "with their names in order, or rename them with one number, such as 00000.png"
        )
    return order


def describe_order(files: Sequence[Path]) -> str:
    """Name the first, second and last frame, so that a reader sees the order."""
    names = [file.name for file in files]
    return ", ".join(names) if len(names) < 4 else f"{names[0]}, {names[1]} … {names[-1]}"


def _listed_names(names: Sequence[str], folder: Path, listed: Path) -> list[str]:
    """Return the names of a list, in its order."""
    known: dict[str, list[str]] = {}
    for name in names:
        known.setdefault(Path(name).stem, []).append(name)
    known |= {name: [name] for name in names}
    found = []
    for text in (line.strip().replace("\\", "/") for line in read_lines(listed)):
        if text.startswith("#") and Path(text).name not in known:  # a comment
            continue
        # Further words count only if a frame has them in its name.
        path = Path(text if Path(text).name in known else text.split()[0])
        if path.parent.name not in ("", folder.name):
            continue
        line = path.name
        matches = known.get(line, known.get(Path(line).stem, []))
        if len(matches) != 1:
            several = f"which can be {' or '.join(matches)}" if matches else f"which {folder} does not hold"
            raise DataError(f"{listed} lists {line}, {several}")
        found.append(matches[0])
    if len(set(found)) < len(found) or not found:
        repeated = Counter(found).most_common(1)[0][0] if found else f"no frame of {folder}"
        raise DataError(f"{listed} lists {repeated}{' twice' * bool(found)}; expected each frame once")
    if left_out := len(names) - len(found):
        print(f"{folder}: {pluralize(left_out, 'image')} not in {listed.name} left out", flush=True)
    return found
