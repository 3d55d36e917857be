"""Photographs on their way to the model: uploaded files and the examples that come with scikit-image."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dino_model import images

EXAMPLES = {"cat": "Cat", "astronaut": "Astronaut", "coffee": "Coffee cup", "rocket": "Rocket"}
"""Names in `skimage.data`, free of copyright, and their titles on the page."""


@dataclass(frozen=True)
class Photo:
    """A photograph that need not be decoded yet."""

    name: str
    """For people, and for the names of downloads."""
    key: str
    """The same for the same content."""
    read: Callable[[], NDArray[np.uint8]]
    """Decodes to uint8 RGB [height, width, 3]; raises `images.ImageError`."""
    example: str | None = None
    """Which of `EXAMPLES` it is; None for a visitor's own."""

    @property
    def stem(self) -> str:
        """The name without suffix and without characters that file systems or headers mind."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(self.name).stem).strip("-.")[:60] or "photograph"


def from_file(path: Path, *, max_pixels: int) -> Photo:
    """An uploaded file, known by its content.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    return Photo(path.name, f"file:{digest}", partial(images.read, path, max_pixels=max_pixels))


def example(name: str) -> Photo:
    """One of `EXAMPLES`.

    Raises:
        KeyError: no such example.
    """
    if name not in EXAMPLES:
        raise KeyError(f"no example {name!r}: choose one of {', '.join(EXAMPLES)}")
    return Photo(name, f"example:{name}", partial(_read_example, name), name)


def _read_example(name: str) -> NDArray[np.uint8]:
    from skimage import data  # half a second to import, wanted only when an example is opened

    return np.ascontiguousarray(getattr(data, name)())
