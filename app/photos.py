"""Photographs by name: visitors' files, known by their content, and some of `dino_model.photographs`."""

import hashlib
import re
import secrets
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.cache import BoundedCache
from app.errors import LabError, NotHere
from app.limits import MEGABYTE, Limits
from dino_model import images, photographs

EXAMPLES = {
    name: photographs.table()[name].title
    for name in ("kitten", "sheep", "komodo", "red_pyramid", "polar_bear", "drums", "dutar", "owl")
}
"""Free photographs by name, and their titles: objects of several kinds and sizes."""

SCREEN_SIDE = 1600
"""Pixels of the long side that a screen is given."""
THUMBNAIL_SIDE = 96

Picture = NDArray[np.uint8]
"""RGB [height, width, 3]"""
Draw = Callable[[Picture], Picture]


class Pictures:
    """Photographs under names that cannot be guessed, in bounded memory; safe for several threads.

    The name follows from the content: the same file has the same name, whoever brings it. Files are kept as
    they came, and what was decoded last beside them.
    """

    def __init__(self, limits: Limits) -> None:
        quarter = limits.max_memory_mb * MEGABYTE // 4
        self._limits = limits
        self._secret = secrets.token_bytes(16)  # who has the file but not this cannot ask whether it is here
        self._files: BoundedCache[str, bytes] = BoundedCache(quarter)
        self._decoded: BoundedCache[str, Picture] = BoundedCache(quarter)

    def name_of(self, content: bytes) -> str:
        """The name of a file with this content, here or not."""
        return hashlib.blake2b(content, digest_size=16, key=self._secret).hexdigest()

    def keep(self, content: bytes) -> tuple[str, tuple[int, int]]:
        """Take in a file; returns its name, and height and width of the picture.

        Raises:
            LabError: no picture that can be read, or too large.
        """
        name = self.name_of(content)
        picture = self._decoded.get(name)
        if picture is None:
            picture = self._decode(content)
            self._remember(name, picture)
        self._files.put(name, content, len(content))
        return name, (picture.shape[0], picture.shape[1])

    def check(self, name: str) -> None:
        """See that a photograph is here.

        Raises:
            NotHere: it is not (any more).
        """
        if name not in EXAMPLES and self._files.get(name) is None:
            raise NotHere("This picture is no longer in the server's memory: open it again.")

    def read(self, name: str) -> Picture:
        """The pixels of a photograph.

        Raises:
            NotHere: it is not here (any more).
        """
        self.check(name)
        picture = self._decoded.get(name)
        if picture is None:
            content = self._files.get(name)
            picture = example(name) if name in EXAMPLES else self._decode(content or b"")
            self._remember(name, picture)
        return picture

    def _remember(self, name: str, picture: Picture) -> None:
        self._decoded.put(name, picture, picture.nbytes)

    def _decode(self, content: bytes) -> Picture:
        try:
            return images.read(content, max_pixels=self._limits.max_pixels, name="This file")
        except images.ImageError as error:  # what a decoder said of the damage is not for visitors
            file, damaged, _ = str(error).partition(" is damaged or cut short")
            raise LabError(f"{file}{damaged}.") from error


def for_screen(picture: Picture) -> Picture:
    """A picture of at most `SCREEN_SIDE` pixels: [height, width, 3]; the same where it is small enough."""
    if max(picture.shape[:2]) <= SCREEN_SIDE:
        return picture
    image = Image.fromarray(picture)
    image.thumbnail((SCREEN_SIDE, SCREEN_SIDE), Image.Resampling.LANCZOS)
    return np.asarray(image)


def thumbnail(picture: Picture) -> Picture:
    """The middle of a picture: [`THUMBNAIL_SIDE`, `THUMBNAIL_SIDE`, 3]."""
    image = Image.fromarray(picture)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((THUMBNAIL_SIDE, THUMBNAIL_SIDE), box=box))


def clean_name(name: str) -> str:
    """What a visitor calls a file: one line without control characters, at most 100 characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in Path(name).name).split())[:100]


def stem(name: str, otherwise: str = "photograph") -> str:
    """A name without suffix and without characters that file systems or headers mind."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(name).stem).strip("-.")[:60] or otherwise


def example(name: str) -> Picture:
    """The pixels of one of `EXAMPLES`."""
    return photographs.picture(name)


def pin(name: str) -> tuple[float, float]:
    """A place on the object of one of `EXAMPLES`: across and down, as shares of width and height."""
    (y, x), (height, width) = photographs.pin(name), photographs.mask(name).shape
    return (x + 0.5) / width, (y + 0.5) / height
