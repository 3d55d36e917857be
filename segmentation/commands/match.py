"""`python -m segmentation match`: which parts of two photographs look alike to a model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from dino_model import files, images
from dino_model.options import ModelOptions
from dino_model.predictor import AttentionPredictor
from segmentation import matching, render
from segmentation.commands.attention import parse_point
from segmentation.matching import Features, Seen
from segmentation.render import Picture

Pair = tuple[Picture, Picture]


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
    scales: tuple[float, ...] = matching.SCALES
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
        predictor = self.predictor()
        seen = _look(predictor, pictures[0])
        a = seen.features
        patch = None if point is None else matching.patch_of(point, a.shape[:2], pictures[0].shape[:2])
        scaled = {
            scale: _look(predictor.at(max(1, round(self.size * scale))), pictures[1])
            for scale in sorted(set(self.scales))
        }
        scale, matches = matching.best_scale(seen, scaled, self.ratio)
        b = scaled[scale].features
        about = (a.shape[:2], b.shape[:2]), (pictures[0].shape[:2], pictures[1].shape[:2])

        self.output.mkdir(parents=True, exist_ok=True)
        (self.output / "point.png").unlink(missing_ok=True)  # of an earlier run
        in_a, in_b = (one[: matching.SHOWN] for one in matching.in_pixels(matches, *about))
        colors = render.line_colors(in_a, pictures[0].shape[0])
        lines = render.match_lines(*pictures, in_a, in_b, colors)
        render.save_png(self.output / "lines.png", lines)
        self._write_colors(pictures, a, b)
        found = {
            "a": str(self.a),
            "b": str(self.b),
            "model": predictor.model.name,
            "ratio": self.ratio,
            "scale": scale,
            "point": None if patch is None else self._write_point(pictures, a, b, point, patch),
            "matches": matching.listed(matches, *about),
        }
        files.write_text(self.output / "matches.json", json.dumps(found, indent=2) + "\n")
        told = f"{len(matches)} mutual matches, B at {scale:g} of its size"
        hint = "" if len(matches) or self.ratio == 1 else "; a larger --ratio keeps less sure ones"
        print(
            f"{self.output}: {told}{hint}; {predictor.model.name}, {predictor.precision} on "
            f"{predictor.device}"
        )

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


def _look(predictor: AttentionPredictor, picture: Picture) -> Seen:
    predictor.set_image(picture)
    return matching.look(predictor, picture)


def textured(path: Path) -> Picture:
    """The photograph at `path`.

    Raises:
        ImageError: not readable.
        ValueError: every pixel has the same colour, so that no part of it looks like anything.
    """
    picture = images.read(path)
    if matching.is_flat(picture):
        raise ValueError(
            f"{path.name} has no texture, every pixel has the same colour: there is nothing to match"
        )
    return picture
