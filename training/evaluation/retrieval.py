"""Image retrieval with frozen features: revisited Oxford and Paris (section 4.2.1).

Source of the benchmark: Radenović et al. 2018; metrics as the released code computes them, on arrays.
"""

import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from dino_model.data.classes import Row
from dino_model.data.collection import Images, make_table
from dino_model.data.framing import Box
from dino_model.models.load import LoadedModel
from training.evaluation.options import LandmarkName, Retrieval
from training.evaluation.run import Metrics, evaluate_models, extract, framing_of

PRECISION_RANKS = (1, 5, 10)
SCALES = (1.0, 2**-0.5, 0.5)
SOURCE = (
    "http://cmp.felk.cvut.cz/revisitop (roxford5k: 5,063 images, about 2 GB; rparis6k: 6,392, about 3 GB)"
)
_SAFE_GLOBALS = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("_codecs", "encode"),
}  # what arrays are pickled with

Ranks = NDArray[np.int64]


class Relevance(NamedTuple):
    """Relevant images of one query: numbers of database images."""

    easy: tuple[int, ...]
    hard: tuple[int, ...]
    junk: tuple[int, ...]


@dataclass(frozen=True)
class RetrievalResult:
    """Quality of rankings in percent; queries without a relevant image do not count."""

    map: float
    """Mean average precision."""
    precision: tuple[float, ...]
    """Mean precision at `PRECISION_RANKS`, or at the rank of the last relevant image if that is smaller."""
    queries: int

    def __str__(self) -> str:
        means = zip(PRECISION_RANKS, self.precision, strict=True)
        precisions = ", ".join(f"mP@{rank} {value:.1f}" for rank, value in means)
        return f"mAP {self.map:.1f} %, {precisions} ({self.queries} queries)"


def ranks_of(similarity: Tensor, wanted: Sequence[Sequence[int]]) -> list[Ranks]:
    """Compute the ranks, from 0, of database images in the rankings of queries.

    Of equal similarities the image with the smaller number ranks first.

    Args:
        similarity: [queries, database].
        wanted: Numbers of images for each query. Their ranks are returned in this order.
    """
    from scipy.stats import rankdata  # a second to import

    ranks = rankdata(-similarity.numpy(), method="ordinal", axis=1) - 1
    return [row[list(numbers)] for row, numbers in zip(ranks, wanted, strict=True)]


def average_precision(ranks: Ranks) -> float:
    """Compute the area under precision over recall by trapezoids; precision before the first rank is 1.

    Args:
        ranks: Ranks of the relevant images, from 0, ascending, at least one.
    """
    counts = np.arange(len(ranks))
    before = np.where(ranks == 0, 1.0, counts / np.maximum(ranks, 1))
    return float(((before + (counts + 1) / (ranks + 1)) / 2).mean())


def score_rankings(
    similarity: Tensor, relevant: Sequence[Sequence[int]], ignored: Sequence[Sequence[int]]
) -> RetrievalResult:
    """Score rankings from which some images are removed.

    Args:
        similarity: [queries, database].
        relevant: Relevant images of each query.
        ignored: Images that are removed from the ranking of each query.

    Raises:
        ValueError: No query with a relevant image.
    """
    precisions, averages, similarity = [], [], similarity.clone()
    for row, numbers in zip(similarity, ignored, strict=True):
        row[list(numbers)] = -torch.inf  # behind all others
    for ranks in map(np.sort, ranks_of(similarity, relevant)):
        if len(ranks):
            averages.append(average_precision(ranks))
            ends = np.minimum(PRECISION_RANKS, ranks[-1] + 1)
            precisions.append([(ranks < end).sum() / end for end in ends])
    if not precisions:
        raise ValueError("No query has a relevant image: the ground truth is of another data set.")
    means = tuple(100 * float(value) for value in np.mean(precisions, axis=0))
    return RetrievalResult(100 * float(np.mean(averages)), means, len(precisions))


def medium_and_hard(
    similarity: Tensor, relevance: Sequence[Relevance]
) -> tuple[RetrievalResult, RetrievalResult]:
    """Score the benchmark's two settings; arguments and errors as `score_rankings`."""
    medium = [(*truth.easy, *truth.hard) for truth in relevance], [truth.junk for truth in relevance]
    hard = [truth.hard for truth in relevance], [(*truth.junk, *truth.easy) for truth in relevance]
    return score_rankings(similarity, *medium), score_rankings(similarity, *hard)


class Landmarks(NamedTuple):
    """A benchmark: images, queries and relevance."""

    database: Images
    queries: Images
    boxes: list[Box]
    """Region of each query image in pixels."""
    relevance: list[Relevance]


class _SafeUnpickler(pickle.Unpickler):
    """Read numbers, strings, containers and arrays; refuse any other class or function."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _SAFE_GLOBALS:
            raise pickle.UnpicklingError(f"it would run {module}.{name}")
        return super().find_class(module, name)


def open_landmarks(folder: Path, name: LandmarkName) -> Landmarks:
    """Open a benchmark as published: FOLDER/NAME/jpg and FOLDER/NAME/gnd_NAME.pkl.

    Raises:
        ValueError: A missing file, a file that is no ground truth, or images of another data set.
    """
    root = folder / name
    truth = root / f"gnd_{name}.pkl"
    for path in (truth, root / "jpg"):
        if not path.exists():
            raise ValueError(f"{path} is missing: {name} is published at {SOURCE}.")
    try:
        with truth.open("rb") as stream:
            content = _SafeUnpickler(stream, encoding="latin1").load()
        names = [[f"{name}.jpg" for name in content[key]] for key in ("imlist", "qimlist")]
        boxes = [tuple(map(float, row["bbx"])) for row in content["gnd"]]
        relevance = [
            Relevance(*(tuple(map(int, row[kind])) for kind in Relevance._fields)) for row in content["gnd"]
        ]
    except pickle.UnpicklingError as error:
        raise ValueError(f"{truth} is refused: {error}, and only plain data are read.") from error
    except (KeyError, TypeError) as error:
        raise ValueError(f"{truth} is no ground truth of {name}: {error} is missing.") from error
    except (ValueError, EOFError, ImportError, AttributeError, IndexError) as error:
        raise ValueError(f"{truth} cannot be read: {error}") from error
    largest = max((number for row in relevance for part in row for number in part), default=-1)
    if len(names[1]) != len(relevance) or largest >= len(names[0]):
        raise ValueError(f"{truth} is damaged: queries or images that it refers to are not listed.")
    for listed in names:
        if missing := [image for image in listed if not (root / "jpg" / image).is_file()]:
            raise ValueError(
                f"{len(missing):,} of the {len(listed):,} images that {truth.name} lists are not in"
                f" {root / 'jpg'}, such as {missing[0]}: it is of another data set, or images are missing"
                f" ({SOURCE})."
            )
    database, queries = (Images(make_table(map(Row, listed)), root / "jpg") for listed in names)
    return Landmarks(database, queries, boxes, relevance)  # type: ignore[arg-type]


def evaluate(options: Retrieval) -> None:
    """Run `evaluate retrieval`."""
    landmarks = open_landmarks(options.data, options.dataset)
    whole = "queries whole, as released" if options.official else "queries cropped to their box"
    how: Metrics = {"mode": "long-side", "scales": SCALES if options.multiscale else (1.0,)}
    description = f"{options.dataset}: {framing_of(options, **how)}; {whole}; [CLS] after the final norm, L2"
    paper = "ROxford" if options.dataset == "roxford5k" else "RParis"

    def measure(model: LoadedModel) -> Metrics:
        patch = getattr(model.backbone, "patch_embed", None) if options.official else None
        framing = framing_of(options, model, **how, cut=patch.patch_size[0] if patch else 0)
        database = extract(options, model, framing, landmarks.database)
        boxes: list[Box | None] | None = None if options.official else [*landmarks.boxes]
        queries = extract(options, model, framing, landmarks.queries, boxes=boxes)
        if database.broken or queries.broken:
            raise ValueError("Images of the benchmark cannot be read: its results would not be comparable.")
        similarity = normalize(queries.features, dim=1) @ normalize(database.features, dim=1).T
        medium, hard = medium_and_hard(similarity, landmarks.relevance)
        print(f"Medium: {medium}", f"Hard:   {hard}", sep="\n")
        metrics = {"medium_map": medium.map, "hard_map": hard.map}
        return {"metrics": metrics, "medium": asdict(medium), "hard": asdict(hard)}

    published = "3", f"{paper} Medium", f"{paper} Hard"
    evaluate_models(options, f"retrieval {options.dataset}", description, measure, *published)
