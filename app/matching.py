"""Two photographs that one model has looked at, matched; the algorithms are `segmentation.matching`'s."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from app.engine import Encoding
from app.errors import LabError
from app.files import png
from app.photos import Picture, Pictures, for_screen
from segmentation import drawing, matching
from segmentation.matching import ImageFeatures, Matches, Sides

MOST_PINS = 8


class Pin(NamedTuple):
    """A patch of A by row and column, and the colour its pair is drawn in, such as #f97316."""

    patch: tuple[int, int]
    color: str


class Half(NamedTuple):
    """One photograph of a pair: what a model made of it, its pixels, and what is compared of it."""

    encoding: Encoding
    picture: Picture
    seen: ImageFeatures


def look(encoding: Encoding, pictures: Pictures) -> Half:
    """A photograph that is to be matched.

    Raises:
        LabError: there is nothing to see in it, or it is not here any more.
    """
    picture = pictures.read(encoding.key.photo)
    if matching.is_flat(picture):
        raise LabError(
            "One of the photographs has no texture, every pixel has the same colour: choose another."
        )
    return Half(encoding, picture, matching.image_features(encoding.predictor, picture))


def directions(a: Half, b: Half) -> NDArray[np.float16]:
    """What cosines are computed from: of every patch of A, then of B, a vector of length 1 [patches, D]."""
    compared = matching.prepared(a.seen.features, b.seen.features)
    return np.concatenate([matching.unit_vectors(one) for one in compared]).astype(np.float16)


@dataclass(frozen=True)
class Scene:
    """A pair with all that its files are made of.

    Raises:
        LabError: a pin beyond the last patch.
    """

    a: Half
    b: Half
    names: Sequence[str]
    """What their visitor calls both."""
    ratio: float
    matches: Matches
    pins: Sequence[Pin]
    lines: bool
    """Whether the matches are drawn beside the pins."""

    def __post_init__(self) -> None:
        rows, columns = self.grids[0]
        if any(row >= rows or column >= columns for (row, column), _ in self.pins):
            raise LabError(f"The photograph's patches end at row {rows - 1}, column {columns - 1}.")

    @property
    def grids(self) -> Sides:
        """Rows and columns of patches of both."""
        return self.a.encoding.grid, self.b.encoding.grid

    def pinned(self) -> Matches:
        """Every pin, and the patch of B that is most like it; no rival is looked for, as ratio 1 says."""
        compared = matching.prepared(self.a.seen.features, self.b.seen.features)
        found = [matching.transfer(*compared, pin.patch) for pin in self.pins]
        patches, cells = ([one[0] for one in each] for each in (self.pins, found))
        a, b = (np.array(each, np.int64).reshape(-1, 2) for each in (patches, cells))
        cosines = np.array([cosine for _, cosine in found], np.float32)
        return Matches(a, b.astype(np.float64), cosines, np.ones_like(cosines))


def lines_png(scene: Scene) -> bytes:
    """Both photographs side by side, lines between the surest matches and, over them, the pinned pairs."""
    pictures = for_screen(scene.a.picture), for_screen(scene.b.picture)
    sizes, most = _sides(pictures), matching.SHOWN if scene.lines else 0
    found = [one[:most] for one in matching.in_pixels(scene.matches, scene.grids, sizes)]
    pins = matching.in_pixels(scene.pinned(), scene.grids, sizes)
    in_a, in_b = (np.concatenate(places) for places in zip(found, pins, strict=True))
    colors = drawing.line_colors(in_a, sizes[0][0])
    for row, pin in enumerate(scene.pins, start=len(found[0])):
        colors[row] = np.multiply(to_rgb(pin.color), 255).round()
    return png(drawing.match_lines(*pictures, in_a, in_b, colors))


def matches_json(scene: Scene) -> bytes:
    """Matches and pinned pairs: y and x in pixels of the photographs, as `segmentation match` writes them."""
    about = scene.grids, _sides((scene.a.picture, scene.b.picture))
    keys = scene.a.encoding.key, scene.b.encoding.key
    told = {
        "a": scene.names[0],
        "b": scene.names[1],
        "model": keys[0].model,
        "sizes": [key.size for key in keys],
        "ratio": scene.ratio,
        "pins": matching.matches_as_json(scene.pinned(), *about),
        "matches": matching.matches_as_json(scene.matches, *about),
    }
    return (json.dumps(told, indent=2) + "\n").encode()


def _sides(pictures: tuple[Picture, Picture]) -> Sides:
    (a, b) = ((picture.shape[0], picture.shape[1]) for picture in pictures)
    return a, b


FILES: Mapping[str, tuple[str, Callable[[Scene], bytes]]] = {
    "lines.png": ("image/png", lines_png),
    "matches.json": ("application/json", matches_json),
}
"""What can be downloaded of a pair: by name, its media type and who makes it."""
