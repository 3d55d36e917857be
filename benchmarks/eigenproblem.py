"""The cut of a graph of 3,600 patches: block Lanczos against the dense solver for generalised eigenproblems.

python -m benchmarks.eigenproblem [--json FILE]
"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import tyro
from skimage import data

from benchmarks.measure import Computation, measure, report
from segmentation.discovery import affinity, second_eigenvector, second_eigenvector_dense

PATCH = 8
SIDE = 60  # patches: a ViT/8 at 480 × 480
TAU = 0.2


@dataclass(frozen=True)
class Eigenproblem:
    """The eigenvector by which TokenCut cuts a picture, ours against scipy's dense solver."""

    repeats: int = 3
    """Timed turns of each side."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Compare both cuts, measure, print."""
        remarks = compare()
        result = measure("eigenproblem", build_ours, build_reference, repeats=self.repeats, remarks=remarks)
        report(result, self.json)


def compare() -> tuple[str, ...]:
    """What to say of how far both cuts agree.

    Raises:
        SystemExit: they put a patch on different sides.
    """
    weights = graph()
    ours, dense = second_eigenvector(weights), second_eigenvector_dense(weights)
    sides = (ours > ours.mean()) == (dense > dense.mean())
    different = int(min(sides.sum(), (~sides).sum()))  # the sign of an eigenvector is free
    if different:
        raise SystemExit(f"the cuts differ in {different} of {len(weights)} patches, expected none")
    cosine = abs(ours @ dense) / np.linalg.norm(dense)
    return (f"{len(weights):,} patches, same cut, cosine of the eigenvectors {cosine:.12f}",)


def graph() -> np.ndarray:
    """Patch graph of a photograph, by random projections of its colours: float64 [3600, 3600]."""
    photo = cv2.resize(data.coffee(), (SIDE * PATCH, SIDE * PATCH), interpolation=cv2.INTER_AREA)
    patches = photo.reshape(SIDE, PATCH, SIDE, PATCH, 3).swapaxes(1, 2).reshape(SIDE * SIDE, -1) / 255
    projection = np.random.default_rng(0).standard_normal((patches.shape[1], 128))
    return affinity(np.tanh((patches - patches.mean(axis=0)) @ projection), TAU)


def build_ours() -> Computation:
    """Block Lanczos on the graph, ready to run."""
    weights = graph()
    return lambda: second_eigenvector(weights)


def build_reference() -> Computation:
    """The dense solver on the graph, ready to run."""
    weights = graph()
    return lambda: second_eigenvector_dense(weights)


if __name__ == "__main__":
    tyro.cli(Eigenproblem, prog="python -m benchmarks.eigenproblem").run()
