"""`python -m segmentation match`: corresponding parts of two images."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import tyro
from numpy.typing import NDArray

from dino_model.data import images
from dino_model.inference.options import ModelOptions
from dino_model.runtime.batch import BatchCommand, Inputs
from dino_model.runtime.files import write_json
from dino_model.runtime.outputs import OutputFolder
from segmentation import drawing, matching
from segmentation.commands import common
from segmentation.masks import ImageArray, enlarge
from segmentation.matching import Features, MatchFeatures

if TYPE_CHECKING:
    from dino_model.inference.predictor import AttentionPredictor

Pair = tuple[ImageArray, ImageArray]

LINES = 100  # drawn, of the surest matches
PARTS: dict[matching.Part, str] = {"all": "colors.png", "foreground": "foreground.png"}


@dataclass(frozen=True)
class Match(ModelOptions, BatchCommand[Inputs, Pair]):
    """Corresponding parts of two images: matches, lines between them, common colors.

    Writes matches.json (pixels y, x in both images, cosine, ratio) and lines.png (the 100 surest matches).
    Writes colors.png (three principal components over both images) and foreground.png. The foreground is the
    side of the first component that touches the edges less. With --point also writes point.png (similarity of
    each patch of B) and the corresponding point in matches.json.
    """

    a: tyro.conf.Positional[Path]
    """First image."""
    b: tyro.conf.Positional[Path]
    """Second image."""
    ratio: float = 1.0
    """Largest distance of a match relative to its nearest rival, above 0 and up to 1; less keeps fewer,
    surer matches."""
    point: Annotated[str | None, tyro.conf.arg(metavar="Y,X")] = None
    """Pixel of A, counted from its top left, to find in B."""

    kind: ClassVar[str] = "pairs"

    @cached_property
    def _point(self) -> tuple[int, int] | None:
        return common.parse_point(self.point)

    @cached_property
    def _predictor(self) -> "AttentionPredictor":
        return self.predictor()

    def items(self) -> list[Inputs]:
        """Check the options; the pair is one item."""
        if not 0 < self.ratio <= 1:
            raise ValueError(f"--ratio is {self.ratio}; expected above 0 and up to 1, such as 0.7")
        return [Inputs(f"{self.a.name} and {self.b.name}", [self.a, self.b])]

    def settings(self) -> dict[str, Any]:
        """Describe the model."""
        return common.model_settings(self._predictor) | {"ratio": self.ratio, "point": self._point}

    def read(self, item: Inputs) -> Pair:
        """Read both images."""
        return _read_textured(self.a), _read_textured(self.b)

    def compute(self, item: Inputs, loaded: Pair, output: OutputFolder) -> str:
        """Encode, match, write; record a sentence."""
        predictor, point = self._predictor, self._point
        encoded = _encode(predictor, loaded[0])
        patch = point and predictor.patch_at(*point)
        sizes = {scale: max(1, round(self.size * scale)) for scale in matching.SCALES}
        scaled = {scale: _encode(predictor.at(size), loaded[1]) for scale, size in sizes.items()}
        scale, matches = matching.best_scale(encoded, scaled, self.ratio)
        a, b = encoded.features, scaled[scale].features
        sides = (a.shape[:2], b.shape[:2]), (loaded[0].shape[:2], loaded[1].shape[:2])
        in_a, in_b = (places[:LINES] for places in matching.in_pixels(matches, *sides))
        drawing.save_image(output.path("lines.png"), drawing.match_lines(*loaded, in_a, in_b))
        for part, name in PARTS.items():
            drawing.save_image(output.path(name), _draw_colors(loaded, matching.joint_colors(a, b, part)))
        results = {
            "a": str(self.a),
            "b": str(self.b),
            "model": predictor.model.name,
            "ratio": self.ratio,
            "scale": scale,
            "point": None,
            "matches": matching.matches_as_json(matches, *sides),
        }
        if point and patch:
            drawn, results["point"] = _find_point(loaded, a, b, point, patch)
            drawing.save_image(output.path("point.png"), drawn)
        write_json(output.path("matches.json"), results)
        hint = "" if len(matches) or self.ratio == 1 else "; a larger --ratio keeps more"
        return (
            f"{len(matches)} mutual matches; image B was resized to {scale:g} of its size{hint}; "
            f"{predictor.model.name}, {predictor.precision} on {predictor.device}"
        )

    def finish(self, items: Sequence[Inputs], output: OutputFolder) -> dict[str, Any]:
        """Print the number of matches; the results are those of matches.json."""
        print(f"{self.output}: {output.finished[items[0].name]}")
        content: dict[str, Any] = json.loads((output.folder / "matches.json").read_text())
        return content


def _draw_colors(pair: Pair, colors: Sequence[NDArray[np.float32]]) -> ImageArray:
    """Enlarge colors in [0, 1] of both images' patches, [rows, columns, 3], and put them in a row."""
    planes = (np.moveaxis(each, -1, 0) for each in colors)
    enlarged = (enlarge(each, image.shape[:2]) for each, image in zip(planes, pair, strict=True))
    scaled = ((255 * np.moveaxis(each, 0, -1)).round().astype(np.uint8) for each in enlarged)
    return drawing.side_by_side(*scaled)


def _find_point(
    pair: Pair, a: Features, b: Features, point: tuple[int, int], patch: tuple[int, int]
) -> tuple[ImageArray, dict[str, Any]]:
    """Find the patch of B most similar to a patch of A; returns a drawing and the entry of the JSON file."""
    cosines = matching.similarities(*matching.prepare_pair(a, b), patch)
    cell = np.divmod(cosines.argmax(), cosines.shape[1])
    y, x = matching.centers(np.array(cell), cosines.shape, pair[1].shape[:2])
    target = (round(float(y)), round(float(x)))
    heat = drawing.draw_point(drawing.overlay_heat(pair[1], cosines), *target)
    sheet = drawing.side_by_side(drawing.draw_point(pair[0], *point), heat)
    return sheet, {"a": point, "b": target, "cosine": round(float(cosines.max()), 4)}


def _encode(predictor: "AttentionPredictor", image: ImageArray) -> MatchFeatures:
    predictor.set_image(predictor.check_patches(image))
    return matching.match_features(predictor, image)


def _read_textured(path: Path) -> ImageArray:
    image = images.read(path, name=str(path))
    if matching.is_flat(image):
        raise ValueError(f"{path} has no texture: every pixel has the same color; pass another image")
    return image
