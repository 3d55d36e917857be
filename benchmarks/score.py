"""J and F of 20 synthetic 480p sequences, against an evaluator that holds a whole sequence as arrays.

python -m benchmarks.score [--json FILE]
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, hypot
from pathlib import Path

import cv2
import numpy as np
import tyro
from numpy.typing import NDArray
from PIL import Image

from benchmarks.measure import Benchmark, Computation
from segmentation.davis_eval import score_folders
from segmentation.labels import write_mask_png

HEIGHT, WIDTH = 480, 854
OBJECTS = 2
AGREEMENT = 1e-9
FOLDER = Path(tempfile.gettempdir()) / "dino-benchmark-masks"

Figures = dict[str, NDArray[np.float64]]  # J and F of each object: [2, frames]


@dataclass(frozen=True, kw_only=True)
class Score(Benchmark):
    """Region similarity and contour accuracy of palette PNGs: frame by frame against whole arrays."""

    sequences: int = 20
    """Sequences of two objects."""
    frames: int = 20
    """Length of each."""
    repeats: int = 1
    """Timed turns of each side, after one to warm up."""

    def package(self) -> Callable[[], Figures]:
        """Score frame by frame, as the command does."""

        def score() -> Figures:
            scores = score_folders(FOLDER / "truth", FOLDER / "guess")["per_object"]
            return {name: np.array([each["J"], each["F"]]) for name, each in scores.items()}

        return score

    def peers(self) -> dict[str, tuple[Computation, Computation]]:
        """Score frame by frame, and whole sequences."""
        return {"whole arrays": (self.package(), plain)}

    def compare(self) -> tuple[str, ...]:
        """Draw the masks and compare all scores."""
        shutil.rmtree(FOLDER, ignore_errors=True)
        draw(self.sequences, self.frames)
        computed, expected = self.package()(), plain()
        difference = max(float(np.abs(computed[name] - expected[name]).max()) for name in expected)
        if difference > AGREEMENT:
            raise SystemExit(f"scores differ by {difference:.1e}, expected at most {AGREEMENT:.0e}")
        return (
            f"{self.sequences} sequences of {OBJECTS} objects, {self.frames} frames at {WIDTH} × {HEIGHT}",
            f"largest difference of a J or F: {difference:.1e} (allowed {AGREEMENT:.0e})",
        )


def draw(sequences: int, frames: int) -> None:
    """Write `truth` and `guess`: moving ellipses with a wavy outline, the guess displaced by a few pixels."""
    rng = np.random.default_rng(0)
    for sequence in range(sequences):
        starts = rng.uniform((120, 200), (360, 650), (OBJECTS, 2))
        steps = rng.uniform(-3, 3, (OBJECTS, 2))
        radii = rng.uniform(40, 110, (OBJECTS, 2))
        for frame in range(frames):
            centers = starts + frame * steps
            for name, jitter in (("truth", 0.0), ("guess", 4.0)):
                folder = FOLDER / name / f"{sequence:02d}"
                folder.mkdir(parents=True, exist_ok=True)
                labels = np.zeros((HEIGHT, WIDTH), np.uint8)
                for label, (center, radius) in enumerate(zip(centers, radii, strict=True), start=1):
                    outline = wavy_outline(
                        center + rng.normal(0, jitter or 1e-9, 2), radius, label + sequence
                    )
                    cv2.fillPoly(labels, [outline], label)
                write_mask_png(folder / f"{frame:05d}.png", labels)


def wavy_outline(center: NDArray[np.float64], radius: NDArray[np.float64], waves: int) -> NDArray[np.int32]:
    """Compute the corners (x, y) of a polygon, int32 [360, 2]."""
    angle = np.linspace(0, 2 * np.pi, 360, endpoint=False)
    length = 1 + 0.15 * np.sin((3 + waves % 9) * angle)
    y, x = center[0] + radius[0] * length * np.sin(angle), center[1] + radius[1] * length * np.cos(angle)
    return np.stack([x, y], axis=1).round().astype(np.int32)


def plain() -> Figures:
    """Score from float64 masks of whole sequences."""
    figures = {}
    for folder in sorted((FOLDER / "truth").iterdir()):
        truth, guess = (read_masks(FOLDER / kind / folder.name) for kind in ("truth", "guess"))
        for index in range(OBJECTS):
            region = region_similarity(truth[index], guess[index])
            boundary = [contour_accuracy(*pair) for pair in zip(guess[index], truth[index], strict=True)]
            figures[f"{folder.name}_{index + 1}"] = np.stack([region, boundary])
    return figures


def read_masks(folder: Path) -> NDArray[np.float64]:
    """Read masks of all objects and scored frames: float64 [objects, frames, H, W], 0 or 1."""
    files = sorted(folder.glob("*.png"))[1:-1]
    labels = np.stack([np.array(Image.open(file)) for file in files]).astype(np.float64)
    return np.stack([labels == label for label in range(1, OBJECTS + 1)]).astype(np.float64)


def region_similarity(truth: NDArray[np.float64], guess: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute J of every frame."""
    a, b = truth.astype(bool), guess.astype(bool)
    intersection, union = (a & b).sum((1, 2)), (a | b).sum((1, 2))
    return np.where(union == 0, 1.0, intersection / np.maximum(union, 1))


def contour_accuracy(guess: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    """Compute F of one frame with both contours dilated over the whole image."""
    radius = ceil(0.008 * hypot(*truth.shape))
    y, x = np.ogrid[-radius : radius + 1, -radius : radius + 1]
    disk = (x**2 + y**2 <= radius**2).astype(np.uint8)
    lines = [boundary(mask.astype(bool)) for mask in (guess, truth)]
    wide = [cv2.dilate(line.astype(np.uint8), disk).astype(bool) for line in lines]
    counts = [int(line.sum()) for line in lines]
    if not all(counts):
        return float(counts[0] == counts[1])
    precision, recall = (lines[0] & wide[1]).sum() / counts[0], (lines[1] & wide[0]).sum() / counts[1]
    return float(2 * precision * recall / (precision + recall)) if precision + recall else 0.0


def boundary(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark pixels that differ from their right, lower or lower-right neighbor; edges are repeated."""
    padded = np.pad(mask, ((0, 1), (0, 1)), mode="edge")
    return (mask ^ padded[:-1, 1:]) | (mask ^ padded[1:, :-1]) | (mask ^ padded[1:, 1:])


if __name__ == "__main__":
    tyro.cli(Score).run()
