"""Patch features in bf16 against fp32, and what that changes in the labels carried through real video.

python -m benchmarks.precision --data DAVIS [--json FILE]
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import tyro

from benchmarks.measure import Result, median_seconds, report
from dino_model import images
from dino_model.predictor import AttentionPredictor
from dino_model.weights import load_model
from segmentation.datasets import Clip, open_davis, read_first_mask
from segmentation.masks import ImageArray
from segmentation.propagation import DINO, Labels, official_std, propagate_frames

ALLOWED = 0.001  # share of a frame's pixels whose label may differ


@dataclass(frozen=True)
class Precision:
    """Features of one frame in bf16 and in fp32; labels of the first frames of every sequence from both."""

    data: Path
    """A folder in the layout of DAVIS-2017."""
    model: str = "embedded"
    """Name of a model, checkpoint file or run."""
    frames: int = 12
    """Frames of each sequence."""
    repeats: int = 3
    """Timed turns of each side."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Label with both, count what differs, measure, print."""
        model = load_model(self.model)
        fast, exact = (
            AttentionPredictor(
                model, resize="davis", precision=precision, device="cpu", std=official_std(model, DINO)
            )
            for precision in ("bf16", "fp32")
        )
        davis = open_davis(self.data)
        clips = [davis.clip(name) for name in davis.sequences]
        changed = {clip.name: changed_labels(clip, fast, exact, self.frames) for clip in clips}
        picture = images.read(clips[0].frames[0])
        seconds, reference_seconds = median_seconds(
            partial(fast.features, [picture]), partial(exact.features, [picture]), self.repeats
        )
        remarks = (
            f"{fast.model.name} on a {picture.shape[1]} × {picture.shape[0]} frame, one at a time",
            *(
                f"{name}: bf16 changes {shares.mean():.3%} of the labels, at most {shares.max():.3%} in one "
                f"of {len(shares)} frames (allowed {ALLOWED:.1%})"
                for name, shares in changed.items()
            ),
        )
        report(Result("precision", seconds, reference_seconds, remarks=remarks), self.json)


def changed_labels(
    clip: Clip, fast: AttentionPredictor, exact: AttentionPredictor, frames: int
) -> np.ndarray:
    """Share of pixels with another label, for each frame after the first."""
    mask = read_first_mask(clip)
    pairs = zip(*(propagate_frames(first(clip, frames), mask, model) for model in (fast, exact)), strict=True)
    return np.array([share(*pair) for pair in islice(pairs, 1, None)])


def first(clip: Clip, frames: int) -> Iterator[ImageArray]:
    """The first frames of a clip."""
    return (images.read(file) for file in clip.frames[:frames])


def share(labels: Labels, others: Labels) -> float:
    """Share of pixels that differ."""
    return float((labels != others).mean())


if __name__ == "__main__":
    tyro.cli(Precision).run()
