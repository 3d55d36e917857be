"""Thirty public-domain or CC0 images with one object each, outlined by hand, and three without an object.

No model is trained on them. `photographs.csv` lists author, source, license, the object's share of the image,
and a point (the pin) on the object. docs/protocols.md describes the origin of images and masks.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dino_model.data import images

FOLDER = Path(__file__).parent
LICENSES = ("CC0-1.0", "public domain")


@dataclass(frozen=True)
class Photograph:
    """A row of the table.

    Attributes:
        name: Stem of its files.
        source: URL of the page that names author and license (`LICENSES`).
        share: Share of the image that the object covers, in [0, 1]; 0 for a landscape.
        pin: Row and column, in pixels, of a point on the object; None for a landscape.
    """

    name: str
    title: str
    author: str
    license: str
    source: str
    share: float
    pin: tuple[int, int] | None


@cache
def table() -> dict[str, Photograph]:
    """Read the table by name, in the order of the file."""
    rows = {}
    with (FOLDER / "photographs.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            y, x, share = row.pop("pin_y"), row.pop("pin_x"), float(row.pop("share"))
            rows[row["name"]] = Photograph(**row, share=share, pin=(int(y), int(x)) if y else None)
    return rows


def names() -> tuple[str, ...]:
    """Return the names of the images with an object."""
    return tuple(name for name, row in table().items() if row.pin)


def landscapes() -> tuple[str, ...]:
    """Return the names of the images without an object."""
    return tuple(name for name, row in table().items() if not row.pin)


def image(name: str) -> NDArray[np.uint8]:
    """Read an image: RGB uint8 [height, width, 3], at most 640 pixels a side. ValueError: unknown."""
    return images.read(FOLDER / f"{_look_up(name).name}.jpg")


def mask(name: str) -> NDArray[np.bool_]:
    """Read the object's mask: Boolean [height, width]. Raises ValueError for a landscape."""
    pin(name)
    return images.read(FOLDER / f"{name}.png")[..., 0] > 127


def pin(name: str) -> tuple[int, int]:
    """Return row and column, in pixels, of a point on the object. Raises ValueError for a landscape."""
    point = _look_up(name).pin
    if point is None:
        raise ValueError(f"{name} is a landscape without an object; those with one: {', '.join(names())}")
    return point


def credit(name: str) -> str:
    """Return title, author and license in one line."""
    row = _look_up(name)
    return f"{row.title}, by {row.author}, {row.license}"


def _look_up(name: str) -> Photograph:
    if name not in table():
        raise ValueError(f"unknown image {name!r}; available: {', '.join(table())}")
    return table()[name]
