"""Classes and splits of images: the options that name where they are, and rows of images that have them."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, NamedTuple

from dino_model.data.images import ImageError
from dino_model.runtime.errors import SettingError, list_names
from dino_model.runtime.files import printable

Split = Literal["train", "val", "test", ""]
SPLITS: dict[str, Split] = {
    **{"train": "train", "test": "test"},
    **dict.fromkeys(("val", "valid", "validation"), "val"),
}
"""Names of splits, in lower case; folders and tables may have them in any capitals."""
BACKGROUND = "BACKGROUND_Google"
"""Caltech-101's folder of images that belong to no class."""
FLAGS = {"-1", "0", "1", "false", "true"}
"""Values of cells that say for each class whether the image has it."""
FIRST_NAMES = 5


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Places of the classes and splits of images. The defaults are the conventions of docs/inputs.md."""

    labels: Path | None = None
    """Table of images and classes (CSV, TSV or text) instead of class folders. Images that are not in it are
    left out."""
    class_level: Literal["path", "top", "last"] = "path"
    """Folders of an image that are its class, below the split: their path, the top one or the last one."""
    split_folders: str | None = None
    """Folders that are splits, such as train=A,test=B; or none. Without train, all other folders are for
    training. Default: top folders train and val, valid, validation or test that hold class folders."""
    sources: Literal["together", "classes"] = "together"
    """Whether each of several sources is a class."""
    image_column: str | None = None
    """Column of a table with the images: its title or its number from 1. Default: the only one of image,
    file, filename, file_name and path; the first one without titles."""
    class_column: str | None = None
    """Column of a table with the classes: its title or its number; none: no classes. TITLE:1 is the first
    word of a cell, 2- all from the second column on. Default: the only one of label and class."""
    split_column: str | None = None
    """Column of a table with the splits: its title or its number; none: no splits. Default: split."""
    split_values: str | None = None
    """Values of the splits in a table, such as train=A,test=B; images with other values are not used."""
    header_row: int | None = None
    """Line of a table with the titles, from 1; 0: there are none."""
    label_separator: str | None = None
    """Character between several classes in a cell; none: a cell is one class."""
    class_columns: str | None = None
    """Columns of a table that are classes, such as A,B,C, with 0 and 1, or -1 and 1, in their cells; 2-: all
    from the second one on."""
    several_classes: Literal["refuse", "rows"] = "refuse"
    """rows: an image in several rows of a table has the classes of all."""
    image_key: str | None = None
    """Extension of the image in samples of WebDataset that have several, such as left.jpg; several with
    commas."""
    class_key: str | None = None
    """Class in samples of WebDataset: an extension such as cls or txt, json:FIELD, or none for folders."""

    def __post_init__(self) -> None:
        self.parse_splits("split_folders")
        self.parse_splits("split_values")
        if self.header_row is not None and self.header_row < 0:
            raise SettingError(f"--header-row is {self.header_row}: expected a line from 1, or 0 for none.")
        if self.class_columns and self.class_column:
            raise SettingError("--class-column and --class-columns both name classes: pass one of them.")

    def label_options(self) -> "LabelOptions":
        """Return these options only, without those of a subclass."""
        return LabelOptions(**{field.name: getattr(self, field.name) for field in fields(LabelOptions)})

    def parse_splits(self, option: Literal["split_folders", "split_values"]) -> dict[str, Split] | None:
        """Return the split of each folder, or of each value of a table; empty for none, None by default."""
        text: str | None = getattr(self, option)
        if text is None or text == "none":
            return None if text is None else {}
        pairs = [part.partition("=")[::2] for part in text.split(",")]
        if any(split not in SPLITS or not name for split, name in pairs):
            name = option.replace("_", "-")
            raise SettingError(f"--{name} is {text!r}: expected train=A,test=B with your names for A and B.")
        return {name.strip().rstrip("/"): SPLITS[split] for split, name in pairs}


class Row(NamedTuple):
    """An image of a folder, list or tar."""

    name: str
    """Path with "/", relative to the folder or tar."""
    classes: tuple[str, ...] | None = None
    """Classes; empty: it has none; None: those of its folders."""
    split: Split = ""
    store: int = 0
    """Number of the folder or tar."""
    offset: int = 0
    """First byte in a tar."""
    size: int = 0
    """Number of bytes in a tar."""


class Rows(NamedTuple):
    """Images of a folder, list or tar, and how their classes and splits were read.

    Attributes:
        rows: The images.
        reading: How the classes were read, in one line; empty if there are none.
        reason: Reason why there are no classes, with the option that helps.
        has_splits: True if the images are divided.
        several: True if an image can have several classes, or none.
        notes: Folders, files, lines and images that are left out.
        ignored: Number of files that are not images.
        unused: Columns of a table that are not used.
    """

    rows: Sequence[Row]
    reading: str = ""
    reason: str = ""
    has_splits: bool = False
    several: bool = False
    notes: tuple[str, ...] = ()
    ignored: int = 0
    unused: tuple[str, ...] = ()


class UnclearError(ImageError):
    """Classes or splits that no convention and no option names. The message names the option."""


def describe_row(row: Row, has_splits: bool) -> str:
    """Return the classes of an image in words: `cat/1.jpg is 'cat' of train`."""
    text = f"{printable(row.name)} is {'|'.join(row.classes or ()) or 'no class'!r}"
    return text + (f" of {row.split or 'no split'}" if has_splits else "")


def divide_cells(cells: Sequence[str | list[str]], separator: str | None) -> list[tuple[str, ...]]:
    """Return the classes of each cell of a table, or of each value of a shard: one, or several.

    Cells are texts, or lists of texts; the separator is the option `label_separator`.

    Raises:
        UnclearError: No separator, and a cell that may hold several classes; or lists of 0 and 1.
    """
    may_be_several = re.compile(r"\[|.*[|;,]|-?[\d.]+(\s+-?[\d.]+)+$").match
    texts = [cell if isinstance(cell, str) else f"[{', '.join(cell)}]" for cell in cells]
    if separator is None and (text := next(filter(may_be_several, texts), None)):
        raise UnclearError(
            f"The class {printable(text)[:80]!r} may be several: pass --label-separator with the character"
            " between them, or none if it is one"
        )
    if separator in (None, "none"):
        return [(printable(text),) if text else () for text in texts]
    parts = [cell if isinstance(cell, list) else cell.split(separator) for cell in cells]
    names = [[*filter(None, (printable(part.strip(" []'\"")) for part in cell))] for cell in parts]
    if any(len(each) > 1 for each in names) and {name.lower() for each in names for name in each} <= FLAGS:
        raise UnclearError(
            f"The classes {printable(texts[0])[:80]!r} are 0 and 1: expected names of classes, or"
            " --label-separator none if a cell is one class"
        )
    return [tuple(dict.fromkeys(each)) for each in names]


def compose(text: str) -> str:
    """Return a text in one of the two forms that accents have in names: composed, not that of macOS."""
    return unicodedata.normalize("NFC", text)


def sort_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Sort names of classes; numbers by their value.

    Raises:
        UnclearError: One number in several forms, such as 1, 01 and 1.0.
    """
    unique = {*names}
    forms = defaultdict[float, list[str]](list)
    for name in sorted(unique):
        if re.fullmatch(r"-?\d+(\.\d+)?", name):
            forms[float(name)].append(name)
    if equal := next((each for each in forms.values() if len(each) > 1), None):
        raise UnclearError(f"classes {list_names(map(repr, equal))} are equal numbers: write them in one way")
    numeric = all(name.isdecimal() for name in unique)
    return tuple(sorted(unique, key=lambda name: (int(name), name) if numeric else (0, name)))


def describe_classes(classes: Sequence[str]) -> str:
    """Return number and first names of classes: `1,000 classes (n01440764, n01443537, …)`."""
    names = list_names(classes, FIRST_NAMES)
    number = "1 class" if len(classes) == 1 else f"{len(classes):,} classes"
    return f"{number} ({names})" if classes else "no classes"
