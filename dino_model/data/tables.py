"""Read lists and tables of images: text, CSV and TSV. The rules are in docs/inputs.md."""

import codecs
import csv
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from dino_model.data.classes import SPLITS, LabelOptions, Split
from dino_model.data.images import ImageError, read_file
from dino_model.data.names import NameIndex, clean_path
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import printable

IMAGE_TITLES = frozenset({"image", "file", "filename", "file_name", "path"})
CLASS_TITLES = frozenset({"label", "class"})
SPLIT_TITLES = frozenset({"split"})
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
Known = Callable[[str], object]
"""Test if a text is the path of an image."""
Image = TypeVar("Image", bound=Hashable)
Cells = list[str]


class Row(NamedTuple):
    """Line of a list or table."""

    path: str
    classes: tuple[str, ...] | None
    """Classes of the image; None: the list has none."""
    split: Split = ""


class Table(NamedTuple):
    """Content of a list or table.

    Attributes:
        rows: A row for each line.
        has_splits: True if a column has splits.
        several: True if an image can have several classes, or none.
        reason: Reason why classes or splits are not read, with the option that helps.
        reading: How the table was read, in one line.
    """

    rows: list[Row]
    has_splits: bool = False
    several: bool = False
    reason: str = ""
    reading: str = ""


class _Unclear(Exception):
    """Classes or splits that no convention and no option names. The message names the option."""


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
    return [line for line in _all_lines(path) if line.strip()]


def _all_lines(path: Path) -> list[str]:
    if path.suffix.lower() in (".json", ".jsonl"):
        raise ImageError(f"{path} is JSON: expected a text or CSV with a path, or a path and classes, a line")
    return re.split(r"\r\n|\n|\r", read_text(path))


def read_paths(path: Path, is_known: Known) -> list[str]:
    """Read the paths of a list; further words and columns are ignored.

    Args:
        path: Text with one path a line, or CSV or TSV with a title of `IMAGE_TITLES` or the paths first.
        is_known: Tests if a text is a path, to find the end of a path with spaces or commas.

    Raises:
        ImageError: As `read_text`, or JSON.
    """
    lines = [line for line in read_lines(path) if not line.startswith("#") or is_known(line)]
    separator = _separator(path, lines[:2], is_known)
    rows = [_split_line(line, separator, is_known) for line in lines]
    titles = [cell.lower() for cell in rows[0]] if rows else []
    conventional = IMAGE_TITLES | {"name"}
    column = next((place for place, title in enumerate(titles) if title in conventional), None)
    if column is None or is_known(rows[0][column]):
        return [row[0] for row in rows]
    return [row[column] for row in rows[1:] if len(row) > column]


def read_names(path: Path, known: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Read the names of images, sequences or folders from a list; further words of a line are ignored.

    Args:
        path: As in `read_paths`.
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


def read_table(path: Path, is_known: Known, options: LabelOptions) -> Table:
    """Read a list or table of images, their classes and their splits.

    Args:
        path: Text with a path, or a path and a class, in each line; or CSV or TSV.
        is_known: Tests if a text is the path of an image.
        options: Columns, header and separators.

    Raises:
        ImageError: Binary content, JSON, no column of images, or a column that does not exist.
    """
    titles, rows = _read_cells(path, is_known, options)
    if not rows:
        return Table([])
    width = max(map(len, rows))
    shown = f"{printable(path.name)}: the "
    shown += (
        f"titles are {_show(titles)}, the first row is {_show(rows[0])}"
        if titles
        else f"first row is {_show(rows[0])}"
    )
    columns = _Columns(titles, width, shown)
    image = columns.find(options.image_column, "--image-column", IMAGE_TITLES)
    odd = next((row for row in rows if not titles and len(row) != len(rows[0])), None)
    if image is None and not titles and (options.header_row == 0 or is_known(rows[0][0]) or width == 1):
        image = 0
    if image is None or (odd and options.image_column is None and options.class_column is None):
        shown += f", another one is {_show(odd)}" if odd else ""
        raise ImageError(
            f"{shown}. Expected one title of {', '.join(sorted(IMAGE_TITLES))}, or a path and a class in each"
            " line: pass --image-column and --class-column with a title or a number, or --header-row with the"
            " line of the titles"
        )
    paths = [row[image] if image < len(row) else "" for row in rows]
    try:
        split = columns.find(options.split_column, "--split-column", SPLIT_TITLES)
        splits = _read_splits(rows, columns, split, options)
    except _Unclear as error:
        return Table([Row(text, None) for text in paths], reason=str(error))
    try:
        others = width - len({image, split} - {None})
        classes, used, several, words = _read_classes(rows, columns, image, others, options)
    except _Unclear as error:
        without = [Row(text, None, name) for text, name in zip(paths, splits, strict=True)]
        return Table(without, split is not None, reason=str(error))
    reading = [f"image: {columns.name(image)}", f"class: {words}" if words else "class: folders"]
    reading += [f"split: {columns.name(split)}"] if split is not None else []
    if unused := [columns.name(place) for place in range(width) if place not in {image, split, *used}]:
        reading.append(f"not used: {', '.join(unused)}")
    table = list(map(Row, paths, classes, splits))
    first = next((row for row in table if row.classes), None)
    if first:
        example = f"{printable(first.path)} is {'|'.join(first.classes or ())!r}"
        reading.append(example + (f" of {first.split or 'no split'}" if split is not None else ""))
    return Table(table, split is not None, several, "", f"{printable(path.name)}: {'; '.join(reading)}")


def join_rows(path: Path, rows: Iterable[tuple[Image, Row]], options: LabelOptions) -> dict[Image, Row]:
    """Join the rows of each image.

    Raises:
        ImageError: Rows of one image with two splits, or with other classes without --several-classes rows.
    """
    by_image = dict[Image, Row]()
    for image, row in rows:
        first = by_image.setdefault(image, row)
        if first.split != row.split:
            both = " and ".join(split or "no split" for split in (first.split, row.split))
            raise ImageError(f"{path} has lines of {printable(row.path)} with {both}: remove one of them")
        if first.classes == row.classes:
            continue
        if options.several_classes == "refuse":
            both = " and ".join("|".join(each.classes or ()) or "no class" for each in (first, row))
            raise ImageError(
                f"{path} has lines of {printable(row.path)} with {both}: pass --several-classes rows if it"
                " has both, else remove one of them"
            )
        classes = dict.fromkeys([*(first.classes or ()), *(row.classes or ())])
        by_image[image] = first._replace(classes=tuple(classes))
    return by_image


class _Columns:
    """Columns of a table by their titles and numbers."""

    def __init__(self, titles: Cells | None, width: int, shown: str) -> None:
        self.titles, self.width, self.shown = titles, width, shown

    def name(self, place: int) -> str:
        """Return the title of a column, or its number."""
        title = self.titles[place] if self.titles and place < len(self.titles) else ""
        return printable(title) or f"column {place + 1}"

    def find(self, wanted: str | None, option: str, conventional: frozenset[str]) -> int | None:
        """Return the column that an option names, else the only one with a conventional title; None: none.

        Raises:
            ImageError: No such column.
            _Unclear: Several columns with such titles.
        """
        if wanted == "none":
            return None
        if wanted is not None:
            return self.find_named(wanted, option)
        titles = [title.strip().lower() for title in self.titles or ()]
        found = [place for place, title in enumerate(titles) if title in conventional]
        if len(found) > 1:
            both = " and ".join(self.name(place) for place in found)
            error = ImageError if conventional is IMAGE_TITLES else _Unclear
            raise error(f"{self.shown}. Both {both} could be meant: pass {option} with one of them")
        return found[0] if found else None

    def find_named(self, wanted: str, option: str) -> int:
        """Return the column with a title or number; raises ImageError if there is none."""
        titles = self.titles or []
        if titles.count(wanted) == 1:
            return titles.index(wanted)
        if wanted.isdecimal() and 0 < int(wanted) <= self.width:
            return int(wanted) - 1
        known = f"titles {_show(titles)} or numbers" if titles else "numbers"
        raise ImageError(
            f"{self.shown}. {option} is {wanted!r}: expected one of the {known} 1 to {self.width}"
        )


def _read_classes(
    rows: list[Cells], columns: _Columns, image: int, others: int, options: LabelOptions
) -> tuple[list[tuple[str, ...] | None], set[int], bool, str]:
    """Return the classes of each row, the columns that they are from, if they can be several, and words."""
    nothing: list[tuple[str, ...] | None] = [None] * len(rows)
    if options.class_columns:
        places = _class_columns(options.class_columns, columns, image)
        flags = _read_flags(rows, places, columns)
        return flags, {*places}, True, ", ".join(map(columns.name, places))
    wanted, word, last = options.class_column, None, False
    if wanted and wanted not in (columns.titles or ()):
        if match := re.fullmatch(r"(.+):(\d+)", wanted):
            wanted, word = match[1], int(match[2])
        elif match := re.fullmatch(r"(\d+)-", wanted):
            wanted, last = match[1], True
    place = columns.find(wanted, "--class-column", CLASS_TITLES)
    if place is None and wanted is None and others:
        if columns.titles or columns.width > 2:
            raise _Unclear(
                f"{columns.shown}. Expected "
                + (f"a title {' or '.join(sorted(CLASS_TITLES))}" if columns.titles else "a path and a class")
                + ": pass --class-column with a title or a number, or none for class folders; or"
                " --class-columns with several"
            )
        place = 1 - image
    if place is None:
        return nothing, set(), False, ""
    used = {*range(place, columns.width)} if last else {place}
    cells = [" ".join(row[place:]) if last else row[place] if place < len(row) else "" for row in rows]
    if word:
        cells = [(cell.split() + [""] * word)[word - 1] for cell in cells]
    words = columns.name(place) + (f", word {word}" if word else "") + (" and all behind it" if last else "")
    separator = options.label_separator
    if separator is None and (cell := next((cell for cell in cells if re.search(r"[|;]|^\[", cell)), None)):
        raise _Unclear(
            f"{columns.shown}. The class {printable(cell)!r} may be several: pass --label-separator with the"
            " character between them, or none if it is one"
        )
    if separator in (None, "none"):
        return (
            [(printable(cell),) if cell else () for cell in cells],
            used,
            options.several_classes == "rows",
            words,
        )
    parts = [[part.strip(" []'\"") for part in cell.split(separator)] for cell in cells]
    found = [tuple(dict.fromkeys(printable(part) for part in each if part)) for each in parts]
    return [*found], used, True, f"{words}, separated by {separator!r}"


def _class_columns(text: str, columns: _Columns, image: int) -> list[int]:
    if match := re.fullmatch(r"(\d+)-", text):
        first = columns.find_named(match[1], "--class-columns")
        return [place for place in range(first, columns.width) if place != image]
    return [columns.find_named(name.strip(), "--class-columns") for name in text.split(",")]


def _read_flags(rows: list[Cells], places: Sequence[int], columns: _Columns) -> list[tuple[str, ...] | None]:
    """Return the titles of the columns in which each row has 1, of columns with 0 and 1, or with -1 and 1."""
    values = {"1": 1, "true": 1, "0": 0, "false": 0, "-1": -1}
    found: list[tuple[str, ...] | None] = []
    used = set[int]()
    for row in rows:
        cells = [row[place] if place < len(row) else "" for place in places]
        flags = [values.get(re.sub(r"\.0*$", "", cell).lower()) for cell in cells]
        if None in flags:
            number = flags.index(None)
            raise _Unclear(
                f"{columns.shown}. {columns.name(places[number])} has {printable(cells[number])!r} in the"
                f" row {_show(row)}: --class-columns expects 0 and 1, or -1 and 1"
            )
        used.update(flag for flag in flags if flag is not None)
        found.append(
            tuple(columns.name(place) for place, flag in zip(places, flags, strict=True) if flag == 1)
        )
    if used >= {-1, 0, 1}:
        raise _Unclear(
            f"{columns.shown}. The columns of --class-columns have -1, 0 and 1: replace the values that mean"
            " unknown or not visible, so that 0 and 1 or -1 and 1 remain"
        )
    return found


def _read_splits(
    rows: list[Cells], columns: _Columns, place: int | None, options: LabelOptions
) -> list[Split]:
    if place is None:
        if options.split_values is not None:
            raise _Unclear(f"{columns.shown}. --split-values needs a column split: pass --split-column")
        return [""] * len(rows)
    cells = [row[place] if place < len(row) else "" for row in rows]
    if (given := options.split_of_value()) is not None:
        if missing := given.keys() - {*cells}:
            found = _show(sorted({*cells}))
            raise _Unclear(f"{columns.name(place)} has {found}, and --split-values names {min(missing)!r}")
        return [given.get(cell, "") for cell in cells]
    if unknown := sorted({cell for cell in cells if cell and cell.lower() not in SPLITS}):
        raise _Unclear(
            f"{columns.shown}. {columns.name(place)} has {_show(unknown)}: pass --split-values train=A,test=B"
            " with two of its values for A and B, or --split-column none"
        )
    return [SPLITS.get(cell.lower(), "") for cell in cells]


def _read_cells(path: Path, is_known: Known, options: LabelOptions) -> tuple[Cells | None, list[Cells]]:
    """Read the titles of a table, None if it has none, and the cells of its rows."""
    lines, row = _all_lines(path), options.header_row
    if row and row > len(lines):
        raise ImageError(f"{path} has {len(lines)} lines: --header-row is {row}")
    body = [line for line in lines[row or 0 :] if line.strip()]
    body = [line for line in body if not line.startswith("#") or is_known(line)]
    head = [lines[row - 1].lstrip("#")] if row else []
    if not body:
        return None, []
    separator = _separator(path, [*head, *body][:2], is_known)
    cells = _split_line((head or body)[0], separator, is_known)
    titles: Cells | None = None
    if row:
        titles = _split_line(head[0], separator, lambda _: False)
    elif row is None and not is_known(body[0].strip()):
        has_title = any(cell.lower() in IMAGE_TITLES for cell in cells)
        if has_title or (not any(map(is_known, cells)) and len(cells) > 1):
            titles, body = _split_line(body[0], separator, lambda _: False), body[1:]
    is_first = _image_is_first(titles, options)
    rows = [_split_line(line, separator, is_known if is_first else lambda _: False) for line in body]
    width = max(map(len, rows), default=0)
    if titles and len(titles) == width - 1 and separator is None:
        titles = ["", *titles]  # the column of the images has no title, as in CelebA
    if titles and separator is None and len(titles) < width:
        row_shown = _show(next(row for row in rows if len(row) == width))
        raise ImageError(f"{path} has {len(titles)} titles, {_show(titles)}, and the row {row_shown}")
    return titles, rows


def _image_is_first(titles: Cells | None, options: LabelOptions) -> bool:
    if options.image_column:
        return options.image_column in ("1", *(titles or ())[:1])
    return not titles or titles[0].lower() in IMAGE_TITLES


def _separator(path: Path, lines: Sequence[str], is_known: Known) -> str | None:
    """Separator of the columns: the first whose cells are titles, or hold a path; None: spaces."""
    if not lines or is_known(lines[0].strip()):
        return None
    tables = {sep: list(csv.reader(lines, delimiter=sep)) for sep in "\t,;" if sep in lines[0]}
    for separator, rows in tables.items():
        is_titled = any(cell.strip().lower() in IMAGE_TITLES for cell in rows[0])
        if is_titled or any(is_known(cell.strip()) for row in rows for cell in row):
            return separator
    return next(iter(tables), None) if path.suffix.lower() in (".csv", ".tsv") or "\t" in tables else None


def _split_line(line: str, separator: str | None, is_known: Known) -> Cells:
    """Split a line at a separator; or at spaces, behind its longest beginning that is a path."""
    if separator is not None:
        (cells,) = csv.reader([line], delimiter=separator, skipinitialspace=True)
        return [cell.strip() for cell in cells]
    text = line.strip()
    if is_known(line) or is_known(text):
        return [text]
    for match in reversed(list(re.finditer(r"\s+", text))):
        if is_known(text[: match.start()]):
            return [text[: match.start()], *text[match.end() :].split()]
    return text.split()


def _show(cells: Sequence[str]) -> str:
    """Quote the first cells of a row for a message."""
    return printable(", ".join(map(repr, cells[:8])) + (", …" if len(cells) > 8 else ""))
