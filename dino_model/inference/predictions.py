"""Predictions of own images as a table: path, class, score, and nearest training images of k-NN."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from dino_model.runtime.files import printable, write_csv

NEAREST = 5
"""Training images in a row of k-NN."""
MIN_PROBABILITY = 0.5
"""Least probability of a predicted class, where an image can have several."""


def write_predictions(
    path: Path,
    names: Sequence[str],
    probabilities: Tensor,
    classes: Sequence[str],
    *,
    several: bool = False,
    nearest: Sequence[Sequence[str]] | None = None,
) -> None:
    """Write a row for each image: its path, the most probable class and its probability.

    Args:
        path: CSV file.
        names: Paths of the images.
        probabilities: [images, classes].
        classes: Their names.
        several: Write all classes of at least `MIN_PROBABILITY`, joined by "|" like their scores.
        nearest: Paths of the nearest training images of each image, nearest first.
    """
    header = ["path", "class", "score"]
    if nearest is not None:
        header += [f"nearest_{rank}" for rank in range(1, len(nearest[0]) + 1)]
    rows = []
    for number, (name, row) in enumerate(zip(names, probabilities.tolist(), strict=True)):
        order = sorted(range(len(row)), key=lambda index: -row[index])
        chosen = [index for index in order if row[index] >= MIN_PROBABILITY] if several else order[:1]
        found = ["|".join(classes[i] for i in chosen), "|".join(f"{row[i]:.4f}" for i in chosen)]
        others = map(printable, nearest[number]) if nearest is not None else ()
        rows.append([printable(name), *found, *others])
    write_csv(path, [header, *rows])
