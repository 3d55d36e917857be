"""Rules for names of files: which are images, which folders are searched, which name a path means."""

import errno
import os
import posixpath
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from dino_model.data.images import SUFFIXES, ImageError
from dino_model.runtime.files import printable

SYSTEM_FOLDERS = frozenset(
    {
        *("@eadir", "@recycle", "#recycle", "@__thumb", "@recently-snapshot", "#snapshot", "~snapshot"),
        *("$recycle.bin", "recycler", "system volume information", "lost+found"),
        *("__macosx", "__pycache__", "cvs"),
    }
)
"""Folders of network drives, systems and tools, in lower case. Their images are thumbnails or deleted."""


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


def suffix_of(name: str) -> str:
    """Return the suffix of a name in lower case, with its dot."""
    return posixpath.splitext(name)[1].lower()


def stem(name: str) -> str:
    """Return a name without its suffix."""
    return posixpath.splitext(name)[0]


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


def clean_path(text: str) -> str:
    """Return a path of a text as names are written: with "/", without "./" and quotes."""
    quote = text[:1]
    if quote in ("'", '"') and text.endswith(quote) and len(text) > 2:
        text = text[1:-1]
    return posixpath.normpath(text.replace("\\", "/") if "/" not in text else text)


def compose(text: str) -> str:
    """Return a text in one of the two forms that accents have in names: composed, not that of macOS."""
    return unicodedata.normalize("NFC", text)


class NameIndex:
    """Find images by the paths that users write: whole names, ends of names, or longer paths."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [printable(name) for name in names]
        self._composed = [compose(name) for name in self.names]
        self._whole = {name: number for number, name in enumerate(self._composed)}
        self._by_base: dict[str, list[int]] = defaultdict(list)
        for number, name in enumerate(self._composed):
            base = posixpath.basename(name)
            for key in {base, stem(base)}:
                self._by_base[key].append(number)

    def find(self, text: str) -> list[int]:
        """Return the numbers of the images that a path can mean: that of the whole name, or all that agree.

        Two paths agree if the shorter one is the end of the longer one. A path without suffix agrees with any
        suffix. Of several names that are ends of the path, the longest one is meant.
        """
        text = compose(printable(text))
        for path in dict.fromkeys((text, clean_path(text))):
            if path in self._whole:
                return [self._whole[path]]
            base = posixpath.basename(path)
            numbers = {*self._by_base.get(base, ()), *self._by_base.get(stem(base), ())}
            found = sorted(number for number in numbers if _agree(path, self._composed[number]))
            depths = [self._composed[number].count("/") for number in found]
            if found and max(depths) <= path.count("/"):
                return [number for number, depth in zip(found, depths, strict=True) if depth == max(depths)]
            if found:
                return found
        return []

    def find_one(self, text: str, source: Path) -> int | None:
        """Return the number of the image that a line of a file names, None if there is none.

        Raises:
            ImageError: A path that several images have.
        """
        numbers = self.find(text)
        if len(numbers) > 1:
            first, second = (self.names[number] for number in numbers[:2])
            raise ImageError(f"{source} names {text}, which can be {first} or {second}: write the whole name")
        return numbers[0] if numbers else None

    def find_all(self, texts: Iterable[str], source: Path) -> list[int]:
        """Return the numbers of the images that the lines of a file name.

        Raises:
            ImageError: A path that no image has, or that several images have.
        """
        found = {text: self.find_one(text, source) for text in texts}
        if unknown := [text for text, number in found.items() if number is None]:
            raise ImageError(
                f"{source} names {len(unknown)} images that do not exist, the first is"
                f" {printable(unknown[0])}; names look like {self.names[0]}"
            )
        return [number for number in found.values() if number is not None]


def _agree(path: str, name: str) -> bool:
    """Test if one path is the end of the other. A path without the suffix of an image is completed."""
    if suffix_of(path) not in SUFFIXES | {".npy"}:
        path += suffix_of(name)
    pairs = zip_longest(*(reversed(text.strip("/").split("/")) for text in (path, name)))
    (own, other), *rest = pairs
    same = stem(own) == stem(other) and suffix_of(own) == suffix_of(other)
    return same and all(a == b for a, b in rest if a is not None and b is not None)
