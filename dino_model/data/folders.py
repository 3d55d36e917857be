"""Read folders: which files are images, and the classes and splits that the folders of images stand for."""

import errno
import os
import posixpath
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from dino_model.data.classes import SPLITS, LabelOptions, Row, Rows, Split, UnclearError
from dino_model.data.images import suffix_of
from dino_model.runtime.errors import count_names, list_names, pluralize
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
"""Names of a folder and of those above it, the top one first."""


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
    base = posixpath.basename(name)
    return suffix_of(base) in suffixes and not base.startswith(".") and not left_out_folder(name)


def read_folder(folder: Path, suffixes: Collection[str]) -> Rows:
    """Find the images below a folder, except in links that lead back up."""
    found, left_out, unreadable = list[str](), list[str](), list[str]()

    def relative(path: str | Path) -> str:
        return Path(path).relative_to(folder).as_posix()

    def note(error: OSError) -> None:
        unreadable.append(f"{relative(error.filename)} ({os.strerror(error.errno or errno.EIO)})")

    above: dict[str, frozenset[str]] = {}  # real paths of each folder and its parents
    for parent, folders, names in os.walk(folder, followlinks=True, onerror=note):
        here = above.pop(parent, frozenset()) | {os.path.realpath(parent)}
        left_out += (relative(Path(parent, name)) for name in folders if is_left_out(name))
        folders[:] = [
            name
            for name in folders
            if not is_left_out(name) and os.path.realpath(Path(parent, name)) not in here
        ]
        above |= {str(Path(parent, name)): here for name in folders}
        links = [path for name in names if not suffix_of(name) and (path := Path(parent, name)).is_symlink()]
        missing = [relative(path) for path in links if not path.exists()]
        unreadable += (f"{name} (a link to a missing folder)" for name in missing)
        place = relative(parent)
        found += (posixpath.normpath(f"{place}/{name}") for name in names)
    images = sorted(name for name in found if is_image(name, suffixes))
    notes = count_names("folder", "left out", left_out)
    notes += count_names("folder", "cannot be read", unreadable)
    return Rows([Row(name) for name in images], notes=notes, ignored=len(found) - len(images))


def label_by_folders(found: Rows, options: LabelOptions) -> Rows:
    """Label images by their folders: the rules are in docs/inputs.md. Splits stay if there are some."""
    counts = Counter(_folders(found))
    ends = _ends(counts)
    try:
        paths, splits = divide(counts, options)
        if not any(paths.values()):
            first = printable(found.rows[0].name)
            raise UnclearError(f"no image is in a class folder, the first is {first}: pass --labels TABLE")
        if options.class_level != "top":
            _check_mixed_folders(counts, ends, paths)
            if options.split_folders is None and not any(splits.values()):
                _check_repeated_classes({folder: paths[folder] for folder in ends if paths[folder]})
    except UnclearError as error:
        return found._replace(reason=str(error))
    part, kind = {
        "path": (slice(None), "path of the folders"),
        "top": (slice(1), "top folder"),
        "last": (slice(-1, None), "last folder"),
    }[options.class_level]
    classes = {
        folder: (printable("/".join(path[part])),)
        for folder, path in paths.items()
        if path and (folder in ends or options.class_level == "top")
    }
    folders = _folders(found)
    rows = [row._replace(classes=classes.get(f, ())) for row, f in zip(found.rows, folders, strict=True)]
    reading = f"class: {kind}{' below the split' * any(splits.values())}"
    return _divide_rows(found._replace(rows=rows, reading=reading), splits)


def divide_by_folders(found: Rows, options: LabelOptions) -> Rows:
    """Divide images whose classes are not those of their folders, unless they have splits."""
    try:
        return _divide_rows(found, {} if found.has_splits else divide(_folders(found), options)[1])
    except UnclearError as error:
        return found._replace(reason=str(error))


def _divide_rows(found: Rows, splits: Mapping[str, Split]) -> Rows:
    if found.has_splits or not any(splits.values()):
        return found
    rows = [row._replace(split=splits[f]) for row, f in zip(found.rows, _folders(found), strict=True)]
    return found._replace(rows=rows, has_splits=True)


def _folders(found: Rows) -> list[str]:
    return [posixpath.dirname(row.name) for row in found.rows]


def divide(folders: Iterable[str], options: LabelOptions) -> tuple[dict[str, Folder], dict[str, Split]]:
    """Divide the folders that hold images into splits.

    Returns class path and split of each folder. The class path is what is below the split, or above it if
    nothing is below. It has no level at which all images share one folder.

    Raises:
        UnclearError: The splits are not clear.
    """
    parts = {folder: tuple(folder.split("/")) if folder else () for folder in folders}
    ends, named = _ends(parts), options.parse_splits("split_folders")
    if named:
        return _divide_by_names(parts, ends, named)
    if named is None:
        depth = _common_depth([parts[folder] for folder in ends])
        below = {folder: path[depth:] for folder, path in parts.items()}
        inside = defaultdict[Folder, dict[str, Split]](dict)  # names of splits in each folder
        for path in below.values():
            for level, part in enumerate(path):
                inside[path[:level]] |= {part: SPLITS[part.lower()]} if part.lower() in SPLITS else {}
        found = {
            folder: names
            for folder, names in inside.items()
            if "train" in names.values() and len({*names.values()}) > 1
        }
        filled = {path[0] for path in _trim(below, ends).values() if len(path) > 1}
        if () in found and found[()].keys() <= filled:
            return _divide_by_names(parts, ends, found[()], range(depth, depth + 1))
        if found:
            folder = min(found)
            where = f" of {printable('/'.join(folder))}" if folder else ""
            raise UnclearError(
                f"the folders {list_names(sorted(found[folder]))}{where} are splits only as top folders that"
                f" hold class folders: {SPLIT_HINT}"
            )
    return _trim(parts, ends), dict.fromkeys(parts, "")


def _divide_by_names(
    parts: Mapping[str, Folder], ends: set[str], names: Mapping[str, Split], levels: range | None = None
) -> tuple[dict[str, Folder], dict[str, Split]]:
    """Divide folders by the first part, at one of these levels or at any, that has one of these names."""
    tops, below, above = dict[str, str](), dict[str, Folder](), dict[str, Folder]()
    for folder, path in parts.items():
        inside_of = (level for level, part in enumerate(path) if part in names)
        level = next((level for level in inside_of if levels is None or level in levels), len(path))
        tops[folder], *_ = *path[level:], ""
        below[folder], above[folder] = path[level + 1 :], path[:level]
    if missing := sorted(names.keys() - {*tops.values()}):
        first = ", ".join(sorted(map(printable, parts))[:2])
        raise UnclearError(
            f"--split-folders names {missing[0]!r}, which no folder has: folders are {first}, …"
        )
    others: Split = "" if "train" in names.values() else "train"
    # A folder that holds only one of its own name counts once: programs unpack archives in this way.
    kept = {top for folder, top in tops.items() if below[folder][:1] != (top,) or len(below[folder]) < 2}
    inside = {f: below[f] if top in kept else below[f][1:] for f, top in tops.items() if top}
    if not any(inside.values()):
        inside = {folder: above[folder] for folder in inside}
    outside = {folder: above[folder] for folder in parts.keys() - inside.keys()} if others else {}
    used = _trim(inside | outside, ends)
    if outside and any(inside.values()) and not {used[f] for f in inside} & {used[f] for f in outside}:
        first = ", ".join(sorted(map(printable, outside))[:2])
        raise UnclearError(
            f"no class of {', '.join(sorted(names))} is in the other folders, such as {first}: name the"
            " training folders, too, as in --split-folders train=A,train=B,test=C"
        )
    return {f: used.get(f, ()) for f in parts}, {f: names.get(top, others) for f, top in tops.items()}


def _ends(folders: Iterable[str]) -> set[str]:
    """Return the folders that hold images, and no folder with images."""
    folders = {*folders}
    inner = {str(parent) for folder in folders for parent in Path(folder).parents}
    return folders - inner - ({""} if len(folders) > 1 else set())


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


def _check_mixed_folders(counts: Mapping[str, int], ends: set[str], paths: Mapping[str, Folder]) -> None:
    """Refuse a folder of which as many images would be left out as it has in class folders, or more."""
    for folder, count in counts.items():
        if folder in ends or not paths[folder]:
            continue
        inside = sum(number for name, number in counts.items() if name.startswith(f"{folder}/"))
        if count >= inside:
            raise UnclearError(
                f"{printable(folder)} holds {pluralize(count, 'image')}, and {inside:,} in its folders: pass"
                " --class-level top, or move the images"
            )


def _check_repeated_classes(paths: Mapping[str, Folder]) -> None:
    """Refuse top folders that hold the same classes: they may be splits, sites or classes."""
    groups, tops_of, example = defaultdict(set), defaultdict(set), dict[str, str]()
    for folder, path in sorted(paths.items()):
        top = path[0] if len(path) > 1 else ""
        groups[top].add(tuple(map(str.lower, path[len(path) > 1 :])))
        tops_of[path[-1].lower()].add(top)
        example[top] = folder
    same = [[a, b] for a in sorted(groups) for b in groups if a and a != b and groups[a] <= groups[b]]
    if not same and all(len(tops) > 1 for tops in tops_of.values()):
        same = [sorted(groups)[:2]]
    if same:
        folders = " and ".join(printable(example[top]) for top in same[0])
        raise UnclearError(
            f"the same classes are in several folders, such as {folders}: {SPLIT_HINT}, or --class-level top"
        )
