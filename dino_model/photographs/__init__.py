"""Thirty photographs with one object each, outlined by hand; three landscapes without one.

The page opens with them, notebooks show them, benchmarks and training's probe judge attention by them. They
are never trained on. All are in the public domain or under CC0; `photographs.csv` beside this file says of
each who took it, where it comes from, under which licence, which share of it the object covers, and a point
(the pin) on the object. How they were chosen and outlined stands in docs/photographs.md.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dino_model import images

FOLDER = Path(__file__).parent
LICENCES = ("CC0-1.0", "public domain")
"""What `Photograph.licence` may say."""


@dataclass(frozen=True)
class Photograph:
    """A row of the table.

    Attributes:
        name: stem of its files.
        title: what is to be seen.
        author: who took it, or put it into the public domain.
        licence: one of `LICENCES`.
        source: address of the page that tells its author and licence.
        share: of the picture that the object covers, in [0, 1]; 0 for a landscape.
        pin: row and column, in pixels, of a point on the object; None for a landscape.
    """

    name: str
    title: str
    author: str
    licence: str
    source: str
    share: float
    pin: tuple[int, int] | None


@cache
def table() -> dict[str, Photograph]:
    """Every photograph by its name, in the order of the file."""
    with (FOLDER / "photographs.csv").open(encoding="utf-8", newline="") as file:
        return {row["name"]: _photograph(row) for row in csv.DictReader(file)}


def _photograph(row: dict[str, str]) -> Photograph:
    pin = (int(row["pin_y"]), int(row["pin_x"])) if row["pin_y"] else None
    return Photograph(
        name=row["name"],
        title=row["title"],
        author=row["author"],
        licence=row["licence"],
        source=row["source"],
        share=float(row["share"]),
        pin=pin,
    )


def names() -> tuple[str, ...]:
    """Names of the photographs with an object."""
    return tuple(name for name, photograph in table().items() if photograph.pin)


def landscapes() -> tuple[str, ...]:
    """Names of the photographs without an object: ground to put one on."""
    return tuple(name for name, photograph in table().items() if not photograph.pin)


def picture(name: str) -> NDArray[np.uint8]:
    """The photograph, RGB: uint8 [height, width, 3], at most 640 pixels a side.

    Raises:
        ValueError: no photograph of this name.
    """
    return images.read(FOLDER / f"{_known(name).name}.jpg")


def mask(name: str) -> NDArray[np.bool_]:
    """Where the object is: Boolean [height, width] of the picture.

    Raises:
        ValueError: no photograph of this name, or a landscape.
    """
    pin(name)
    return images.read(FOLDER / f"{name}.png")[..., 0] > 127


def pin(name: str) -> tuple[int, int]:
    """Row and column, in pixels, of a point on the object.

    Raises:
        ValueError: no photograph of this name, or a landscape.
    """
    found = _known(name).pin
    if found is None:
        raise ValueError(f"{name} is a landscape without an object; those with one: {', '.join(names())}")
    return found


def credit(name: str) -> str:
    """Title, author and licence in one line.

    Raises:
        ValueError: no photograph of this name.
    """
    photograph = _known(name)
    return f"{photograph.title}, by {photograph.author}, {photograph.licence}"


def _known(name: str) -> Photograph:
    if name not in table():
        raise ValueError(f"no photograph {name!r}; there are {', '.join(table())}")
    return table()[name]
