"""Photographs matched with themselves, turned, scaled and warped: how many matches lie where they should.

python -m benchmarks.matching [--json FILE]

Each photograph is turned by 10, 20 and 30 degrees and scaled by 0.7 and 1.4 about its middle, the rest of
the frame filled with the mean colour. A match is right within one patch of the truth: a patch of B's grid,
at the scale that matched best. PCK is over smooth random warps: the share of patches whose nearest lies
within a tenth of the photograph's larger side. The same is asked of random weights of the same architecture
and of the colours of the patches. No model was trained on these pictures.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import tyro
from numpy.typing import NDArray

from dino_model import photographs
from dino_model.files import make_room, write_text
from dino_model.predictor import AttentionPredictor
from segmentation import matching
from segmentation.matching import Features, ImageFeatures

Picture = NDArray[np.uint8]
Encode = Callable[
    [Picture, float], ImageFeatures
]  # a photograph, and how much larger than usual it is looked at
Places = NDArray[np.float64]  # y and x [..., 2]

TURNS: dict[str, tuple[float, float]] = {  # degrees, scale
    "turned 10": (10, 1),
    "turned 20": (20, 1),
    "turned 30": (30, 1),
    "scaled 0.7": (0, 0.7),
    "scaled 1.4": (0, 1.4),
}
PCK = 0.1
PATCH = 8  # of the colours


class Scene(NamedTuple):
    """A photograph and what became of it."""

    a: Picture
    b: Picture
    moved: Callable[[Places], Places]  # y and x in `a` -> in `b`


class Score(NamedTuple):
    """Of one pair."""

    matches: int  # mutual, under the ratio
    right: int
    pck: float | None  # of a warp


@dataclass(frozen=True)
class Matching:
    """How many matches between a photograph and what became of it are right."""

    model: str = "embedded"
    """Name of a model, checkpoint file or run."""
    size: int = 480
    """Pixels of the short side that the model sees."""
    ratio: float = 1.0
    """As in `segmentation match`."""
    pictures: int = 4
    """Photographs, evenly chosen among the tracked ones; each takes a core a minute and a half."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Match all, print a table, write."""
        make_room(self.json)
        names = photographs.names()
        chosen = [photographs.picture(names[i * len(names) // self.pictures]) for i in range(self.pictures)]
        scenes = {
            **{name: [turned(a, *how) for a in chosen] for name, how in TURNS.items()},
            "warped": [warped(a, seed) for seed, a in enumerate(chosen)],
        }
        encoders: dict[str, Encode] = {
            self.model: by_model(self.model, self.size),
            "random weights": by_model("random:embedded", self.size),
            "colour patches": partial(colours, size=self.size),
        }
        print(f"{self.pictures} photographs, short side {self.size}, ratio {self.ratio:g}, within one patch")
        print(f"{'':<16}" + "".join(f"{name:>24}" for name in scenes) + f"{'PCK 0.1':>10}")
        figures: dict[str, dict[str, dict[str, float]]] = {}
        for who, encode in encoders.items():
            scores = {
                name: [scored(scene, encode, self.ratio) for scene in of] for name, of in scenes.items()
            }
            figures[who] = {name: summed(of) for name, of in scores.items()}
            cells = [
                f"{100 * one['right']:.0f} % ({100 * one['least_right']:.0f}) "
                f"of {one['matches']:.0f} ({one['fewest']:.0f})"
                for one in figures[who].values()
            ]
            pck = figures[who]["warped"]["pck"]
            print(f"{who:<16}" + "".join(f"{cell:>24}" for cell in cells) + f"{100 * pck:>9.1f}%", flush=True)
        print("share within one patch of the truth (a patch of B's grid at the scale that matched best),")
        print("of so many matches a pair; in brackets the least share and the fewest matches of a pair")
        if self.json is not None:
            settings = {"size": self.size, "ratio": self.ratio, "pictures": self.pictures}
            write_text(
                self.json, json.dumps({"name": "matching", **settings, "scores": figures}, indent=2) + "\n"
            )


def by_model(name: str, size: int) -> Encode:
    """What `segmentation match` compares."""
    predictor = AttentionPredictor(name, size=size, device="cpu")
    predictors = {scale: predictor.at(round(size * scale)) for scale in matching.SCALES}
    seen: dict[
        tuple[int, float], ImageFeatures
    ] = {}  # a photograph is looked at once for all that becomes of it

    def look(picture: Picture, scale: float) -> ImageFeatures:
        predictors[scale].set_image(picture)
        return matching.image_features(predictors[scale], picture)

    def remember(picture: Picture, scale: float) -> ImageFeatures:
        if scale != 1:
            return look(picture, scale)
        key = (hash(picture.tobytes()), scale)
        if key not in seen:
            seen[key] = look(picture, scale)
        return seen[key]

    return remember


def colours(picture: Picture, scale: float, size: int) -> ImageFeatures:
    """Red, green and blue of the pixels of each patch, 3 * patch * patch figures."""
    factor = size * scale / min(picture.shape[:2]) / PATCH
    rows, columns = (max(1, round(side * factor)) for side in picture.shape[:2])
    small = cv2.resize(picture, (columns * PATCH, rows * PATCH), interpolation=cv2.INTER_AREA)
    cut = small.reshape(rows, PATCH, columns, PATCH, 3).transpose(0, 2, 1, 3, 4)
    features = cut.reshape(rows, columns, -1).astype(np.float32)
    return ImageFeatures(features, matching.textured_patches(picture, (rows, columns)))


def turned(a: Picture, degrees: float, scale: float) -> Scene:
    """A photograph turned and scaled about its middle, in the same frame."""
    height, width = a.shape[:2]
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), degrees, scale)
    fill = tuple(float(part) for part in a.mean(axis=(0, 1)))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    b = cv2.warpAffine(
        a, matrix, (width, height), flags=how, borderMode=cv2.BORDER_CONSTANT, borderValue=fill
    )

    def moved(places: Places) -> Places:
        return (places[..., ::-1] @ matrix[:, :2].T + matrix[:, 2])[..., ::-1]

    return Scene(a, np.asarray(b, np.uint8), moved)


def warped(a: Picture, seed: int, strength: float = 0.12, knots: int = 4) -> Scene:
    """A photograph bent smoothly: each pixel of B shows one of A up to `strength` / 2 of a side away."""
    height, width = a.shape[:2]
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(-strength, strength, (knots, knots, 2)).astype(np.float32) * min(height, width) / 2
    bend = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)  # y and x
    y, x = np.mgrid[:height, :width].astype(np.float32)
    b = cv2.remap(a, x + bend[..., 1], y + bend[..., 0], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)

    def moved(places: Places) -> Places:
        there = places.copy()
        for _ in range(20):  # B at `there` shows A at there + bend(there): solved by repetition
            at = there.round().astype(int).clip(0, (height - 1, width - 1))
            there = places - bend[at[..., 0], at[..., 1]]
        return there

    return Scene(a, np.asarray(b, np.uint8), moved)


def scored(scene: Scene, encode: Encode, ratio: float) -> Score:
    """Matches of one pair, judged by where they should lie."""
    a = encode(scene.a, 1.0)
    scaled = {scale: encode(scene.b, scale) for scale in matching.SCALES}
    scale, matches = matching.best_scale(a, scaled, ratio)
    grid = scaled[scale].features.shape[:2]
    size, patch = scene.a.shape[:2], scene.b.shape[0] / grid[0]
    expected = scene.moved(matching.centers(matches.a, a.features.shape[:2], size))
    off = np.abs(expected - matching.centers(matches.b, grid, size)).max(axis=-1)
    return Score(len(matches), int((off <= patch).sum()), pck(scene, a.features, scaled[1.0].features))


def pck(scene: Scene, a: Features, b: Features) -> float:
    """Share of A's patches, of those still in B, whose nearest in B lies within `PCK` of the larger side."""
    size = scene.a.shape[:2]
    cells = np.stack(np.divmod(np.arange(a.shape[0] * a.shape[1]), a.shape[1]), axis=-1)
    expected = scene.moved(matching.centers(cells, a.shape[:2], size))
    inside = ((expected >= 0) & (expected <= np.array(size) - 1)).all(axis=-1)
    patch = matching.nearest(*matching.prepared(a, b)).patch
    found = matching.centers(np.stack(np.divmod(patch, b.shape[1]), axis=-1), b.shape[:2], size)
    off = np.linalg.norm(found - expected, axis=-1)
    return float((off[inside] <= PCK * max(size)).mean())


def summed(scores: list[Score]) -> dict[str, float]:
    """Share of all matches that is right, matches a pair, fewest and least right of a pair, mean PCK."""
    matches = sum(score.matches for score in scores)
    return {
        "right": sum(score.right for score in scores) / matches if matches else 0.0,
        "matches": matches / len(scores),
        "fewest": min(score.matches for score in scores),
        "least_right": min(score.right / max(1, score.matches) for score in scores),
        "pck": float(np.mean([score.pck for score in scores])),
    }


if __name__ == "__main__":
    tyro.cli(Matching, prog="python -m benchmarks.matching").run()
