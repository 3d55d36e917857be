"""DAVIS scores of predicted masks against ground truth, in place of the official evaluator.

Protocol (docs/protocols.md, "J and F"): the objects are those of the first mask of a sequence.
Semi-supervised: the first and last frame are not scored, and label 255 is background. Unsupervised: every
frame is scored, label 255 is excluded, and proposals are matched to objects. Scores are means over objects.

Intended differences from the official evaluator (davis2017-evaluation): decay is correct from 256 scored
frames on. An ID that the first mask skips is not scored as an empty object. No earlier results are read.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np

from segmentation.datasets import DavisError, VideoError, frame_files, nearby_hint
from segmentation.labels import VOID, LabelError, Labels, object_ids, read_labels
from segmentation.metrics import Scores, contour_match, contour_radius, jaccard, statistics, trace

Task = Literal["semi-supervised", "unsupervised"]

MAX_THREADS = 4  # sequences scored in parallel
MAX_PROPOSALS = 20  # per sequence, in the unsupervised protocol
EMPTY = 256  # label of an empty proposal; no uint8 mask has it


@dataclass(frozen=True)
class ObjectScores:
    """J and F of one object over the scored frames of its sequence: float64 [frames] each, in [0, 1]."""

    sequence: str
    label: int
    J: Scores
    F: Scores

    @property
    def name(self) -> str:
        """Sequence and label, as the official evaluator writes them."""
        return f"{self.sequence}_{self.label}"

    @cached_property
    def statistics(self) -> dict[str, float]:
        """Mean, recall and decay of J and F."""
        pairs = (("J", self.J), ("F", self.F))
        return {
            f"{kind}_{name}": value for kind, scores in pairs for name, value in statistics(scores).items()
        }


@dataclass(frozen=True)
class Evaluation:
    """Scores of every object of every sequence, and their means."""

    protocol: Mapping[str, Any]
    objects: tuple[ObjectScores, ...]
    not_scored: Mapping[str, str]
    """Sequences that are in none of the scores, and the reasons."""

    @cached_property
    def dataset(self) -> dict[str, float]:
        """Return the means over all objects, and J&F."""
        return mean_scores(self.objects)

    @cached_property
    def per_sequence(self) -> dict[str, dict[str, float]]:
        """Return the means over the objects of each sequence, and J&F."""
        names = dict.fromkeys(one.sequence for one in self.objects)
        return {name: mean_scores([one for one in self.objects if one.sequence == name]) for name in names}

    def as_json(self) -> dict[str, Any]:
        """Return `protocol`, `dataset`, `per_sequence`, `per_object`, `not_scored`; scores in [0, 1]."""
        return {
            "protocol": dict(self.protocol),
            "dataset": self.dataset,
            "per_sequence": self.per_sequence,
            "per_object": {
                one.name: {"J": one.J.tolist(), "F": one.F.tolist(), **one.statistics} for one in self.objects
            },
            "not_scored": dict(self.not_scored),
        }


def mean_scores(objects: Sequence[ObjectScores]) -> dict[str, float]:
    """Average the statistics over objects, and add J&F."""
    keys = objects[0].statistics
    means = {key: float(np.mean([one.statistics[key] for one in objects])) for key in keys}
    return {"J&F_mean": (means["J_mean"] + means["F_mean"]) / 2, **means}


def score_frames(frames: Iterable[tuple[Labels, Labels]], labels: Sequence[int]) -> tuple[Scores, Scores]:
    """Compute J and F, float64 [objects, frames], of the objects of one sequence with these labels.

    `frames` are prediction and ground truth of each scored frame, uint8 [H, W] each; one is held at a time.
    """
    scores = []
    for prediction, truth in frames:
        radius = contour_radius(truth.shape[0], truth.shape[1])
        pairs = [(prediction == label, truth == label) for label in labels]
        contours = [(trace(ours, radius), trace(true, radius)) for ours, true in pairs]
        scores.append(
            ([float(jaccard(*pair)) for pair in pairs], [contour_match(*pair) for pair in contours])
        )
    region, boundary = np.array(scores).transpose(1, 2, 0)
    return region, boundary


def score_proposals(frames: Iterable[tuple[Labels, Labels]], labels: Sequence[int]) -> tuple[Scores, Scores]:
    """Compute J and F like `score_frames`, of proposals that are matched to the objects (unsupervised).

    Proposals are the labels of the predictions. They are matched one to one with the objects for the largest
    mean of J and F. An object without a proposal is compared with an empty mask. Pixels with label 255 are
    excluded.

    Raises:
        DavisError: There are more than `MAX_PROPOSALS`.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import, and only needed here

    found = [_pair_scores(prediction, truth, labels) for prediction, truth in frames]
    proposals = sorted(set().union(*found) - {EMPTY})
    if len(proposals) > MAX_PROPOSALS:
        raise DavisError(f"{len(proposals)} proposals; at most {MAX_PROPOSALS} per sequence are allowed")
    padded = [*proposals, *[EMPTY] * (len(labels) - len(proposals))]  # every object has a partner
    scores = np.array([[one.get(label, one[EMPTY]) for label in padded] for one in found])
    rows, columns = linear_sum_assignment(-scores.mean((0, 2)))  # of [frames, proposals, J and F, objects]
    matched = scores[:, rows[np.argsort(columns)], :, np.sort(columns)]  # [objects, frames, J and F]
    return matched[..., 0], matched[..., 1]


def _pair_scores(prediction: Labels, truth: Labels, labels: Sequence[int]) -> dict[int, Scores]:
    """Compute J and F [2, objects] of every proposal of a frame, and of an empty one, with every object."""
    radius, counted = contour_radius(truth.shape[0], truth.shape[1]), truth != VOID
    objects = [truth == label for label in labels]
    contours = [trace(mask, radius) for mask in objects]
    scores = {}
    for label in (EMPTY, *np.unique(prediction[prediction > 0]).tolist()):
        mask = (prediction == label) & counted
        region = [float(jaccard(mask, true)) for true in objects]
        contour = trace(mask, radius)
        scores[label] = np.array([region, [contour_match(contour, true) for true in contours]])
    return scores


def score_folders(
    ground_truth: Path,
    predictions: Path,
    *,
    task: Task = "semi-supervised",
    sequences: Sequence[str] = (),
    binary: bool = False,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> Evaluation:
    """Score a folder of predicted masks against a folder of true masks.

    Args:
        ground_truth: Folder with one folder of PNGs per sequence, such as DAVIS/Annotations/480p.
        predictions: Folder of the same structure.
        sequences: Only these; empty for all of the ground truth.
        task: semi-supervised: predictions and truth label objects alike. unsupervised: see `score_proposals`;
            every frame is scored.
        binary: Make every label other than 0 object 1 (DAVIS-2016).
        progress: Wraps the iterator over the sequences.

    Returns:
        The scores; `not_scored` has the sequences with a mask that is missing, unreadable or of another size,
        or with a label that cannot be.

    Raises:
        DavisError: A folder is missing, or no sequence can be scored.
    """
    names = _sequence_folders(ground_truth, "ground truth")
    _sequence_folders(predictions, "predictions", names)
    if unknown := [name for name in sequences if name not in names]:
        raise DavisError(f"sequence {unknown[0]!r} is not in {ground_truth}; it has {', '.join(names)[:300]}")
    names = [name for name in names if name in sequences or not sequences]
    score = partial(_score_sequence, ground_truth, predictions, task, binary)
    # Decoding and counting release the interpreter lock. Each thread holds a frame or two.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, MAX_THREADS)) as threads:
        scored = dict(zip(names, progress(threads.map(score, names)), strict=True))
    not_scored = {name: str(found) for name, found in scored.items() if isinstance(found, ValueError)}
    if len(not_scored) == len(scored):
        raise DavisError(next(iter(not_scored.values())))
    objects = [one for found in scored.values() if not isinstance(found, ValueError) for one in found]
    semi_supervised = task == "semi-supervised"
    protocol = {
        "measure": "J and F of DAVIS, means over objects",
        "task": task,
        "frames": "all but the first and last" if semi_supervised else "all",
        "label_255": "background" if semi_supervised else "excluded",
        "objects": "one, every value but 0" if binary else "labels of the first mask",
    }
    return Evaluation(protocol, tuple(objects), not_scored)


def _score_sequence(
    ground_truth: Path, predictions: Path, task: Task, binary: bool, name: str
) -> list[ObjectScores] | ValueError:
    """Score each object of a sequence, in ascending order of the labels; returns errors."""
    try:
        masks = frame_files(ground_truth / name)
        pairs = _pair_files(masks, predictions / name, task)
        labels = object_ids(read_labels(masks[0], binary=binary))
        if not labels:
            raise DavisError(
                f"the first mask {masks[0]} marks no object (only 0 and perhaps 255); "
                "if its masks are binary, as in DAVIS-2016, pass --binary"
            )
        if task == "semi-supervised":
            region, boundary = score_frames(_read_pairs(pairs, binary, (0, *labels)), labels)
        else:
            region, boundary = score_proposals(_read_pairs(pairs, binary, range(VOID)), labels)
    except (DavisError, LabelError, VideoError) as error:
        return error
    scores = zip(labels, region, boundary, strict=True)
    return [ObjectScores(name, label, J, F) for label, J, F in scores]


def _pair_files(masks: Sequence[Path], predictions: Path, task: Task) -> list[tuple[Path, Path]]:
    """List the predictions and true masks to score of one sequence, given its true masks."""
    scored = masks[1:-1] if task == "semi-supervised" else masks
    if not scored:
        raise DavisError(
            f"{masks[0].parent} has {len(masks)} masks; the first and last are not scored, "
            "so at least 3 are needed"
        )
    pairs = [(predictions / f"{mask.stem}.png", mask) for mask in scored]
    if absent := [prediction for prediction, _ in pairs if not prediction.is_file()]:
        raise DavisError(
            f"{len(absent)} of {len(pairs)} predictions of {predictions.name} are missing, "
            f"the first is {absent[0]}"
        )
    return pairs


def _sequence_folders(root: Path, content: str, wanted: Sequence[str] = ()) -> list[str]:
    """List the folders of PNGs in a folder; only those `wanted`, if any are named."""
    if not root.is_dir():
        raise DavisError(f"the folder of {content} {root} does not exist")

    def masks_in(folder: Path) -> list[str]:
        folders = (each for each in sorted(folder.glob("[!.]*/")) if not wanted or each.name in wanted)
        return [each.name for each in folders if next(each.glob("*.png"), None)]

    if not (names := masks_in(root)):
        like = f" named as in the ground truth: {', '.join(wanted)[:200]}" if wanted else ""
        hint = nearby_hint(root, lambda folder: bool(masks_in(folder)))
        raise DavisError(
            f"{root} holds no sequences of {content}; expected one folder of PNGs per sequence{like}{hint}"
        )
    return names


def _read_pairs(
    pairs: Iterable[tuple[Path, Path]], binary: bool, known: Sequence[int]
) -> Iterator[tuple[Labels, Labels]]:
    """Yield prediction and ground truth of each frame; every file is opened once.

    Raises:
        DavisError: Another size than the ground truth, or a label that is not among the `known`.
    """
    is_unknown = np.ones(256, np.uint8)
    is_unknown[list(known)] = 0
    for file, truth_file in pairs:
        prediction, truth = read_labels(file, binary=binary), read_labels(truth_file, binary=binary)
        if prediction.shape != truth.shape:
            raise DavisError(
                f"the prediction {file} is {prediction.shape[1]}x{prediction.shape[0]} pixels, "
                f"its ground truth {truth.shape[1]}x{truth.shape[0]}; write masks at the size of the frames"
            )
        # Listing the labels takes longer than everything else about a mask, so it is done for the error only.
        if prediction.max() >= is_unknown.argmax() and cv2.LUT(prediction, is_unknown).any():
            unknown = min(set(np.unique(prediction).tolist()) - set(known))
            expected = f"but the first mask of its sequence only {sorted(known)}; use those labels"
            if len(known) == VOID:
                expected = f"expected proposals from 1 to {VOID - 1}"
            raise DavisError(f"the prediction {file} has label {unknown}, {expected}")
        yield prediction, truth
