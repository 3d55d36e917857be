"""`python -m segmentation match`: corresponding parts of two images."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from dino_model import images
from dino_model.files import write_json
from dino_model.options import ModelOptions
from dino_model.outputs import OutputFolder, OutputOptions
from segmentation import drawing, matching
from segmentation.commands import common
from segmentation.masks import ImageArray, enlarge
from segmentation.matching import Features, ImageFeatures

if TYPE_CHECKING:
    from dino_model.predictor import AttentionPredictor

Pair = tuple[ImageArray, ImageArray]


@dataclass(frozen=True)
class Match(ModelOptions, OutputOptions):
    """Corresponding parts of two images: matches, lines between them, common colors.

    Writes matches.json (pixels y, x in both images, cosine, ratio), lines.png (the hundred surest matches),
    colors.png (three principal components over both), foreground.png (the same within the side of the first
    component that touches the edges less); with --point also point.png (similarity of each patch of B) and
    the corresponding point in matches.json.
    """

    a: tyro.conf.Positional[Path]
    """First image."""
    b: tyro.conf.Positional[Path]
    """Second image."""
    ratio: float = 1.0
    """Largest distance of a match relative to its nearest rival, above 0 and up to 1; less keeps fewer,
    surer matches."""
    scales: tuple[float, ...] = matching.SCALES
    """Relative sizes of B that are tried; the one with most matches is taken."""
    point: Annotated[str | None, tyro.conf.arg(metavar="Y,X")] = None
    """Pixel of A, counted from its top left, to find in B."""

    def run(self) -> None:
        """Read, encode, match, write."""
        if not self.scales or not all(0 < scale <= 8 for scale in self.scales):
            raise ValueError(
                f"--scales is {self.scales}; expected values above 0, up to 8, such as 0.7 1 1.4"
            )
        matching.check_ratio(self.ratio, "--ratio")
        point = None if self.point is None else common.parse_point(self.point)
        self.check_output()
        pair = _read_textured(self.a), _read_textured(self.b)
        if point is not None:
            common.check_point(point, pair[0])
        predictor = self.predictor()
        options = {"ratio": self.ratio, "scales": self.scales, "point": self.point}
        output = self.open_output(common.model_settings(predictor) | options)
        name = f"{self.a.name} and {self.b.name}"
        if output.has(name, [self.a, self.b]):
            print(f"{self.output} is finished already")
            return
        encoded = _encode(predictor, pair[0])
        scaled = {
            scale: _encode(predictor.at(max(1, round(self.size * scale))), pair[1])
            for scale in sorted(set(self.scales))
        }
        scale, matches = matching.best_scale(encoded, scaled, self.ratio)
        a, b = encoded.features, scaled[scale].features
        grids, sizes = (a.shape[:2], b.shape[:2]), (pair[0].shape[:2], pair[1].shape[:2])
        in_a, in_b = (each[: matching.SHOWN] for each in matching.in_pixels(matches, grids, sizes))
        colors = drawing.line_colors(in_a, pair[0].shape[0])
        drawing.save_image(output.path("lines.png"), drawing.match_lines(*pair, in_a, in_b, colors))
        _write_colors(output, pair, a, b)
        found = {
            "a": str(self.a),
            "b": str(self.b),
            "model": predictor.model.name,
            "ratio": self.ratio,
            "scale": scale,
            "point": None if point is None else _write_point(output, pair, a, b, point),
            "matches": matching.matches_as_json(matches, grids, sizes),
        }
        file = output.path("matches.json")
        write_json(file, found)
        output.add(name, inputs=[self.a, self.b], files=[file])
        output.finish()
        hint = "" if len(matches) or self.ratio == 1 else "; a larger --ratio keeps more"
        print(
            f"{self.output}: {len(matches)} mutual matches, B at {scale:g} of its size{hint}; "
            f"{predictor.model.name}, {predictor.precision} on {predictor.device}"
        )


def _write_colors(output: OutputFolder, pair: Pair, a: Features, b: Features) -> None:
    parts: tuple[tuple[matching.Part, str], ...] = (("all", "colors.png"), ("foreground", "foreground.png"))
    for part, name in parts:
        maps = [
            np.moveaxis(enlarge(np.moveaxis(colors, -1, 0), image.shape[:2]), 0, -1)
            for colors, image in zip(matching.joint_colors(a, b, part), pair, strict=True)
        ]
        drawn = drawing.side_by_side(*[(255 * colors).round().astype(np.uint8) for colors in maps])
        drawing.save_image(output.path(name), drawn)


def _write_point(
    output: OutputFolder, pair: Pair, a: Features, b: Features, point: tuple[int, int]
) -> dict[str, Any]:
    patch = matching.patch_of(point, a.shape[:2], pair[0].shape[:2])
    a, b = matching.prepared(a, b)
    cell, cosine = matching.transfer(a, b, patch)
    y, x = matching.centers(np.array(cell), b.shape[:2], pair[1].shape[:2])
    target = (round(float(y)), round(float(x)))
    heat = drawing.overlay_heat(pair[1], matching.similarities(a, b, patch))
    marked = (drawing.draw_point(pair[0], *point), drawing.draw_point(heat, *target))
    drawing.save_image(output.path("point.png"), drawing.side_by_side(*marked))
    return {"a": point, "b": target, "cosine": round(cosine, 4)}


def _encode(predictor: "AttentionPredictor", image: ImageArray) -> ImageFeatures:
    predictor.set_image(common.check_patches(image, predictor))
    return matching.image_features(predictor, image)


def _read_textured(path: Path) -> ImageArray:
    """Read an image; raises ValueError if all pixels have the same color."""
    image = images.read(path, name=str(path))
    if matching.is_flat(image):
        raise ValueError(
            f"{path} has no texture, every pixel has the same color; pass an image with something to match"
        )
    return image
