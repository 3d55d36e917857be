"""Read lists of images and tables of labels: text of any common form, CSV and TSV.

A line is a path, or a path and classes. The accepted forms are described in docs/protocols.md.
"""

import codecs
import csv
import os
import posixpath
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dino_model.data.images import ImageError, read_file
from dino_model.data.labels import Split, split_of
from dino_model.data.names import NameIndex, clean_path, suffix_of
from dino_model.data.remote import is_remote
from dino_model.runtime.errors import counted
from dino_model.runtime.files import printable

PATH_COLUMNS = (
    *("path", "filepath", "imagepath", "imgpath", "relpath", "file", "filename", "image", "imagefile"),
    *("imagename", "img", "imgname", "imageid", "imgid", "imageindex", "id", "name", "images", "files"),
    "photo",
)
"""Headers of the column of paths, in lower case without spaces, - and _."""
CLASS_COLUMNS = (
    *("label", "labels", "class", "classes", "classname", "labelname", "category", "categories", "target"),
    *("cls", "tag", "tags", "breed", "species", "y", "findinglabels", "groundtruth"),
)
"""Headers of the column of classes, written as in `PATH_COLUMNS`."""
SPLIT_COLUMNS = frozenset({"split", "splits", "partition"})
"""Headers of the column of splits, written as in `PATH_COLUMNS`; some of its cells may be other words."""
SPLIT_NUMBERS: dict[str, Split] = {"0": "train", "1": "val", "2": "test"}
"""Splits of a column of these three numbers, as in CelebA."""
_MAX_WORDS = 10
"""Different cells of a column of splits."""
_SPLIT_FLAG = re.compile(r"is(train|val|test)(?:id|idation|ing)?(?:set|image|img)?")
_ZERO: dict[Split, Split] = {"train": "test", "val": "train", "test": "train"}
"""Split that 0 is in a column with the header `_SPLIT_FLAG`, which names the split that 1 is."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ONE, _FLAGS = ("1", "1.0", "true"), ("1", "1.0", "true", "0", "0.0", "false", "")
Known = Callable[[str], object]
"""Test if a text is the path of an image."""


class Row(NamedTuple):
    """Line of a list or table."""

    path: str
    classes: tuple[str, ...] | None
    """Classes of the image; None: the line has a path only."""
    split: Split = ""
    """Part of the data set that a column of the table names."""


class NameList(NamedTuple):
    """Names of a list, in its order, each once."""

    names: tuple[str, ...]
    notes: tuple[str, ...]
    """Lines that are left out."""


class ImageList(NamedTuple):
    """Images of a list, in its order."""

    folder: Path
    """Folder that the names are relative to."""
    names: tuple[str, ...]
    classes: tuple[tuple[str, ...], ...] | None
    """Classes of each image; None: the list has paths only."""
    notes: tuple[str, ...]
    """Lines that are left out."""
    splits: tuple[Split, ...]
    """Part of the data set that each image is in, if a column of the table names it."""


def read_text(path: Path) -> str:
    """Read a text in UTF-8, or in UTF-16 with or without a byte-order mark; other bytes become surrogates.

    Joined files have marks within the text. They are left out at the start of a line.

    Raises:
        ImageError: Binary content.
    """
    return re.sub(r"^\ufeff+", "", _decode(read_file(path, str(path)), path), flags=re.MULTILINE)


def _decode(data: bytes, path: Path) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "surrogateescape" if encoding == "utf-8" else "replace")
    if b"\0" not in data:
        return data.decode("utf-8", "surrogateescape")
    for encoding in ("utf-16-le", "utf-16-be"):
        text = data.decode(encoding, "replace")
        if "\0" not in text and "\ufffd" not in text and sum(map(ord, text)) < 0x1000 * len(text):
            return text
    raise ImageError(f"{path} is no folder, no tar and no text with one name a line")


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text that are not blank, without line ends; errors as `read_text`."""
    return [line for line in re.split(r"\r\n|\n|\r", read_text(path)) if line.strip()]


def read_tars(path: Path) -> list[Path | str]:
    """Read a list of tars, paths or addresses; empty if a line names another file."""
    lines = [line.strip() for line in read_lines(path) if not line.startswith("#")]
    if not all(suffix_of(line.strip("\"'")) == ".tar" for line in lines):
        return []
    named = [line if is_remote(line) else clean_path(line) for line in dict.fromkeys(lines)]
    folders = (path.parent, Path())
    folder = next((f for f in folders if any((f / name).exists() for name in named)), path.parent)
    return [name if is_remote(name) else folder / name for name in named]


def read_rows(path: Path, is_known: Known) -> list[Row]:
    """Read the rows of a list or table.

    Args:
        path: Text with a path, or a path and classes, in each line; or CSV or TSV, with a header or without.
        is_known: Decides where a path with spaces or commas ends, and which column holds the paths.

    Raises:
        ImageError: Binary content, JSON, columns of 0 and 1 without the names of their classes, or a column
            of splits with unknown words.
    """
    if path.suffix.lower() in (".json", ".jsonl"):
        raise ImageError(f"{path} is JSON: expected a text or CSV with a path, or a path and classes, a line")
    lines = [line for line in read_lines(path) if not line.startswith("#") or is_known(line)]
    if not lines:
        return []
    separator = None if is_known(lines[0].strip()) else _separator(path, lines[:2], is_known)
    if separator is not None:
        table = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        return _rows_of_table(path, [[cell.strip() for cell in row] for row in table], is_known)
    has_header = not is_known(lines[0]) and _is_header(lines[0].split())
    rows = [_split_at_space(line, is_known) for line in lines[has_header:]]
    column, splits = _find_splits(path, [[row.classes[-1] if row.classes else ""] for row in rows], [""])
    if column is None:
        return rows
    pairs = zip(rows, splits, strict=True)
    return [Row(row.path, (row.classes or ())[:-1] or None, split) for row, split in pairs]


def collect_splits(path: Path, rows: Iterable[tuple[Any, Row]]) -> dict[Any, Split]:
    """Return the split of each image; raise ImageError if two rows of an image have different ones."""
    splits = dict[Any, Split]()
    for image, row in rows:
        if splits.setdefault(image, row.split) != row.split:
            both = " and ".join(split or "no split" for split in (splits[image], row.split))
            raise ImageError(f"{path} has lines of {printable(row.path)} with {both}: remove one of them")
    return splits


def read_names(path: Path, known: Sequence[str]) -> NameList:
    """Read the names of images, sequences or folders from a list; further words of a line are ignored.

    Args:
        path: As in `read_rows`.
        known: Names that exist. A line may be one of these, its end, or a longer path, see `NameIndex`.

    Returns:
        Names as in `known`. Others are as in the list, without "./".

    Raises:
        ImageError: Binary content, a list without a name, or a name that several of `known` have.
    """
    index = NameIndex(known)
    paths = [row.path for row in read_rows(path, index.find)]
    numbers = [index.find_one(text, path) for text in paths]
    pairs = zip(paths, numbers, strict=True)
    names = [clean_path(text) if number is None else known[number] for text, number in pairs]
    if not names:
        raise ImageError(f"{path} is empty: expected one name a line")
    unique = tuple(dict.fromkeys(names))
    repeated = len(names) - len(unique)
    note = (
        f"{counted(repeated, 'line')} with a name that is listed before, which counts once (in {path.name})"
    )
    return NameList(unique, (printable(note),) if repeated else ())


def read_list(path: Path, suffixes: Container[str]) -> ImageList:
    """Read a list of images; paths are relative to the list's folder, else to the working folder.

    Raises:
        ImageError: Binary content, a file that does not exist, or the address of an image.
    """
    for folder in (path.absolute().parent, Path.cwd()):
        finder = _Finder(folder)
        rows = read_rows(path, finder.find)
        if any(finder.find(row.path) for row in rows):
            break
    else:
        finder = _Finder(path.absolute().parent)
    if address := next((row.path for row in rows if is_remote(row.path)), None):
        raise ImageError(f"{path} lists {address}: images are read from disks, only tars from addresses")
    if missing := [row.path for row in rows if not finder.find(row.path)]:
        raise ImageError(
            f"{path} lists {len(rows)} files, and {len(missing)} of them do not exist, the first is"
            f" {printable(missing[0])}; paths in a list are relative to the list's folder, or to the working"
            " folder"
        )
    found = [(finder.find(row.path) or "", row.classes) for row in rows]
    splits = collect_splits(path, ((finder.find(row.path), row) for row in rows))
    others = [name for name, _ in found if suffix_of(name) and suffix_of(name) not in suffixes]
    others += [name for name, _ in found if not suffix_of(name) and (finder.folder / name).is_dir()]
    notes = [f"{counted(len(others), 'line')} without an image, the first is {others[0]}"] if others else []
    classes: dict[str, tuple[str, ...]] = {}
    unwanted = set(others)
    for name, given in found:
        if name not in unwanted:
            classes[name] = tuple(dict.fromkeys([*classes.get(name, ()), *(given or ())]))
    if repeated := len(found) - len(others) - len(classes):
        notes.append(f"{counted(repeated, 'line')} with an image that is listed before, which counts once")
    if not classes:
        raise ImageError(f"{path} lists no image: {'; '.join(notes) or 'it is empty'}")
    folder, names = _relative(finder.folder, list(classes))
    labeled = any(given is not None for _, given in found)
    left_out = tuple(f"{printable(note)} (in {path.name})" for note in notes)
    given_classes = tuple(classes.values()) if labeled else None
    return ImageList(folder, tuple(names), given_classes, left_out, tuple(splits[name] for name in classes))


class _Finder:
    """Finds the files that the lines of a list name; each is looked up once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._found = folder, dict[str, str | None]()

    def find(self, text: str) -> str | None:
        """Return the name of a file, a dangling link or a folder; None if it does not exist."""
        if text not in self._found:
            written = (text, text.strip(), clean_path(text.strip()))
            kinds: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")  # accents in one letter, or as macOS
            others = [unicodedata.normalize(kind, form) for kind in kinds for form in written]
            forms = dict.fromkeys([*written, *others])
            exists = (form for form in forms if form and os.path.lexists(self.folder / form))
            name = next(exists, None)
            self._found[text] = None if name is None else posixpath.normpath(name)
        return self._found[text]


def _relative(folder: Path, names: list[str]) -> tuple[Path, list[str]]:
    """Make absolute names relative: to the folder, or to the one that holds all, if all are absolute."""
    beginning = f"{folder.as_posix()}/"
    names = [name.removeprefix(beginning) for name in names]
    if names and all(map(posixpath.isabs, names)):
        folder = Path(posixpath.commonpath([posixpath.dirname(name) for name in names]))
        names = [posixpath.relpath(name, folder.as_posix()) for name in names]
    return folder, names


def _separator(path: Path, lines: Sequence[str], is_known: Known) -> str | None:
    """Separator of the columns: the first whose cells are a header, or hold a path."""
    tables = {sep: list(csv.reader(lines, delimiter=sep)) for sep in "\t,;" if sep in lines[0]}
    for separator, rows in tables.items():
        if _is_header(rows[0]) or any(is_known(cell.strip()) for row in rows for cell in row):
            return separator
    return next(iter(tables), None) if path.suffix.lower() in (".csv", ".tsv") else None


def _is_header(cells: Sequence[str]) -> bool:
    return any(_header(cell) in PATH_COLUMNS for cell in cells)


def _header(cell: str) -> str:
    return re.sub(r"[\s_-]", "", cell.strip(" \"'").lower())


def _split_at_space(line: str, is_known: Known) -> Row:
    """Split a path from the words behind it, each of which is a class, up to a comment."""
    text = line.strip()
    if is_known(line) or is_known(text):
        return Row(text, None)
    for match in reversed(list(re.finditer(r"\s+", text))):
        if is_known(text[: match.start()]):
            words = takewhile(lambda word: not word.startswith("#"), text[match.end() :].split())
            return Row(text[: match.start()], tuple(words) or None)
    return Row(text, None)


def _rows_of_table(path: Path, cells: list[list[str]], is_known: Known) -> list[Row]:
    """Find the columns of paths and classes."""
    width = max(map(len, cells))
    cells = [row + [""] * (width - len(row)) for row in cells]
    is_header = not any(map(is_known, cells[0])) and any(is_known(cell) for row in cells[1:2] for cell in row)
    names = cells.pop(0) if _is_header(cells[0]) or is_header else []
    header = [_header(name) for name in names] or [""] * width
    by_header = sorted(range(width), key=lambda c: (*PATH_COLUMNS, header[c]).index(header[c]))
    numbers = {c for c in range(width) if all(_is_number(row[c]) for row in cells[:100])}
    no_paths = {c for c in numbers if names and header[c] not in PATH_COLUMNS}
    candidates = [c for c in by_header if c not in no_paths and any(is_known(row[c]) for row in cells[:100])]
    column = min(candidates, key=lambda c: (header[c] in CLASS_COLUMNS, c in numbers), default=by_header[0])
    split_column, splits = _find_splits(path, cells, header)
    others = [
        c
        for c in range(width)
        if c not in (column, split_column) and not (names and re.match(r"(unnamed.*)?$", header[c]))
    ]
    classes = _find_classes(path, cells, names, others)
    return [Row(row[column], given, split) for row, given, split in zip(cells, classes, splits, strict=True)]


def _find_splits(path: Path, cells: list[list[str]], header: list[str]) -> tuple[int | None, list[Split]]:
    """Find the column of splits: by its header, or because some of its cells are words of two splits or more.

    Returns its number, None if there is none, and the split of each row, empty if it has none.
    """
    for column, name in enumerate(header):
        texts = [row[column].lower() for row in cells]
        words, is_named = {*texts} - {""}, name in SPLIT_COLUMNS
        if words and words <= {*_FLAGS} and (flag := _SPLIT_FLAG.fullmatch(name)):
            one = split_of(flag[1])
            return column, [one if text in _ONE else _ZERO[one] for text in texts]
        if is_named and words == {*SPLIT_NUMBERS}:
            return column, [SPLIT_NUMBERS.get(text, "") for text in texts]
        kinds = {*map(split_of, words)} - {""} if len(words) < _MAX_WORDS else set()
        if (is_named and kinds) or (len(kinds) > 1 and name not in CLASS_COLUMNS):
            return column, [split_of(text) for text in texts]
        if is_named and len(words) > 1:
            raise ImageError(
                f"{path} has a column {name!r} with {', '.join(sorted(words)[:5])}: expected train, val and"
                " test, or 0, 1 and 2; write these, or give the column another name"
            )
    return None, [""] * len(cells)


def _find_classes(
    path: Path, cells: list[list[str]], names: list[str], others: list[int]
) -> list[tuple[str, ...] | None]:
    """Find the columns of classes among the columns behind the path; returns the classes of each row."""
    given = [c for c in others if names and _header(names[c]) in CLASS_COLUMNS][:1]
    if not given and len(others) > 1 and all(row[c].lower() in _FLAGS for row in cells for c in others):
        if not names:
            raise ImageError(
                f"{path} has columns of 0 and 1: expected a header with the names of the classes"
            )
        return [tuple(printable(names[c]) for c in others if row[c].lower() in _ONE) for row in cells]
    if not others or (not given and len(others) > 1 and names):
        return [None] * len(cells)  # a path only, or which column holds the classes is unknown
    given = given or others
    if len(given) > 1 and not any(_is_number(row[given[0]]) for row in cells):  # boxes behind the class
        given = [c for c in given if not all(_is_number(row[c]) for row in cells)]
    return [tuple(name for c in given for name in _classes_of(row[c])) for row in cells]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d*)?", text) is not None


def _classes_of(cell: str) -> list[str]:
    """Split a cell `cat|dog`, `cat;dog` or `['cat', 'dog']`."""
    listed = (
        re.split(r"[,|;]", cell[1:-1]) if cell[:1] == "[" and cell[-1:] == "]" else re.split(r"[|;]", cell)
    )
    names = (printable(name.strip(" '\"")) for name in listed)
    return [name for name in names if name and name.lower() != "nan"]
