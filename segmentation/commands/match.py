"""`python -m segmentation match`: which parts of two photographs look alike to a model."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray

from dino_model import files, images
from dino_model.options import ModelOptions
from dino_model.predictor import AttentionPredictor
from dino_model.weights import LoadedModel
from segmentation import matching, render
from segmentation.commands.attention import parse_point
from segmentation.matching import Features, Matches, Seen
from segmentation.render import Picture

Pair = tuple[Picture, Picture]
MOST_LINES = 100  # more hide the photographs
BLOCKS = 4  # the last ones, whose tokens are compared


@dataclass(frozen=True)
class Match(ModelOptions):
    """Which parts of two photographs look alike: matches, lines between them, colours in common.

    Writes matches.json (pixels y, x in both photographs, cosine, ratio), lines.png (the surest hundred),
    colors.png (three principal components over both), foreground.png (the same of what the first component
    sets apart from the edges); with --point also point.png (how like that point each patch of B is) and the
    point's place in matches.json.
    """

    a: tyro.conf.Positional[Path]
    """A photograph."""
    b: tyro.conf.Positional[Path]
    """Another."""
    output: Path
    """Folder to write to; made if missing."""
    ratio: float = 1.0
    """Up to 1: distance of a match, as a share of its nearest rival's; less keeps fewer and surer ones."""
    scales: tuple[float, ...] = (0.7, 1.0, 1.4)
    """Sizes of B that are tried; the one with most matches is taken."""
    point: Annotated[str | None, tyro.conf.arg(metavar="Y,X")] = None
    """A pixel of A, counted from its top left, to be found in B."""

    def run(self) -> None:
        """Read, encode, match, write, say what was found."""
        point = None if self.point is None else parse_point(self.point)
        if not self.scales or not all(0 < scale <= 8 for scale in self.scales):
            raise ValueError(
                f"--scales is {self.scales}; expected figures above 0, up to 8, such as 0.7 1 1.4"
            )
        pictures = textured(self.a), textured(self.b)
        model = self.load()
        predictor = self.predictor(model=model)
        seen = encoded(predictor, pictures[0])
        a = seen.features
        patch = None if point is None else matching.patch_of(point, a.shape[:2], pictures[0].shape[:2])
        scaled = {scale: encoded(self._at(scale, model), pictures[1]) for scale in sorted(set(self.scales))}
        scale, matches = matching.best_scale(seen, scaled, self.ratio)
        b = scaled[scale].features

        in_a, in_b = (
            matching.centres(cells, one.shape[:2], picture.shape[:2])
            for cells, one, picture in zip((matches.a, matches.b), (a, b), pictures, strict=True)
        )
        self.output.mkdir(parents=True, exist_ok=True)
        (self.output / "point.png").unlink(missing_ok=True)  # of an earlier run
        lines = render.match_lines(*pictures, in_a[:MOST_LINES], in_b[:MOST_LINES])
        render.save_png(self.output / "lines.png", lines)
        self._write_colors(pictures, a, b)
        found = {
            "a": str(self.a),
            "b": str(self.b),
            "model": model.name,
            "ratio": self.ratio,
            "scale": scale,
            "point": None if patch is None else self._write_point(pictures, a, b, point, patch),
            "matches": _as_json(matches, in_a, in_b),
        }
        files.write_text(self.output / "matches.json", json.dumps(found, indent=2) + "\n")
        told = f"{len(matches)} mutual matches, B at {scale:g} of its size"
        hint = "" if len(matches) or self.ratio == 1 else "; a larger --ratio keeps less sure ones"
        print(
            f"{self.output}: {told}{hint}; {model.name}, {predictor.precision} on "
            f"{predictor.device} by {predictor.engine}"
        )

    def _at(self, scale: float, model: LoadedModel) -> AttentionPredictor:
        """What looks at B at a scale; all share the model."""
        return replace(self, size=max(1, round(self.size * scale))).predictor(model=model)

    def _write_colors(self, pictures: Pair, a: Features, b: Features) -> None:
        parts: tuple[tuple[matching.Part, str], ...] = (
            ("all", "colors.png"),
            ("foreground", "foreground.png"),
        )
        for part, name in parts:
            maps = (
                render.color_map(colors, picture.shape[:2])
                for colors, picture in zip(matching.joint_colors(a, b, part), pictures, strict=True)
            )
            render.save_png(self.output / name, render.side_by_side(*maps))

    def _write_point(
        self, pictures: Pair, a: Features, b: Features, point: Any, patch: tuple[int, int]
    ) -> dict[str, Any]:
        a, b = matching.prepared(a, b)
        cell, cosine = matching.transfer(a, b, patch)
        y, x = matching.centres(np.array(cell), b.shape[:2], pictures[1].shape[:2])
        there = (round(float(y)), round(float(x)))
        heat = render.overlay_heat(pictures[1], matching.similarities(a, b, patch))
        marked = (render.draw_point(pictures[0], *point), render.draw_point(heat, *there))
        render.save_png(self.output / "point.png", render.side_by_side(*marked))
        return {"a": point, "b": there, "cosine": round(cosine, 4)}


def textured(path: Path) -> Picture:
    """The photograph at `path`.

    Raises:
        ImageError: not readable.
        ValueError: every pixel has the same colour, so that no part of it looks like anything.
    """
    picture = images.read(path)
    if (picture == picture[0, 0]).all():
        raise ValueError(
            f"{path.name} has no texture, every pixel has the same colour: there is nothing to match"
        )
    return picture


def encoded(predictor: AttentionPredictor, picture: Picture) -> Seen:
    """What a model knows of a photograph's patches: tokens after each of its last `BLOCKS` blocks."""
    predictor.set_image(picture)
    blocks = range(max(0, predictor.blocks - BLOCKS), predictor.blocks)
    features = matching.joined([predictor.token_features(block) for block in blocks])
    return Seen(features, matching.textured_patches(picture, predictor.grid))


def _as_json(
    matches: Matches, in_a: NDArray[np.floating], in_b: NDArray[np.floating]
) -> list[dict[str, Any]]:
    """y and x in both photographs, cosine and ratio."""
    return [
        {
            "a": [round(float(value), 1) for value in here],
            "b": [round(float(value), 1) for value in there],
            "cosine": round(float(cosine), 4),
            "ratio": round(float(ratio), 4),
        }
        for here, there, cosine, ratio in zip(in_a, in_b, matches.cosine, matches.ratio, strict=True)
    ]
