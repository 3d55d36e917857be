"""Matching patches of two images; the algorithms are in `segmentation.matching`."""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import to_rgb
from numpy.typing import NDArray
from PIL import Image

from app.engine import Encoding, Key, patches_of
from app.errors import LabError
from app.files import png
from app.lab import Lab
from app.limits import SIZES
from app.photos import Picture, Pictures, clean_name, for_screen
from segmentation import drawing, matching
from segmentation.matching import SCALES, ImageFeatures, Matches, Sides, best_scale, matches_between

MOST_PINS = 8
TURN = 20
"""Degrees by which `turned` turns an image."""
GRAY = (128, 128, 128)


class Pin(NamedTuple):
    """A patch of A by row and column, and the color of its pair, such as #f97316."""

    patch: tuple[int, int]
    color: str


class Half(NamedTuple):
    """One image of a pair: its encoding, its pixels, and the features that are compared."""

    encoding: Encoding
    picture: Picture
    seen: ImageFeatures


def look(encoding: Encoding, pictures: Pictures) -> Half:
    """Return the features of an image that is to be matched.

    Raises:
        LabError: The image has no texture, or is forgotten.
    """
    picture = pictures.read(encoding.key.photo)
    if matching.is_flat(picture):
        raise LabError("One of the images has no texture, every pixel has the same color: choose another.")
    return Half(encoding, picture, matching.image_features(encoding.predictor, picture))


def directions(a: Half, b: Half) -> NDArray[np.float16]:
    """Return vectors whose products are cosines: of every patch of A, then of B, length 1 [patches, D]."""
    compared = matching.prepared(a.seen.features, b.seen.features)
    return np.concatenate([matching.unit_vectors(one) for one in compared]).astype(np.float16)


@dataclass(frozen=True)
class Pair:
    """Encodings of two images by one model, and the largest ratio of a match.

    The ratio of a match is the distance of its patches by the distance of the next best patch.

    Raises:
        LabError: Two models, or a ratio outside 0.01 to 1.
    """

    lab: Lab
    a: Key
    b: Key
    ratio: float = 1.0

    def __post_init__(self) -> None:
        if len({(key.model, key.version) for key in (self.a, self.b)}) > 1:
            raise LabError("The two images were encoded by different models: encode both with one model.")
        if (
            isinstance(self.ratio, bool)
            or not isinstance(self.ratio, int | float)
            or not 0.01 <= self.ratio <= 1
        ):
            raise LabError("The ratio must be a number from 0.01 to 1.")

    def half(self, key: Key) -> Half:
        """One of the images."""
        encoding = self.lab.engine.encoding(key.token)
        with self.lab.engine.reading:
            return look(encoding, self.lab.pictures)

    def best(self) -> tuple[float, Mapping[float, Half], Matches]:
        """Match B at several sizes; return the scale with the most matches, B by scale, and these matches."""
        a, scaled = self.half(self.a), {1.0: self.half(self.b)}
        encoding = scaled[1.0].encoding
        for scale in SCALES:
            size = round(self.b.size * scale)
            patches = patches_of(encoding.picture_size, size, encoding.predictor.patch_size)
            possible = SIZES[0] <= size <= SIZES[1] and patches <= self.lab.limits.max_patches
            if scale not in scaled and possible:
                scaled[scale] = self.half(replace(self.b, size=size))
        scale, matches = best_scale(a.seen, {scale: half.seen for scale, half in scaled.items()}, self.ratio)
        return scale, scaled, matches


def turned(lab: Lab, name: str) -> str:
    """Turn an image within its frame by `TURN` degrees and keep the result; return its name.

    The matches of an image with its turned copy can be checked by eye.
    """
    image = Image.fromarray(for_screen(lab.pictures.read(name)))
    copy = image.rotate(TURN, Image.Resampling.BICUBIC, fillcolor=GRAY)
    return lab.pictures.keep(png(np.asarray(copy)))[0]


def direction_bytes(lab: Lab, a: str, b: str) -> bytes:
    """Return `directions` of the encodings of two tokens as little-endian float16.

    Raises:
        LabError: An unknown token, or two models.
    """
    pair = Pair(lab, Key.of(a), Key.of(b))
    return directions(pair.half(pair.a), pair.half(pair.b)).astype("<f2").tobytes()


def fetch_directions(lab: Lab, tokens: object) -> str:
    """Return `direction_bytes` in base64, for views without routes.

    Raises:
        LabError: Not two tokens of one model.
    """
    if not isinstance(tokens, list) or len(tokens) != 2 or not all(isinstance(one, str) for one in tokens):
        raise LabError("Expected the tokens of two encodings.")
    return base64.b64encode(direction_bytes(lab, *tokens)).decode()


def listed_matches(a: Encoding, b: Encoding, matches: Matches) -> list[dict[str, Any]]:
    """Return matches as y and x in pixels of the images, with cosine and ratio."""
    return matching.matches_as_json(matches, (a.grid, b.grid), (a.picture_size, b.picture_size))


def scene_of(lab: Lab, asked: object) -> "Scene":
    """Read what a browser shows of a pair.

    Args:
        lab: Whose images.
        asked: a and b (tokens), ratio, pins ({row, column, color}), lines (Boolean), names (two texts).

    Raises:
        LabError: A field is invalid, or a token is unknown.
    """
    if not isinstance(asked, dict):
        raise LabError("Choose two images first.")
    a, b, names, pins = (asked.get(name) for name in ("a", "b", "names", "pins"))
    if not isinstance(a, str) or not isinstance(b, str):
        raise LabError("A pair needs the tokens of two encodings.")
    if not isinstance(names, list) or len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise LabError("A pair needs the names of two images.")
    if not isinstance(pins, list) or len(pins) > MOST_PINS:
        raise LabError(f"A pair has at most {MOST_PINS} pins.")
    ratio, lines = asked.get("ratio", 1.0), asked.get("lines") is True
    pair = Pair(lab, Key.of(a), Key.of(b), ratio)
    first, second = pair.half(pair.a), pair.half(pair.b)
    matches = matches_between(first.seen, second.seen, ratio)
    cleaned = [clean_name(name) for name in names]
    return Scene(first, second, cleaned, ratio, matches, [_pin(pin) for pin in pins], lines)


def _pin(value: object) -> Pin:
    row, column, color = (
        value.get(name) if isinstance(value, dict) else None for name in ("row", "column", "color")
    )
    if type(row) is not int or type(column) is not int or min(row, column) < 0:
        raise LabError("A pin must have a row and a column, counted from 0.")
    if not isinstance(color, str) or not re.fullmatch("#[0-9a-f]{6}", color):
        raise LabError("A pin must have a color such as #f97316.")
    return Pin((row, column), color)


@dataclass(frozen=True)
class Scene:
    """A pair with everything that its files show.

    Raises:
        LabError: A pin beyond the last patch.
    """

    a: Half
    b: Half
    names: Sequence[str]
    """Of both images, as their user calls them."""
    ratio: float
    matches: Matches
    pins: Sequence[Pin]
    lines: bool
    """Whether matches are drawn in addition to the pins."""

    def __post_init__(self) -> None:
        rows, columns = self.grids[0]
        if any(row >= rows or column >= columns for (row, column), _ in self.pins):
            raise LabError(f"The image's patches end at row {rows - 1}, column {columns - 1}.")

    @property
    def grids(self) -> Sides:
        """Rows and columns of patches of both images."""
        return self.a.encoding.grid, self.b.encoding.grid

    def pinned(self) -> Matches:
        """Every pin with the most similar patch of B; their ratio is 1, because no rival is searched."""
        compared = matching.prepared(self.a.seen.features, self.b.seen.features)
        found = [matching.transfer(*compared, pin.patch) for pin in self.pins]
        patches, cells = ([one[0] for one in each] for each in (self.pins, found))
        a, b = (np.array(each, np.int64).reshape(-1, 2) for each in (patches, cells))
        cosines = np.array([cosine for _, cosine in found], np.float32)
        return Matches(a, b.astype(np.float64), cosines, np.ones_like(cosines))


def lines_png(scene: Scene) -> bytes:
    """Draw both images side by side, lines between the best matches and, over them, the pinned pairs."""
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
    """Write matches and pinned pairs: y and x in pixels of the images, as `segmentation match` does."""
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
"""Downloads of a pair by name: media type and function."""
