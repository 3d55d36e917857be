"""Find the folders, tars and lists that the sources of a collection name. No image is opened."""

import glob
import os
import posixpath
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from dino_model.data import remote
from dino_model.data.classes import LabelOptions
from dino_model.data.images import ImageError
from dino_model.data.names import clean_path, suffix_of
from dino_model.data.shards import Stamp, is_tar, stamp
from dino_model.data.tables import Row, Table, join_rows, read_lines, read_table
from dino_model.data.textures import textures_tar
from dino_model.runtime.errors import pluralize
from dino_model.runtime.files import printable


class Store(NamedTuple):
    """A tar (a URL if it is remote), a folder, or some files of a folder: single ones or those of a list."""

    path: Path | str
    stamp: Stamp | None = None
    """State of a tar when it was indexed; None: a folder."""
    file_list: Path | None = None
    prefix: str = ""
    """Beginning of the images' names that is not part of their path in a folder."""


class Part(NamedTuple):
    """A store, and what was named in it."""

    store: Store
    table: Table | None = None
    """Single files, or those of a list; None: all files of the store."""
    notes: tuple[str, ...] = ()
    """Lines of a list that are left out."""


def find_parts(
    sources: Iterable[str], suffixes: Container[str], options: LabelOptions
) -> tuple[Path, list[Part]]:
    """Find the stores of some sources; with several stores, the title of each begins the names of its images.

    Returns:
        The folder that holds all stores, or the only store; and the parts, each store once.

    Raises:
        ImageError: A source that does not exist, or as `_read_list`.
    """
    files, parts = set[Path](), list[Part]()
    for source in sources:
        if images := _image_files(source, suffixes):
            files.update(path.absolute() for path in images)
        else:
            parts += _open_source(source, suffixes, options)
    if files:
        folder = Path(os.path.commonpath([path.parent for path in files]))
        names = sorted(path.relative_to(folder).as_posix() for path in files)
        parts.append(Part(Store(folder), Table([Row(name, None) for name in names])))
    parts = list({part.store: part for part in parts}.values())
    stores = [part.store for part in parts]
    if len(stores) == 1:
        return Path(stores[0].path), parts
    folders = [Path(store.path).parent if store.stamp else Path(store.path) for store in stores]
    root = Path(os.path.commonpath([folder.absolute() for folder in folders]))
    titles = _titles([store.file_list or store.path for store in stores])
    pairs = zip(parts, titles, strict=True)
    return root, [part._replace(store=part.store._replace(prefix=f"{title}/")) for part, title in pairs]


def _image_files(source: str, suffixes: Container[str]) -> list[Path]:
    """The image file that a source names, or those that a pattern matches; empty for any other source."""
    path = Path(source)
    if remote.is_remote(source) or path.is_dir() or path.suffix.lower() not in suffixes:
        return []
    return [path] if path.is_file() else sorted(map(Path, glob.glob(source)))  # noqa: PTH207


def _open_source(source: str, suffixes: Container[str], options: LabelOptions) -> list[Part]:
    """The folder, list or tars of a source; raises ImageError if one is missing."""
    path = Path(source)
    try:
        if not remote.is_remote(source) and path.is_file() and not is_tar(path):
            if not (tars := _read_tars(path)):
                return [_read_list(path, suffixes, options)]
        else:
            tars = _tars(source)
        if not tars:
            path.stat()  # raises the reason
        return [Part(Store(tar, stamp(tar))) for tar in tars] or [Part(Store(path))]
    except OSError as error:
        reason = f"{error.filename} cannot be opened: {error.strerror}" if error.filename else str(error)
        raise ImageError(printable(reason)) from error


def _read_tars(path: Path) -> list[Path | str]:
    """Read a list of tars, paths or addresses; empty if a line names another file."""
    lines = [line.strip() for line in read_lines(path) if not line.startswith("#")]
    if not all(suffix_of(line.strip("\"'")) == ".tar" for line in lines):
        return []
    named = [line if remote.is_remote(line) else clean_path(line) for line in dict.fromkeys(lines)]
    folders = (path.parent, Path())
    folder = next((f for f in folders if any((f / name).exists() for name in named)), path.parent)
    return [name if remote.is_remote(name) else folder / name for name in named]


def _read_list(path: Path, suffixes: Container[str], options: LabelOptions) -> Part:
    """Read a list of images; paths are relative to the list's folder, else to the working folder.

    Raises:
        ImageError: Binary content, a file that does not exist, or the address of an image.
    """
    folder, table = _find_rows(path, options)
    others = {row.path for row in table.rows if _is_other(folder, row.path, suffixes)}
    rows = [row for row in table.rows if row.path not in others]
    images = join_rows(path, ((row.path, row) for row in rows), options)
    left = len(table.rows) - len(rows)
    first = next((row.path for row in table.rows if row.path in others), "")
    notes = [f"{pluralize(left, 'line')} without an image, the first is {first}"] if left else []
    if repeated := len(rows) - len(images):
        notes.append(f"{pluralize(repeated, 'line')} with an image that is listed before, which counts once")
    if not images:
        raise ImageError(f"{path} lists no image: {'; '.join(notes) or 'it is empty'}")
    folder, names = _relative(folder, list(images))
    rows = [row._replace(path=name) for name, row in zip(names, images.values(), strict=True)]
    left_out = tuple(f"{printable(note)} (in {path.name})" for note in notes)
    return Part(Store(folder, file_list=path), table._replace(rows=rows), left_out)


def _find_rows(path: Path, options: LabelOptions) -> tuple[Path, Table]:
    """Find the files of a list; returns the folder, and the table with paths relative to it.

    The folder is that of the list, or the working folder if it has some of the files and the other none.
    """
    for folder in (path.absolute().parent, Path.cwd(), path.absolute().parent):
        find = _file_finder(folder)
        table = read_table(path, find, options)
        rows, names = table.rows, [find(row.path) for row in table.rows]
        if any(names):
            break
    if address := next((row.path for row in rows if remote.is_remote(row.path)), None):
        raise ImageError(f"{path} lists {address}: images are read from disks, only tars from addresses")
    if missing := [row.path for row, name in zip(rows, names, strict=True) if not name]:
        raise ImageError(
            f"{path} lists {len(rows)} files, and {len(missing)} of them do not exist, the first is"
            f" {printable(missing[0])}; paths in a list are relative to the list's folder, or to the working"
            " folder"
        )
    found = [row._replace(path=name) for row, name in zip(rows, names, strict=True) if name]
    return folder, table._replace(rows=found)


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


def _tars(source: str) -> list[Path | str]:
    """The tar of a source, or those that a pattern matches; empty for a folder or a missing file."""
    path = Path(source)
    if source.startswith("textures:"):
        return [textures_tar(source)]
    if path.is_file():
        return [path]
    if path.is_dir() or not (remote.is_remote(source) or re.search(r"[*?\[{]", source)):
        return []
    tars: list[Path | str] = []
    for name in _expand_braces(source):
        if remote.is_remote(name):
            tars += remote.glob(name) if "*" in name else [name]
        else:
            tars += map(Path, sorted(glob.glob(name)) if glob.has_magic(name) else [name])  # noqa: PTH207
    return tars


def _expand_braces(pattern: str) -> list[str]:
    """Expand ranges of numbers as a shell does: {000..127} keeps leading zeros."""
    if not (match := re.search(r"\{(\d+)\.\.(\d+)\}", pattern)):
        return [pattern]
    first, last = match.groups()
    before, after = pattern[: match.start()], _expand_braces(pattern[match.end() :])
    numbers = range(int(first), int(last) + 1)
    return [f"{before}{number:0{len(first)}}{rest}" for number in numbers for rest in after]


def _titles(paths: Sequence[Path | str]) -> list[str]:
    """Return a folder name for each store: its name, with folders above where names are equal."""
    texts = [str(path).partition("://")[2] or str(path) for path in paths]
    names = [PurePosixPath(text.removesuffix(".tar").removesuffix(".txt")) for text in texts]
    folders: list[str] = []
    for depth in range(1, max(len(name.parts) for name in names) + 1):
        folders = ["/".join(name.parts[-depth:]).lstrip("/") for name in names]
        if len(set(folders)) == len(set(names)):
            break
    return folders
