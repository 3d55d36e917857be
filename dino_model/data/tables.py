"""Read lists and tables of images: text, CSV and TSV. The rules are in docs/inputs.md."""

import codecs
import csv
import os
import posixpath
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from itertools import compress
from operator import eq
from pathlib import Path
from typing import Literal

from dino_model.data.classes import (
    SPLITS,
    LabelOptions,
    Row,
    Rows,
    Split,
    UnclearError,
    compose,
    describe_row,
    divide_cells,
)
from dino_model.data.images import SUFFIXES, ImageError, read_file, suffix_of
from dino_model.data.remote import is_remote
from dino_model.runtime.errors import count_names, list_names, pluralize
from dino_model.runtime.files import printable

IMAGE_TITLES = ("file", "file_name", "filename", "image", "path")
CLASS_TITLES = ("label", "class")
Find = Callable[[str], Sequence[str]]
"""Return the names of the images that a text can mean."""
Cells = list[str]
PATHS_ONLY = LabelOptions(class_column="none", split_column="none")
"""Options of lists without classes: further words and columns are ignored."""


def read_text(path: Path) -> str:
    """Read a text in UTF-8, or in UTF-16 with a byte-order mark; other bytes become surrogates.

    Raises:
        ImageError: Binary content.
    """
    data = read_file(path, str(path))
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        raise ImageError(f"{path} is no folder, no tar and no text in UTF-8 with one name a line")
    return data.decode("utf-8-sig", "surrogateescape")


def read_lines(path: Path, *, blank: bool = False) -> list[str]:
    """Read the lines of a text, without line ends; those that are blank on request. Errors as `read_text`."""
    if path.suffix.lower() in (".json", ".jsonl"):
        raise ImageError(f"{path} is JSON: expected a text or CSV with a path, or a path and classes, a line")
    return [line for line in re.split(r"\r\n|\n|\r", read_text(path)) if blank or line.strip()]


def clean_path(text: str) -> str:
    """Return a path of a text as names are written: with "/", without "./" and quotes."""
    if quoted := re.fullmatch(r"(['\"])(.+)\1", text, re.DOTALL):
        text = quoted[2]
    return posixpath.normpath(text.replace("\\", "/") if "/" not in text else text)


class NameIndex:
    """Find images by the paths that users write: whole names, ends of names, or longer paths.

    A longer path is that of another image if it is a file outside of `folder`, or of another split.
    """

    def __init__(self, names: Iterable[str], folder: Path | None = None) -> None:
        self._folder = Path(os.path.abspath(folder)) if folder else Path()  # noqa: PTH100 (without "..")
        self._by_stem = defaultdict[str, list[tuple[list[str], str, str]]](list)
        for name in names:
            parts, suffix = _split_path(name)
            self._by_stem[parts[0]].append((parts, suffix, name))

    def find(self, text: str) -> list[str]:
        """Return the names that a path can mean: the one that is equal, or all that agree.

        Two paths agree if the shorter one is the end of the longer one. A path without the suffix of an image
        agrees with any. Of several names that are ends of the path, the longest one is meant.
        """
        for path in dict.fromkeys((text, clean_path(text))):
            parts, suffix = _split_path(path)
            known = self._by_stem.get(parts[0], ())
            found = {name: len(p) for p, end, name in known if suffix in (end, "") and all(map(eq, parts, p))}
            if equal := [name for name in found if _compose(name) == _compose(path)]:
                return equal
            longest = max(found.values(), default=0)
            if found and not self._is_other_image(path, parts[longest:]):
                return [name for name, length in found.items() if length == longest or longest > len(parts)]
        return []

    def _is_other_image(self, path: str, above: Sequence[str]) -> bool:
        """Return whether a path that is not below the images is another file, or of another split.

        `above`: its folders above the name of an image, the last one first.
        """
        own = (part.lower() for part in reversed(self._folder.parts))
        pair = next(((a, b) for a, b in zip(map(str.lower, above), own, strict=False) if a != b), None)
        if pair is None:
            return False
        file = self._folder.parents[min(len(above), len(self._folder.parents)) - 1] / path
        is_outside = file.is_file() and not file.resolve().is_relative_to(self._folder.resolve())
        return is_outside or len({SPLITS[name] for name in pair if name in SPLITS}) == 2


def _compose(name: str) -> str:
    return compose(printable(name))


def _split_path(path: str) -> tuple[list[str], str]:
    """Return the parts of a path from its end, the first without the suffix of an image; and this suffix."""
    text = _compose(path).strip("/")
    suffix = suffix_of(text) if suffix_of(text) in SUFFIXES | {".npy"} else ""
    return text[: len(text) - len(suffix)].split("/")[::-1], suffix


def read_names(path: Path, known: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Read the names of images, sequences or folders from a list; further words of a line are ignored.

    Returns:
        Names as in `known`, see `NameIndex`, each once, and a note on repeated lines, or no text. Unknown
        names are as in the list, without "./", and the last ones.

    Raises:
        ImageError: Binary content, a list without a name, or a name that several of `known` have.
    """
    found, missing = read_table(path, NameIndex(known).find, PATHS_ONLY)
    names = dict.fromkeys([*(row.name for row in found.rows), *map(clean_path, missing)])
    if not names:
        raise ImageError(f"{path} is empty: expected one name a line")
    return tuple(names), "".join(f"{note} (in {printable(path.name)})" for note in found.notes)


def read_list(path: Path, suffixes: Collection[str], options: LabelOptions) -> tuple[Path, Rows]:
    """Read a list of image files, which may be a table of classes and splits.

    Paths are relative to the list's folder, or to the working folder if only that has some of the files.

    Returns:
        The folder that names are relative to, and the images in the order of the list.

    Raises:
        ImageError: As `read_table`; a file that does not exist, or the address of an image.
    """
    for folder in dict.fromkeys((path.absolute().parent, Path.cwd())):
        found, missing = read_table(path, _file_finder(folder), options)
        if found.rows:
            break
    if missing:
        reason = (
            f"the first is {printable(missing[0])}; paths are relative to the list's or the working folder"
        )
        if address := next(filter(is_remote, missing), None):
            reason = f"such as {address}: images are read from disks, only tars from addresses"
        count = len(found.rows) + len(missing)
        raise ImageError(f"{path} lists {count} files, and {len(missing)} of them do not exist, {reason}")

    def is_image(name: str) -> bool:
        return suffix_of(name) in suffixes if suffix_of(name) else not (folder / name).is_dir()

    rows = [row for row in found.rows if is_image(row.name)]
    others = [row.name for row in found.rows if not is_image(row.name)]
    notes = [*found.notes, *count_names("line", "without an image", others)]
    if not rows:
        raise ImageError(f"{path} lists no image: {'; '.join(notes) or 'it is empty'}")
    names = [row.name.removeprefix(f"{folder.as_posix()}/") for row in rows]
    if all(map(posixpath.isabs, names)):
        folder = Path(posixpath.commonpath([posixpath.dirname(name) for name in names]))
        names = [posixpath.relpath(name, folder.as_posix()) for name in names]
    rows = [row._replace(name=name) for row, name in zip(rows, names, strict=True)]
    return folder, found._replace(rows=rows, notes=tuple(f"{note} (in {path.name})" for note in notes))


def _file_finder(folder: Path) -> Find:
    """Return a function from the text of a line to the file that it names in a folder."""
    kinds: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")  # accents in one letter, or as macOS

    @cache
    def find(text: str) -> list[str]:
        if is_remote(text) and suffix_of(text) == ".tar":
            return [text]
        written = (text, text.strip(), clean_path(text.strip()))
        forms = [*written, *(unicodedata.normalize(kind, form) for kind in kinds for form in written)]
        exists = (form for form in forms if form and os.path.lexists(folder / form))  # also a dangling link
        return [posixpath.normpath(form) for form in exists][:1]

    return find


def read_table(path: Path, find: Find, options: LabelOptions) -> tuple[Rows, list[str]]:
    """Read a list or table of images, their classes and their splits.

    Args:
        path: Text with a path, or a path and a class, in each line; or CSV or TSV.
        find: Returns the images that a text can name.
        options: Columns, header and separators.

    Returns:
        The images, each once, and the paths of rows without an image.

    Raises:
        ImageError: Binary content, JSON, no column of images, a column that does not exist, or a path of
            several images.
    """
    columns = _read_columns(path, find, options)
    if columns is None:
        return Rows([]), []
    image = _find_images(columns, find, options)
    split, used, several, reason = list[str](), list[str](), False, ""
    splits: Sequence[Split] = [""] * len(columns.rows)
    classes: Sequence[tuple[str, ...] | None] = [None] * len(columns.rows)
    try:
        if columns.odd and not (options.image_column or options.class_column):
            raise columns.unclear
        split = columns.find(options.split_column, "--split-column", ("split",))
        splits = _read_splits(columns, split, options)
        classes, used, several = _read_classes(columns, [image, *split], options)
    except UnclearError as error:
        reason = str(error)
    rows, texts, missing = dict[str, Row](), dict[str, str](), list[str]()
    for text, given, part in zip(columns.cells[image], classes, splits, strict=True):
        names = find(text)
        if len(names) > 1:
            both = " or ".join(map(printable, names[:2]))
            raise ImageError(f"{path} names {text}, which can be {both}: write the whole name")
        if not names:
            missing.append(text)
            continue
        row = Row(names[0], given, part)
        first = rows.setdefault(row.name, row)
        if clean_path(text) != texts.setdefault(row.name, clean_path(text)):
            both = f"{printable(texts[row.name])} and {printable(text)}"
            reason = reason or f"{path} has {both}, both {printable(row.name)}: pass --data with both folders"
        elif options.several_classes == "rows" and first.split == part:
            joined = dict.fromkeys([*(first.classes or ()), *(given or ())])
            rows[row.name] = row._replace(classes=tuple(joined))
        elif first != row:
            both = " and ".join(describe_row(each, bool(split)) for each in (first, row))
            option = "--several-classes rows if it has both classes, --image-column if columns are exchanged"
            option = option if first.split == part else "--split-column none if splits are not used"
            reason = reason or f"in {path}, {both}: remove a row, or pass {option}"
    repeated = len(columns.rows) - len(missing) - len(rows)
    notes = (f"{pluralize(repeated, 'line')} with an image that an earlier line has",) * bool(repeated)
    unused = tuple(title for title in columns.cells if title not in (image, *used, *split))
    roles = {"image": [image], "class": used or ["folders"], "split": split, "not used": unused}
    words = [f"{role}: {printable(', '.join(titles))}" for role, titles in roles.items() if titles]
    reading = "" if reason else f"{printable(path.name)}: {'; '.join(words)}"
    return Rows([*rows.values()], reading, reason, bool(split), several, notes, unused=unused), missing


def _find_images(columns: "_Columns", find: Find, options: LabelOptions) -> str:
    """Return the column of the images; raises UnclearError if it is not clear."""
    found = columns.find(options.image_column, "--image-column", IMAGE_TITLES)
    if not found and not columns.titles:
        first, *others = columns.rows[0]
        is_path = options.header_row == 0 or not others or find(first)
        has_other = any(suffix_of(cell) in SUFFIXES and find(cell) for cell in others)
        found = [*columns.cells][: bool(is_path and not has_other)]
    if not found and options.class_column == "none":
        found = columns.find(None, "--image-column", ("name",))
    if len(found) != 1:
        raise columns.unclear
    return found[0]


class _Columns:
    """Columns of a table.

    Attributes:
        titles: Titles of the first columns, if there are some.
        rows: Cells of each row, as many as the table has columns.
        cells: Cells of each column, by its title if no other column has it, else by its number.
        odd: First row of another number of cells, or None. Under titles of CSV, cells may be missing.
        unclear: Error of a table whose columns are not clear.
    """

    def __init__(self, path: Path, titles: Cells, rows: list[Cells], *, is_text: bool) -> None:
        width, may_lack = len(titles or rows[0]), bool(titles) and not is_text
        is_odd = (row for row in rows if any(row[width:]) or (len(row) < width and not may_lack))
        self.titles, self.odd = titles, next(is_odd, None)
        begin = f"the titles are {_show(titles)}, the first row is" if titles else "the first row is"
        self._shown = f"{printable(path.name)}: {begin} {_show(rows[0])}"
        most = max(map(len, rows))
        self.rows = [row + [""] * (most - len(row)) for row in rows]
        names = [f"column {place}" for place in range(1, most + 1)]
        for place, title in enumerate(titles[:most]):
            names[place] = title if title and titles.count(title) == 1 else names[place]
        self.cells = dict(zip(names, map(list, zip(*self.rows, strict=True)), strict=True))
        self.unclear = self.error(
            f"{f'Another row is {_show(self.odd)}. ' if self.odd else ''}Expected one title of"
            f" {', '.join(IMAGE_TITLES)}, or a path and a class in each line: pass --image-column and"
            " --class-column with a title or a number, or --header-row with the titles' line, 0 for none"
        )

    def error(self, text: str) -> UnclearError:
        """Return an error that shows the beginning of the table."""
        return UnclearError(f"{self._shown}. {text}")

    def find(self, wanted: str | None, option: str, conventional: Collection[str]) -> list[str]:
        """Return the columns that an option names, else the one with a conventional title; empty: none.

        Raises:
            UnclearError: No such column, or several with conventional titles.
        """
        if wanted is not None:
            return [] if wanted == "none" else self.find_named(wanted, option)
        found = [title for title in self.cells if title.lower() in conventional]
        if len(found) > 1:
            raise self.error(f"{_show(found)} could be meant: pass {option} with one of them")
        return found

    def find_named(self, wanted: str, option: str) -> list[str]:
        """Return the column with a title or number, or all from a number on, such as 2-."""
        if wanted in self.cells:
            return [wanted]
        number, dash, _ = wanted.partition("-")
        found = [*self.cells][int(number) - 1 :] if number.isdecimal() and int(number) else []
        if not found:
            last = len(self.cells)
            raise self.error(f"{option} is {wanted!r}: expected a title, or a number from 1 to {last}")
        return found if dash else found[:1]


def _read_classes(
    columns: _Columns, others: Sequence[str], options: LabelOptions
) -> tuple[Sequence[tuple[str, ...] | None], list[str], bool]:
    """Return the classes of each row, the columns that they are from, and if they can be several."""
    if options.class_columns:
        parts = options.class_columns.split(",")
        named = [title for part in parts for title in columns.find_named(part.strip(), "--class-columns")]
        used = [title for title in named if title not in others]
        return _read_flags(columns, used), used, True
    wanted, word, separator = options.class_column, 0, options.label_separator
    if wanted not in columns.cells and (match := re.fullmatch(r"(.+):(\d+)", wanted or "")):
        wanted, word = match[1], int(match[2])
    used = columns.find(wanted, "--class-column", CLASS_TITLES)
    rest = [title for title in columns.cells if title not in others]
    if not used and rest and wanted is None:
        if columns.titles or len(columns.cells) > 2:
            expected = f"a title {' or '.join(CLASS_TITLES)}" if columns.titles else "a path and a class"
            raise columns.error(
                f"Expected {expected}: pass --class-column with a title or a number, or none for class"
                " folders; or --class-columns with several"
            )
        used = rest
    if not used:
        return [None] * len(columns.rows), used, False
    cells = [" ".join(filter(None, row)) for row in zip(*map(columns.cells.get, used), strict=True)]
    if word:
        cells = [(cell.split() + [""] * word)[word - 1] for cell in cells]
    try:
        classes = divide_cells(cells, separator)
    except UnclearError as error:
        raise columns.error(str(error)) from None
    return classes, used, separator not in (None, "none") or options.several_classes == "rows"


def _read_flags(columns: _Columns, used: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the titles of the columns in which each row has 1, of columns with 0 and 1, or with -1 and 1."""
    flags = {"1": 1, "true": 1, "0": 0, "false": 0, "-1": -1}
    found = {title: [re.sub(r"\.0*$", "", cell).lower() for cell in columns.cells[title]] for title in used}
    unknown = [(title, cell) for title, cells in found.items() for cell in cells if cell not in flags]
    if unknown or {flags[cell] for cells in found.values() for cell in cells} == {-1, 0, 1}:
        title, cell = unknown[0] if unknown else ("--class-columns", "-1, 0 and 1")
        raise columns.error(
            f"{title} has {printable(cell)!r}: --class-columns expects 0 and 1, or -1 and 1; replace values"
            " that mean unknown or not visible"
        )
    names = [printable(title) for title in found]
    rows = ([flags[cell] == 1 for cell in row] for row in zip(*found.values(), strict=True))
    return [tuple(compress(names, row)) for row in rows]


def _read_splits(columns: _Columns, column: Sequence[str], options: LabelOptions) -> Sequence[Split]:
    given = options.parse_splits("split_values")
    if not column:
        if given is not None:
            raise columns.error("--split-values needs a column split: pass --split-column")
        return [""] * len(columns.rows)
    cells = columns.cells[column[0]]
    known: dict[str, Split] = {cell: SPLITS[cell.lower()] for cell in cells if cell.lower() in SPLITS}
    if (given or {}).keys() - {*cells} or (given is None and {*cells} - {*known, ""}):
        raise columns.error(
            f"{column[0]} has {_show(sorted({*cells}))}: pass --split-values train=A,test=B with two of its"
            " values for A and B, or --split-column none"
        )
    splits = known if given is None else given
    return [splits.get(cell, "") for cell in cells]


def _read_columns(path: Path, find: Find, options: LabelOptions) -> _Columns | None:
    """Read the titles and rows of a table; None for one without rows."""
    lines, header = read_lines(path, blank=True), options.header_row or 0
    if header > len(lines):
        raise ImageError(f"{path} has {len(lines)} lines: --header-row is {header}")
    body = [line for line in lines[header:] if line.strip() and not _is_comment(line, find)]
    head = [lines[header - 1].lstrip("#")] if header else []
    if not body:
        return None
    separator = _separator(path, [*head, *body][:2], find)
    (titles,) = _split_lines(path, (head or body)[:1], separator, find)
    has_title = any(cell.lower() in IMAGE_TITLES for cell in titles)
    is_path = find(body[0].strip()) or (not has_title and any(map(find, titles)))
    if options.class_column == "none":
        is_path = is_path or not (has_title or "name" in map(str.lower, titles))
    if not head and options.header_row is None and not is_path and (has_title or len(titles) > 1):
        head, body = body[:1], body[1:]
    titles = _split_lines(path, head, separator)[0] if head else []
    image = options.image_column or next((title for title in titles if title.lower() in IMAGE_TITLES), "1")
    rows = _split_lines(path, body, separator, find if image in ("1", *titles[:1]) else None)
    if titles and separator is None and not has_title and {*map(len, rows)} == {len(titles) + 1}:
        titles = ["", *titles]  # the column of the images has no title, as in CelebA
    return _Columns(path, titles, rows, is_text=separator is None) if rows else None


def _is_comment(line: str, find: Find) -> bool:
    """Return whether a line begins with #, and with no image that has # in its name."""
    ends = (match.start() for match in re.finditer(r"[\s,;]|$", line))
    return line.startswith("#") and not any("#" in name for end in ends for name in find(line[:end]))


def _separator(path: Path, lines: Sequence[str], find: Find) -> str | None:
    """Separator of the columns: the first whose cells are titles, or hold a path; None: spaces."""
    if find(lines[0].strip()):
        return None
    tables = {each: list(csv.reader(lines, delimiter=each)) for each in "\t,;" if each in lines[0]}
    for separator, rows in tables.items():
        is_titled = any(cell.strip().lower() in IMAGE_TITLES for cell in rows[0])
        if is_titled or any(find(cell.strip()) for row in rows for cell in row):
            return separator
    return next(iter(tables), None) if path.suffix.lower() in (".csv", ".tsv") or "\t" in tables else None


def _split_lines(
    path: Path, lines: Sequence[str], separator: str | None, find: Find | None = None
) -> list[Cells]:
    """Split lines at a separator; or at spaces, behind their longest beginning that `find` knows."""
    if separator is None:
        return [_split_words(line.strip(), find) if find else line.split() for line in lines]
    text = (f"{line}\n" for line in lines)  # a quoted cell may have several lines
    try:
        rows = list(csv.reader(text, delimiter=separator, skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise ImageError(f"{path} is no table: {error} (a quote without its end?)") from error
    return [[cell.strip() for cell in row] for row in rows]


def _split_words(text: str, find: Find) -> Cells:
    ends = [len(text), *(match.start() for match in reversed(list(re.finditer(r"\s+", text))))]
    end = next((end for end in ends if find(text[:end])), 0)
    return ([text[:end]] if end else []) + text[end:].split()


def _show(cells: Sequence[str]) -> str:
    """Quote the first cells of a row for a message."""
    return list_names(map(repr, cells), 8)
