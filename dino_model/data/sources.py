"""Find the folders, tars and lists that the sources of a collection name. No image is opened."""

import glob
import os
import re
from collections.abc import Container, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from dino_model.data import lists, remote
from dino_model.data.images import ImageError
from dino_model.data.tables import Row
from dino_model.data.tars import Stamp, is_tar, stamp
from dino_model.data.textures import textures_tar
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
    rows: Sequence[Row] = ()
    """Single files, or those of a list; empty: all files of the store."""
    notes: tuple[str, ...] = ()
    """Lines of a list that are left out."""


def find_parts(sources: Iterable[str], suffixes: Container[str]) -> tuple[Path, list[Part]]:
    """Find the stores of some sources; with several stores, the title of each begins the names of its images.

    Returns:
        The folder that holds all stores, or the only store; and the parts, each store once.

    Raises:
        ImageError: A source that does not exist, or as `lists.read_list`.
    """
    files, parts = set[Path](), list[Part]()
    for source in sources:
        if images := _image_files(source, suffixes):
            files.update(path.absolute() for path in images)
        else:
            parts += _open_source(source, suffixes)
    if files:
        folder = Path(os.path.commonpath([path.parent for path in files]))
        names = sorted(path.relative_to(folder).as_posix() for path in files)
        parts.append(Part(Store(folder), [Row(name, None) for name in names]))
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


def _open_source(source: str, suffixes: Container[str]) -> list[Part]:
    """The folder, list or tars of a source; raises ImageError if one is missing."""
    path = Path(source)
    try:
        if not remote.is_remote(source) and path.is_file() and not is_tar(path):
            if not (tars := lists.read_tars(path)):
                folder, rows, notes = lists.read_list(path, suffixes)
                return [Part(Store(folder, file_list=path), rows, notes)]
        else:
            tars = _tars(source)
        if not tars:
            path.stat()  # raises the reason
        return [Part(Store(tar, stamp(tar))) for tar in tars] or [Part(Store(path))]
    except OSError as error:
        reason = f"{error.filename} cannot be opened: {error.strerror}" if error.filename else str(error)
        raise ImageError(printable(reason)) from error


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
