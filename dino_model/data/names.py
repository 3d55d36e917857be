"""Names of files: their suffixes and forms, and which of them a written path means."""

import posixpath
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from dino_model.data.images import SUFFIXES, ImageError
from dino_model.runtime.files import printable


def suffix_of(name: str) -> str:
    """Return the suffix of a name in lower case, with its dot."""
    return posixpath.splitext(name)[1].lower()


def stem(name: str) -> str:
    """Return a name without its suffix."""
    return posixpath.splitext(name)[0]


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
