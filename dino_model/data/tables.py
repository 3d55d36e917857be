"""Read lists and tables of images: text of any common form, CSV and TSV.

A line is a path, or a path, classes and a split. The accepted forms are described in docs/protocols.md.
"""

import codecs
import csv
import re
from collections.abc import Callable, Sequence
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import NamedTuple

from dino_model.data.images import ImageError, read_file
from dino_model.data.labels import Split, split_of
from dino_model.runtime.files import printable

PATH_TITLES = (
    *("path", "filepath", "imagepath", "imgpath", "relpath", "file", "filename", "image", "imagefile"),
    *("imagename", "img", "imgname", "imageid", "imgid", "imageindex", "id", "name", "images", "files"),
    "photo",
)
"""Titles of the column of paths, in lower case without spaces, - and _."""
CLASS_TITLES = (
    *("label", "labels", "class", "classes", "classname", "labelname", "category", "categories", "target"),
    *("cls", "tag", "tags", "breed", "species", "y", "findinglabels", "groundtruth"),
)
"""Titles of the column of classes, written as in `PATH_TITLES`."""
SPLIT_TITLES = frozenset({"split", "splits", "partition"})
"""Titles of the column of splits, written as in `PATH_TITLES`; some of its cells may be other words."""
SPLIT_NUMBERS: dict[str, Split] = {"0": "train", "1": "val", "2": "test"}
"""Splits of a column of these three numbers, as in CelebA."""
_MAX_WORDS = 10
"""Different cells of a column of splits."""
_SPLIT_FLAG = re.compile(r"is(train|val|test)(?:id|idation|ing)?(?:set|image|img)?")
_ZERO: dict[Split, Split] = {"train": "test", "val": "train", "test": "train"}
"""Split that 0 is in a column with the title `_SPLIT_FLAG`, which names the split that 1 is."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ONE = frozenset({"1", "1.0", "true"})
_FLAGS = _ONE | {"0", "0.0", "false", ""}
_UNNAMED = re.compile(r"(unnamed.*)?$")
"""Title that a program writes for a column of row numbers."""
_SAMPLE = 100
"""Cells that are read to see what a column holds."""
Known = Callable[[str], object]
"""Test if a text is the path of an image."""


class Row(NamedTuple):
    """Line of a list or table."""

    path: str
    classes: tuple[str, ...] | None
    """Classes of the image; None: the line has a path only."""
    split: Split = ""
    """Part of the data set that a column of the table names."""


class _Column(NamedTuple):
    title: str | None
    """As in the header; None: the table has no header."""
    cells: tuple[str, ...]

    @property
    def name(self) -> str:
        """Title in lower case without spaces, - and _."""
        return _simplify(self.title or "")

    def is_numeric(self) -> bool:
        return all(re.fullmatch(r"-?\d+(\.\d*)?", cell) for cell in self.cells[:_SAMPLE])


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


def read_paths(path: Path, is_known: Known) -> list[str]:
    """Read the paths of a list or table; arguments and errors as `read_rows`."""
    return list(_read_columns(path, is_known)[0].cells)


def read_rows(path: Path, is_known: Known) -> list[Row]:
    """Read the rows of a list or table.

    Args:
        path: Text with a path, or a path and classes, in each line; or CSV or TSV, with a header or without.
        is_known: Decides where a path with spaces or commas ends, and which column holds the paths.

    Raises:
        ImageError: Binary content, JSON, columns of 0 and 1 without the names of their classes, or a column
            of splits with unknown words.
    """
    paths, others = _read_columns(path, is_known)
    count = len(paths.cells)
    splits: list[Split] = [""] * count
    for column in others:
        if found := _read_splits(path, column):
            splits, others = found, [other for other in others if other is not column]
            break
    others = [column for column in others if column.title is None or not _UNNAMED.match(column.name)]
    classes = _read_classes(path, others) if others else [None] * count
    return list(map(Row, paths.cells, classes, splits))


def _read_columns(path: Path, is_known: Known) -> tuple[_Column, list[_Column]]:
    """Read a table; returns the column of paths, and the others."""
    if path.suffix.lower() in (".json", ".jsonl"):
        raise ImageError(f"{path} is JSON: expected a text or CSV with a path, or a path and classes, a line")
    lines = [line for line in read_lines(path) if not line.startswith("#") or is_known(line)]
    if not lines:
        return _Column(None, ()), []
    rows, has_header = _split_lines(lines, _separator(path, lines[:2], is_known), is_known)
    columns = [
        _Column(cells[0] if has_header else None, cells[has_header:])
        for cells in zip_longest(*rows, fillvalue="")
    ]
    paths = _find_paths(columns, is_known)
    return paths, [column for column in columns if column is not paths]


def _separator(path: Path, lines: Sequence[str], is_known: Known) -> str | None:
    """Separator of the columns: the first whose cells are titles, or hold a path; None: spaces."""
    if is_known(lines[0].strip()):
        return None
    tables = {sep: list(csv.reader(lines, delimiter=sep)) for sep in "\t,;" if sep in lines[0]}
    for separator, rows in tables.items():
        if _has_titles(rows[0]) or any(is_known(cell.strip()) for row in rows for cell in row):
            return separator
    return next(iter(tables), None) if path.suffix.lower() in (".csv", ".tsv") else None


def _split_lines(lines: list[str], separator: str | None, is_known: Known) -> tuple[list[list[str]], bool]:
    """Split lines into cells; returns the rows, and whether the first one has the titles."""
    if separator is not None:
        table = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        first, *rows = [[cell.strip() for cell in row] for row in table]
        is_above_paths = not any(map(is_known, first)) and bool(rows) and any(map(is_known, rows[0]))
        return [first, *rows], _has_titles(first) or is_above_paths
    first = lines[0].split()
    if is_known(lines[0]) or not _has_titles(first):
        return [_split_at_space(line, is_known) for line in lines], False
    rows = [_split_at_space(line, is_known) for line in lines[1:]]
    has_titles = len(first) == max(map(len, rows), default=len(first))
    return [first, *rows] if has_titles else rows, has_titles


def _split_at_space(line: str, is_known: Known) -> list[str]:
    """Split a path from the words behind it, up to a comment."""
    text = line.strip()
    if is_known(line) or is_known(text):
        return [text]
    for match in reversed(list(re.finditer(r"\s+", text))):
        if is_known(text[: match.start()]):
            words = takewhile(lambda word: not word.startswith("#"), text[match.end() :].split())
            return [text[: match.start()], *words]
    return [text]


def _has_titles(cells: Sequence[str]) -> bool:
    return any(_simplify(cell) in PATH_TITLES for cell in cells)


def _simplify(title: str) -> str:
    return re.sub(r"[\s_-]", "", title.strip(" \"'").lower())


def _find_paths(columns: list[_Column], is_known: Known) -> _Column:
    """Find the column of paths: of those with known paths the one with the likeliest title."""

    def rank(column: _Column) -> tuple[bool, bool, int]:
        place = (*PATH_TITLES, column.name).index(column.name)
        return column.name in CLASS_TITLES, column.is_numeric(), place

    known = [
        column
        for column in columns
        if column.title is None or column.name in PATH_TITLES or not column.is_numeric()
        if any(map(is_known, column.cells[:_SAMPLE]))
    ]
    return min(known, key=rank) if known else min(columns, key=lambda column: rank(column)[2])


def _read_splits(path: Path, column: _Column) -> list[Split]:
    """Read the split of each row, empty if the row has none; [] if the column holds no splits.

    A column of splits has a title of one, or some of its cells are words of two splits or more.
    """
    texts, name = [cell.lower() for cell in column.cells], column.name
    words, is_named = {*texts} - {""}, name in SPLIT_TITLES
    if words and words <= _FLAGS and (flag := _SPLIT_FLAG.fullmatch(name)):
        one = split_of(flag[1])
        return [one if text in _ONE else _ZERO[one] for text in texts]
    if is_named and words == {*SPLIT_NUMBERS}:
        return [SPLIT_NUMBERS.get(text, "") for text in texts]
    kinds = {*map(split_of, words)} - {""} if len(words) < _MAX_WORDS else set()
    if (is_named and kinds) or (len(kinds) > 1 and name not in CLASS_TITLES):
        return [split_of(text) for text in texts]
    if is_named and len(words) > 1:
        raise ImageError(
            f"{path} has a column {name!r} with {', '.join(sorted(words)[:5])}: expected train, val and"
            " test, or 0, 1 and 2; write these, or give the column another name"
        )
    return []


def _read_classes(path: Path, columns: list[_Column]) -> Sequence[tuple[str, ...] | None]:
    """Read the classes of each row; None for all if no column is known to hold them."""
    titled = [column for column in columns if column.name in CLASS_TITLES][:1]
    has_titles, several = columns[0].title is not None, len(columns) > 1
    if not titled and several and all(cell.lower() in _FLAGS for column in columns for cell in column.cells):
        if not has_titles:
            raise ImageError(
                f"{path} has columns of 0 and 1: expected a header with the names of the classes"
            )
        flags = zip(*(column.cells for column in columns), strict=True)
        names = [printable(column.title or "") for column in columns]
        return [tuple(n for n, flag in zip(names, row, strict=True) if flag.lower() in _ONE) for row in flags]
    if not titled and several and has_titles:
        return [None] * len(columns[0].cells)
    chosen = titled or columns
    if several and not chosen[0].is_numeric():  # boxes behind the class
        chosen = [column for column in chosen if not column.is_numeric()]
    rows = zip(*(column.cells for column in chosen), strict=True)
    return [tuple(name for cell in row for name in _split_classes(cell)) for row in rows]


def _split_classes(cell: str) -> list[str]:
    """Split a cell `cat|dog`, `cat;dog` or `['cat', 'dog']`."""
    is_list = cell[:1] == "[" and cell[-1:] == "]"
    parts = re.split(r"[,|;]", cell[1:-1]) if is_list else re.split(r"[|;]", cell)
    names = (printable(part.strip(" '\"")) for part in parts)
    return [name for name in names if name and name.lower() != "nan"]
