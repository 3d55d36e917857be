"""Read lists of images, names and tars, and find what they name."""

import os
import posixpath
import unicodedata
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from dino_model.data.images import ImageError
from dino_model.data.names import NameIndex, clean_path, suffix_of
from dino_model.data.remote import is_remote
from dino_model.data.tables import Row, read_lines, read_paths, read_rows
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import printable

Image = TypeVar("Image", bound=Hashable)


def read_tars(path: Path) -> list[Path | str]:
    """Read a list of tars, paths or addresses; empty if a line names another file."""
    lines = [line.strip() for line in read_lines(path) if not line.startswith("#")]
    if not all(suffix_of(line.strip("\"'")) == ".tar" for line in lines):
        return []
    named = [line if is_remote(line) else clean_path(line) for line in dict.fromkeys(lines)]
    folders = (path.parent, Path())
    folder = next((f for f in folders if any((f / name).exists() for name in named)), path.parent)
    return [name if is_remote(name) else folder / name for name in named]


def join_rows(path: Path, rows: Iterable[tuple[Image, Row]]) -> dict[Image, Row]:
    """Join the rows of each image, which then has all their classes; raises ImageError for two splits."""
    by_image = dict[Image, Row]()
    for image, row in rows:
        first = by_image.setdefault(image, row)
        if first.split != row.split:
            both = " and ".join(split or "no split" for split in (first.split, row.split))
            raise ImageError(f"{path} has lines of {printable(row.path)} with {both}: remove one of them")
        if first.classes is not None or row.classes is not None:
            classes = dict.fromkeys([*(first.classes or ()), *(row.classes or ())])
            by_image[image] = first._replace(classes=tuple(classes))
    return by_image


def read_names(path: Path, known: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Read the names of images, sequences or folders from a list; further words of a line are ignored.

    Args:
        path: As in `read_rows`.
        known: Names that exist. A line may be one of these, its end, or a longer path, see `NameIndex`.

    Returns:
        Names as in `known`, each once, and a note on lines that are left out, or no text. Unknown names are
        as in the list, without "./".

    Raises:
        ImageError: Binary content, a list without a name, or a name that several of `known` have.
    """
    index = NameIndex(known)
    paths = read_paths(path, index.find)
    numbers = [index.find_one(text, path) for text in paths]
    pairs = zip(paths, numbers, strict=True)
    names = [clean_path(text) if number is None else known[number] for text, number in pairs]
    if not names:
        raise ImageError(f"{path} is empty: expected one name a line")
    unique = tuple(dict.fromkeys(names))
    repeated = pluralize(len(names) - len(unique), "line")
    note = f"{repeated} with a name that is listed before, which counts once (in {printable(path.name)})"
    return unique, note if len(unique) < len(names) else ""


def read_list(path: Path, suffixes: Container[str]) -> tuple[Path, list[Row], tuple[str, ...]]:
    """Read a list of images; paths are relative to the list's folder, else to the working folder.

    Returns:
        The folder, images by their names in it, each once, and notes on lines that are left out.

    Raises:
        ImageError: Binary content, a file that does not exist, or the address of an image.
    """
    folder, rows = _find_rows(path)
    others = [row.path for row in rows if _is_other(folder, row.path, suffixes)]
    unwanted = set(others)
    images = join_rows(path, ((row.path, row) for row in rows if row.path not in unwanted))
    notes = [f"{pluralize(len(others), 'line')} without an image, the first is {others[0]}"] if others else []
    if repeated := len(rows) - len(others) - len(images):
        notes.append(f"{pluralize(repeated, 'line')} with an image that is listed before, which counts once")
    if not images:
        raise ImageError(f"{path} lists no image: {'; '.join(notes) or 'it is empty'}")
    folder, names = _relative(folder, list(images))
    rows = [row._replace(path=name) for name, row in zip(names, images.values(), strict=True)]
    return folder, rows, tuple(f"{printable(note)} (in {path.name})" for note in notes)


def _find_rows(path: Path) -> tuple[Path, list[Row]]:
    """Find the files of a list; returns the folder, and rows whose paths are relative to it.

    The folder is that of the list, or the working folder if it has some of the files and the other none.
    """
    for folder in (path.absolute().parent, Path.cwd(), path.absolute().parent):
        find = _file_finder(folder)
        rows = read_rows(path, find)
        names = [find(row.path) for row in rows]
        if any(names):
            break
    if address := next((row.path for row in rows if is_remote(row.path)), None):
        raise ImageError(f"{path} lists {address}: images are read from disks, only tars from addresses")
    if missing := [row.path for row, name in zip(rows, names, strict=True) if not name]:
        raise ImageError(
            f"{path} lists {len(rows)} files, and {len(missing)} of them do not exist, the first is"
            f" {printable(missing[0])}; paths in a list are relative to the list's folder, or to the working"
            " folder"
        )
    return folder, [row._replace(path=name) for row, name in zip(rows, names, strict=True) if name]


def _file_finder(folder: Path) -> Callable[[str], str | None]:
    """Return a function from the text of a line to the name of a file in the folder, or None."""

    @cache
    def find(text: str) -> str | None:
        written = (text, text.strip(), clean_path(text.strip()))
        kinds: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")  # accents in one letter, or as macOS
        others = [unicodedata.normalize(kind, form) for kind in kinds for form in written]
        forms = filter(None, dict.fromkeys([*written, *others]))
        exists = (form for form in forms if os.path.lexists(folder / form))  # also a dangling link
        return next(map(posixpath.normpath, exists), None)

    return find


def _is_other(folder: Path, name: str, suffixes: Container[str]) -> bool:
    suffix = suffix_of(name)
    return suffix not in suffixes if suffix else (folder / name).is_dir()


def _relative(folder: Path, names: list[str]) -> tuple[Path, list[str]]:
    """Make absolute names relative: to the folder, or to the one that holds all, if all are absolute."""
    beginning = f"{folder.as_posix()}/"
    names = [name.removeprefix(beginning) for name in names]
    if names and all(map(posixpath.isabs, names)):
        folder = Path(posixpath.commonpath([posixpath.dirname(name) for name in names]))
        names = [posixpath.relpath(name, folder.as_posix()) for name in names]
    return folder, names
