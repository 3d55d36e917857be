"""Read folders: which files are images, and the classes and splits that the folders of images stand for."""

import errno
import os
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from dino_model.data.classes import SPLITS, Labeling, LabelOptions, Split, number_classes
from dino_model.data.names import suffix_of
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import printable

SYSTEM_FOLDERS = frozenset(
    {
        *("@eadir", "@recycle", "#recycle", "@__thumb", "@recently-snapshot", "#snapshot", "~snapshot"),
        *("$recycle.bin", "recycler", "system volume information", "lost+found"),
        *("__macosx", "__pycache__", "cvs"),
    }
)
"""Folders of network drives, systems and tools, in lower case. Their images are thumbnails or deleted."""
SPLIT_HINT = "pass --split-folders train=A,test=B with your names for A and B, or --split-folders none"
Folder = tuple[str, ...]


def is_left_out(part: str) -> bool:
    """Return whether a folder below a source is hidden or one of `SYSTEM_FOLDERS`."""
    return (part.startswith(".") and part not in (".", "..")) or part.lower() in SYSTEM_FOLDERS


def left_out_folder(name: str) -> str:
    """Return the part of a path down to its first folder that is left out; empty if there is none."""
    parts = name.split("/")[:-1]
    depth = next((depth for depth, part in enumerate(parts, 1) if is_left_out(part)), 0)
    return "/".join(parts[:depth])


def is_image(name: str, suffixes: Iterable[str]) -> bool:
    """Return whether a file that was found, not named, is an image."""
    head, base = posixpath.split(name)
    return suffix_of(base) in suffixes and not base.startswith(".") and not left_out_folder(f"{head}/")


class FoundFiles(NamedTuple):
    """Files of a folder."""

    names: list[str]
    """Paths relative to the folder, with "/"."""
    left_out: list[str]
    """Hidden folders and `SYSTEM_FOLDERS`."""
    unreadable: list[str]
    """Folders that cannot be read, with the reason."""


def walk(folder: Path) -> FoundFiles:
    """Find all files below a folder, except in links that lead back up."""
    found = FoundFiles([], [], [])

    def relative(path: str) -> str:
        return Path(path).relative_to(folder).as_posix()

    def note(error: OSError) -> None:
        found.unreadable.append(f"{relative(error.filename)} ({os.strerror(error.errno or errno.EIO)})")

    above: dict[str, frozenset[str]] = {}  # real paths of each folder and its parents
    for parent, folders, names in os.walk(folder, followlinks=True, onerror=note):
        here = above.pop(parent, frozenset()) | {os.path.realpath(parent)}
        inside = {name: str(Path(parent) / name) for name in folders}
        found.left_out.extend(relative(path) for name, path in inside.items() if is_left_out(name))
        folders[:] = [
            name
            for name, path in inside.items()
            if not is_left_out(name) and os.path.realpath(path) not in here
        ]
        above |= {inside[name]: here for name in folders}
        beginning = relative(parent)
        links = (path for name in names if not suffix_of(name) and (path := Path(parent, name)).is_symlink())
        missing = (relative(str(path)) for path in links if not path.exists())
        found.unreadable.extend(f"{name} (a link to a missing folder)" for name in missing)
        found.names.extend(posixpath.normpath(f"{beginning}/{name}") for name in names)
    return found


class Place(NamedTuple):
    """Meaning of a folder that holds images."""

    split: Split
    path: Folder
    """Folders below the split, without those that all images share; those above it if none is below."""


def label_by_folders(names: Sequence[str], options: LabelOptions) -> Labeling:
    """Label images by their folders: the rules are in docs/inputs.md.

    Args:
        names: Paths with "/".
        options: Class level and split folders.
    """
    counts = Counter(map(posixpath.dirname, names))
    ends = _ends(counts)
    places, reason = divide(counts, options)
    if not reason and not any(place.path for place in places.values()):
        reason = f"no image is in a class folder, the first is {printable(names[0])}: pass --labels TABLE"
    if not reason and options.class_level != "top":
        reason = _mixed_folder(counts, ends, places)
    if not reason and options.class_level != "top" and options.split_folders is None:
        reason = _repeated_classes({folder: places[folder].path for folder in ends}, places)
    if reason:
        return Labeling(reason=reason)
    level = {"path": slice(None), "top": slice(1), "last": slice(-1, None)}[options.class_level]
    classes = {
        folder: printable("/".join(place.path[level]))
        for folder, place in places.items()
        if folder in ends or options.class_level == "top"
    }
    is_divided = any(place.split for place in places.values())
    found = [classes.get(posixpath.dirname(name), "") for name in names]
    example = next(number for number, name in enumerate(found) if name)
    splits = [places[posixpath.dirname(name)].split for name in names] if is_divided else None
    kind = {"path": "path of the folders", "top": "top folder", "last": "last folder"}[options.class_level]
    reading = f"class: {kind}{' below the split' if is_divided else ''}; {printable(names[example])} is"
    reading += f" {found[example]!r}" + (f" of {splits[example] or 'no split'}" if splits else "")
    labeling = number_classes([(name,) if name else () for name in found])
    return labeling._replace(splits=splits, reading=reading)


def divide(folders: Iterable[str], options: LabelOptions) -> tuple[dict[str, Place], str]:
    """Divide the folders that hold images into splits.

    Returns:
        Place of each folder, and the reason why the splits are not clear; empty if they are.
    """
    parts = {folder: tuple(folder.split("/")) if folder else () for folder in folders}
    ends = _ends(parts)
    depth = _common_depth([parts[folder] for folder in ends])
    paths = {folder: path[depth:] for folder, path in parts.items()}
    named = options.split_of_folder()
    if named:
        return _divide_by_names(parts, ends, named)
    tops = {
        path[0]: SPLITS[path[0].lower()] for path in paths.values() if path[:1] and path[0].lower() in SPLITS
    }
    if named is None and _are_splits(tops.values()):
        filled = {path[0] for path in _trim(paths, ends).values() if len(path) > 1}
        if flat := sorted(tops.keys() - filled):
            listed = ", ".join(sorted(map(printable, tops)))
            return {}, f"of its folders {listed}, {printable(flat[0])} holds no class folders: {SPLIT_HINT}"
        return _divide_by_names(parts, ends, tops, depth)
    if named is None and (inner := _inner_splits(paths.values())):
        return (
            {},
            f"{printable('/'.join(inner)) or 'a folder'} holds folders train and test or val: {SPLIT_HINT}",
        )
    return {folder: Place("", path) for folder, path in _trim(parts, ends).items()}, ""


def _are_splits(splits: Iterable[Split]) -> bool:
    found = {*splits}
    return "train" in found and len(found) > 1


def _inner_splits(paths: Iterable[Folder]) -> Folder | None:
    """Return the folder that holds folders train, and val or test."""
    inside = defaultdict(set)
    for path in paths:
        for depth, part in enumerate(path):
            if part.lower() in SPLITS:
                inside[path[:depth]].add(SPLITS[part.lower()])
    return next((folder for folder in sorted(inside) if folder and _are_splits(inside[folder])), None)


def _divide_by_names(
    parts: Mapping[str, Folder], ends: set[str], names: Mapping[str, Split], start: int = 0
) -> tuple[dict[str, Place], str]:
    """Divide folders by the first part, from a level on, that has one of these names."""

    def place(path: Folder) -> tuple[str, Folder, Folder]:
        level = next((level for level in range(start, len(path)) if path[level] in names), None)
        return ("", (), path) if level is None else (path[level], path[level + 1 :], path[:level])

    found = {folder: place(path) for folder, path in parts.items()}
    if missing := sorted(names.keys() - {name for name, *_ in found.values()}):
        first = ", ".join(sorted(map(printable, parts))[:2])
        return (
            {},
            f"--split-folders names {missing[0]!r}, and no folder has this name: folders are {first}, …",
        )
    others: Split = "" if "train" in names.values() else "train"
    splits = {folder: names.get(name, others) for folder, (name, *_) in found.items()}
    # A folder that holds only one of its own name counts once: programs unpack archives in this way.
    kept = {name for name, path, _ in found.values() if path[:1] != (name,) or len(path) < 2}
    below = {folder: path if name in kept else path[1:] for folder, (name, path, _) in found.items() if name}
    outside = {folder: path for folder, (name, _, path) in found.items() if not name}
    inside = below if any(below[folder] for folder in below) else {f: found[f][2] for f in below}
    used = _trim(inside | (outside if others else {}), ends)
    return {folder: Place(split, used.get(folder, ())) for folder, split in splits.items()}, ""


def _ends(folders: Iterable[str]) -> set[str]:
    """Return the folders that hold images, and no folder with images."""
    folders = {*folders}
    inner = {""} if folders != {""} else set()
    for folder in folders:
        inner.update(map(str, Path(folder).parents))
    return {folder for folder in folders if folder not in inner}


def _common_depth(paths: Sequence[Folder]) -> int:
    """Count the levels that all paths begin with; the last one of a path is not counted."""
    depth = len(list(takewhile(lambda level: len({*level}) == 1, zip(*paths, strict=False))))
    return min([depth, *(max(0, len(path) - 1) for path in paths)])


def _trim(paths: Mapping[str, Folder], ends: set[str]) -> dict[str, Folder]:
    """Remove the levels at which all images share one folder, above and below, not the whole of a path."""
    last = [path for folder, path in paths.items() if folder in ends]
    first = _common_depth(last)
    below = _common_depth([path[first:][::-1] for path in last])
    lengths = {folder: len(path) - below if folder in ends else len(path) for folder, path in paths.items()}
    return {folder: path[first : lengths[folder]] for folder, path in paths.items()}


def _mixed_folder(counts: Mapping[str, int], ends: set[str], places: Mapping[str, Place]) -> str:
    """Refuse a folder of which more images would be left out than it has in class folders."""
    for folder, count in counts.items():
        if folder in ends or not places[folder].path:
            continue
        inside = sum(number for name, number in counts.items() if name.startswith(f"{folder}/"))
        if count > inside:
            return (
                f"{printable(folder)} holds {pluralize(count, 'image')}, and {inside:,} in its folders: pass"
                " --class-level top, or move the images"
            )
    return ""


def _repeated_classes(paths: Mapping[str, Folder], places: Mapping[str, Place]) -> str:
    """Refuse top folders that hold the same classes: they may be splits, sites or classes."""
    if any(place.split for place in places.values()):
        return ""
    groups: dict[str, set[Folder]] = defaultdict(set)
    tops_of = defaultdict(set)
    for path in paths.values():
        if path:
            groups[path[0] if len(path) > 1 else ""].add(tuple(map(str.lower, path[len(path) > 1 :])))
            tops_of[path[-1].lower()].add(path[0] if len(path) > 1 else "")
    is_repeated = all(len(tops) > 1 for tops in tops_of.values())
    pairs = [(a, b) for a in sorted(groups) for b in groups if a != b and a and groups[a] <= groups[b]]
    if len(groups) < 2 or not (is_repeated or pairs):
        return ""
    tops = pairs[0] if pairs else sorted(groups)[:2]
    by_top = {path[0] if len(path) > 1 else "": folder for folder, path in sorted(paths.items()) if path}
    examples = [by_top[top] for top in tops]
    return (
        f"the same classes are in several folders, such as {' and '.join(map(printable, examples))}:"
        f" {SPLIT_HINT}, or --class-level top"
    )
