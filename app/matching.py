"""Matching patches of two images; the algorithms are in `segmentation.matching`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image
from pydantic import Field

from app.engine import Encoding, Key, patches_of
from app.errors import ClientValue, LabError
from app.lab import Lab
from app.limits import SIZES
from app.photos import Picture, clean_name, for_screen, png
from segmentation import drawing, matching
from segmentation.matching import SCALES, ImageFeatures, Matches, Sides, best_scale, matches_between

TURN_DEGREES = 20
GRAY = (128, 128, 128)
Ratio = Annotated[float, Field(ge=0.01, le=1)]
"""Largest distance of matching patches, relative to the distance of the next best patch."""


class Pin(ClientValue):
    """A patch of the first image, and the color of its pair."""

    row: int = Field(ge=0)
    column: int = Field(ge=0)
    color: str = Field(pattern="^#[0-9a-f]{6}$")


class PairRequest(ClientValue):
    """Contents of a view of two images: their tokens and names, and what is drawn between them."""

    a: str
    b: str
    names: list[str] = Field(min_length=2, max_length=2)
    ratio: Ratio = 1.0
    pins: list[Pin] = Field(max_length=8)
    lines: bool = False


class Half(NamedTuple):
    """An image of a pair: its encoding, its pixels, and the features that are compared."""

    encoding: Encoding
    picture: Picture
    features: ImageFeatures


def look(lab: Lab, token: str) -> Half:
    """Return the features of an encoded image; refuse one without texture."""
    encoding = lab.engine.encoding(token)
    picture = lab.pictures.read(encoding.key.photo)
    if matching.is_flat(picture):
        raise LabError("One of the images has no texture, every pixel has the same color: choose another.")
    return Half(encoding, picture, matching.image_features(encoding.predictor, picture))


def look_at_pair(lab: Lab, a: str, b: str) -> tuple[Half, Half]:
    """Return the features of two images encoded by one model."""
    first, second = Key.of(a), Key.of(b)
    if (first.model, first.version) != (second.model, second.version):
        raise LabError("The two images were encoded by different models: encode both with one model.")
    return look(lab, a), look(lab, b)


def match(lab: Lab, a: str, b: str, ratio: float) -> dict[str, Any]:
    """Match two encoded images, the second at several scales.

    Args:
        lab: Holds the images.
        a, b: Tokens of encodings by one model.
        ratio: See `Ratio`.

    Returns:
        matches of the scale with the most (a and b as y and x in pixels, cosine, ratio), that scale, the
        scales that were possible, and the encoding of B at that scale.
    """
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0.01 <= ratio <= 1:
        raise LabError("The ratio must be a number from 0.01 to 1.")
    first, second = look_at_pair(lab, a, b)
    encoding, key = second.encoding, second.encoding.key
    scaled = {1.0: second}
    for scale in SCALES:
        size = round(key.size * scale)
        patches = patches_of(encoding.picture_size, size, encoding.predictor.patch_size)
        possible = SIZES[0] <= size <= SIZES[1] and patches <= lab.limits.max_patches
        if scale not in scaled and possible:
            scaled[scale] = look(lab, replace(key, size=size).token)
    features = {scale: half.features for scale, half in scaled.items()}
    scale, found = best_scale(first.features, features, ratio)
    best = scaled[scale].encoding
    grids, sizes = (first.encoding.grid, best.grid), (first.encoding.picture_size, best.picture_size)
    return {
        "matches": matching.matches_as_json(found, grids, sizes),
        "scale": scale,
        "scales": sorted(scaled),
        "encoding": best,
    }


def turned(lab: Lab, name: str) -> str:
    """Turn an image within its frame and keep the copy; return its name.

    The matches of an image with its turned copy can be checked by eye.
    """
    image = Image.fromarray(for_screen(lab.pictures.read(name)))
    copy = image.rotate(TURN_DEGREES, Image.Resampling.BICUBIC, fillcolor=GRAY)
    return lab.pictures.keep(png(np.asarray(copy)))[0]


def direction_bytes(lab: Lab, a: str, b: str) -> bytes:
    """Return vectors whose products are cosines, little-endian float16 [patches of A and of B, D]."""
    first, second = look_at_pair(lab, a, b)
    compared = matching.prepared(first.features.features, second.features.features)
    return np.concatenate([matching.unit_vectors(one) for one in compared]).astype("<f2").tobytes()


@dataclass(frozen=True)
class Scene:
    """A pair with everything that its files show."""

    a: Half
    b: Half
    matches: Matches
    request: PairRequest

    @property
    def grids(self) -> Sides:
        """Rows and columns of patches of both images."""
        return self.a.encoding.grid, self.b.encoding.grid

    def pinned(self) -> Matches:
        """Return every pin with the most similar patch of B; their ratio is 1."""
        compared = matching.prepared(self.a.features.features, self.b.features.features)
        patches = [(pin.row, pin.column) for pin in self.request.pins]
        found = [matching.transfer(*compared, patch) for patch in patches]
        a, b = (np.array(one, np.int64).reshape(-1, 2) for one in (patches, [patch for patch, _ in found]))
        cosines = np.array([cosine for _, cosine in found], np.float32)
        return Matches(a, b.astype(np.float64), cosines, np.ones_like(cosines))


def scene_of(lab: Lab, asked: object) -> Scene:
    """Compute what a view shows; `asked` is a `PairRequest` from a client."""
    request = PairRequest.of(asked)
    a, b = look_at_pair(lab, request.a, request.b)
    rows, columns = a.encoding.grid
    if any(pin.row >= rows or pin.column >= columns for pin in request.pins):
        raise LabError(f"The image's patches end at row {rows - 1}, column {columns - 1}.")
    return Scene(a, b, matches_between(a.features, b.features, request.ratio), request)


def lines_png(scene: Scene) -> bytes:
    """Draw both images side by side, lines between the best matches and, over them, the pinned pairs."""
    pictures = for_screen(scene.a.picture), for_screen(scene.b.picture)
    sizes, most = _sizes(pictures), matching.SHOWN if scene.request.lines else 0
    found = [places[:most] for places in matching.in_pixels(scene.matches, scene.grids, sizes)]
    pins = matching.in_pixels(scene.pinned(), scene.grids, sizes)
    in_a, in_b = (np.concatenate(places) for places in zip(found, pins, strict=True))
    colors = drawing.line_colors(in_a, sizes[0][0])
    for row, pin in enumerate(scene.request.pins, start=len(found[0])):
        colors[row] = np.multiply(to_rgb(pin.color), 255).round()
    return png(drawing.match_lines(*pictures, in_a, in_b, colors))


def matches_json(scene: Scene) -> bytes:
    """Write matches and pinned pairs: y and x in pixels of the images, as `segmentation match` does."""
    where = scene.grids, _sizes((scene.a.picture, scene.b.picture))
    keys = scene.a.encoding.key, scene.b.encoding.key
    a, b = map(clean_name, scene.request.names)
    content = {
        "a": a,
        "b": b,
        "model": keys[0].model,
        "sizes": [key.size for key in keys],
        "ratio": scene.request.ratio,
        "pins": matching.matches_as_json(scene.pinned(), *where),
        "matches": matching.matches_as_json(scene.matches, *where),
    }
    return (json.dumps(content, indent=2) + "\n").encode()


def _sizes(pictures: tuple[Picture, Picture]) -> Sides:
    (a, b) = ((picture.shape[0], picture.shape[1]) for picture in pictures)
    return a, b


FILES: Mapping[str, Callable[[Scene], bytes]] = {"lines.png": lines_png, "matches.json": matches_json}
"""Downloads of a pair by name."""
