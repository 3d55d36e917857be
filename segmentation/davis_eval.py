"""DAVIS scores of predicted masks against ground truth, in place of the official evaluator.

Protocol (docs/segmentation.md, "Scores: J and F"): the objects are those of the first mask of a sequence.
Semi-supervised: the first and last frame are not scored, and label 255 is background. Unsupervised: every
frame is scored, label 255 is excluded, and proposals are matched to objects. Scores are means over objects,
not over sequences.

Intended differences from the official evaluator (davis2017-evaluation): decay is right from 256 scored frames
on; an id that the first mask skips is not scored as an empty object; unsupervised rows carry the name of the
object, not of the proposal; no earlier results are read back.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.datasets import DavisError, VideoError, frame_files
from segmentation.labels import VOID, LabelError, Labels, object_ids, read_labels
from segmentation.metrics import (
    Contour,
    Mask,
    Scores,
    contour_match,
    contour_radius,
    jaccard,
    statistics,
    trace,
)

Task = Literal["semi-supervised", "unsupervised"]

MAX_THREADS = 4
"""Sequences scored in parallel. More threads gain little and hold more frames."""

MAX_PROPOSALS = 20
"""Largest number of proposals per sequence in the unsupervised protocol."""


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
        return {
            f"{letter}_{name}": value
            for letter, values in (("J", self.J), ("F", self.F))
            for name, value in statistics(values)._asdict().items()
        }

    def as_json(self) -> dict[str, Any]:
        """Scores per frame and their statistics."""
        return {"J": self.J.tolist(), "F": self.F.tolist(), **self.statistics}


@dataclass(frozen=True)
class Evaluation:
    """Scores of every object of every sequence, and their means."""

    protocol: Mapping[str, Any]
    objects: tuple[ObjectScores, ...]
    not_scored: Mapping[str, str] = field(default_factory=dict)
    """Sequences that are in none of the scores, and why."""

    @cached_property
    def dataset(self) -> dict[str, float]:
        """Return the means over all objects, and J&F."""
        return _mean_over(self.objects)

    @cached_property
    def per_sequence(self) -> dict[str, dict[str, float]]:
        """Return the means over the objects of each sequence, and J&F."""
        names = dict.fromkeys(one.sequence for one in self.objects)
        return {name: _mean_over([one for one in self.objects if one.sequence == name]) for name in names}

    def as_json(self) -> dict[str, Any]:
        """Keys `protocol`, `dataset`, `per_sequence`, `per_object`, `not_scored`; shares, not percent."""
        return {
            "protocol": dict(self.protocol),
            "dataset": self.dataset,
            "per_sequence": self.per_sequence,
            "per_object": {one.name: one.as_json() for one in self.objects},
            "not_scored": dict(self.not_scored),
        }

    def rows(self) -> list[dict[str, Any]]:
        """List one row per dataset, sequence and object: level, name and scores."""
        rows = [{"level": "dataset", "name": "all", **self.dataset}]
        rows += [{"level": "sequence", "name": name, **row} for name, row in self.per_sequence.items()]
        rows += [{"level": "object", "name": one.name, **_mean_over([one])} for one in self.objects]
        return rows


def _mean_over(objects: Sequence[ObjectScores]) -> dict[str, float]:
    keys = objects[0].statistics
    means = {key: float(np.mean([one.statistics[key] for one in objects])) for key in keys}
    return {"J&F_mean": (means["J_mean"] + means["F_mean"]) / 2, **means}


def score_frames(frames: Iterable[tuple[Labels, Labels]], labels: Sequence[int]) -> tuple[Scores, Scores]:
    """Compute J and F of the objects of one sequence, semi-supervised: labels are matched by value.

    Args:
        frames: prediction and ground truth of each scored frame, uint8 [H, W] each; one is held at a time.
        labels: the objects.

    Returns:
        J and F, float64 [objects, frames].
    """
    region: list[list[float]] = []
    boundary: list[list[float]] = []
    for prediction, truth in frames:
        radius = contour_radius(truth.shape[0], truth.shape[1])
        masks = [(prediction == label, truth == label) for label in labels]
        region.append([float(jaccard(ours, true)) for ours, true in masks])
        boundary.append([contour_match(trace(ours, radius), trace(true, radius)) for ours, true in masks])
    return np.array(region).T, np.array(boundary).T


def score_proposals(frames: Iterable[tuple[Labels, Labels]], labels: Sequence[int]) -> tuple[Scores, Scores]:
    """Compute J and F of the objects of one sequence, unsupervised: proposals are matched to objects.

    Proposals are the labels in the predictions. They and the objects are matched one to one so that the mean
    of J and F is greatest; an object left over is compared with an empty mask. Pixels of label 255 count
    neither way.

    Args:
        frames: prediction and ground truth of each frame, uint8 [H, W] each; one is held at a time.
        labels: the objects of the ground truth.

    Returns:
        J and F, float64 [objects, frames].
    """
    from scipy.optimize import linear_sum_assignment  # slow to import, and only needed here

    found = [_pair_scores(prediction, truth, labels) for prediction, truth in frames]
    proposals = set().union(*found) - {_EMPTY}
    # Empty ones are added, so that every object has a partner.
    padded = [*sorted(proposals), *[_EMPTY] * (len(labels) - len(proposals))]
    scores = np.array([[one.get(label, one[_EMPTY]) for label in padded] for one in found])
    rows, columns = linear_sum_assignment(-scores.mean((0, 2)))  # of [frames, proposals, J and F, objects]
    matched = scores[:, rows[np.argsort(columns)], :, np.sort(columns)]  # [objects, frames, J and F]
    return matched[..., 0], matched[..., 1]


_EMPTY = 256  # label of an empty proposal; no uint8 mask has it


def _pair_scores(prediction: Labels, truth: Labels, labels: Sequence[int]) -> dict[int, NDArray[np.float64]]:
    """Compute J and F [2, objects] of every proposal of one frame, and of an empty one, with every object."""
    radius = contour_radius(truth.shape[0], truth.shape[1])
    counted = truth != VOID

    def traced(mask: Mask) -> tuple[Mask, Contour]:
        return mask, trace(mask, radius)

    objects = [traced(truth == label) for label in labels]
    scores = {}
    for label in (_EMPTY, *sorted(_labels_in(prediction) - {0})):
        mask, contour = traced((prediction == label) & counted)
        region = [float(jaccard(mask, true_mask)) for true_mask, _ in objects]
        boundary = [contour_match(contour, true_contour) for _, true_contour in objects]
        scores[label] = np.array([region, boundary])
    return scores


def score_folders(
    ground_truth: Path,
    predictions: Path,
    *,
    task: Task = "semi-supervised",
    sequences: Sequence[str] = (),
    binary: bool = False,
    allow_gaps: bool = False,
) -> Evaluation:
    """Score a folder of predicted masks against a folder of true masks.

    Args:
        ground_truth: folder of folders of PNGs, one per sequence, such as DAVIS/Annotations/480p.
        predictions: folder of the same structure.
        task: see the head of this module.
        sequences: only these; all of the ground truth when empty.
        binary: every label but 0 is object 1 (DAVIS-2016).
        allow_gaps: let frame numbers of the ground truth jump.

    Raises:
        DavisError, LabelError: a folder or mask that is missing, unreadable or of another size, or a label
        that cannot be. VideoError: gaps in the numbering of the ground truth.
    """
    pairs, faults = pair_masks(ground_truth, predictions, task, sequences, allow_gaps=allow_gaps)
    for fault in faults.values():
        raise fault
    objects: list[ObjectScores] = []
    for scored in score_sequences(pairs, task, binary=binary):
        if isinstance(scored, ValueError):
            raise scored
        objects += scored
    return Evaluation(protocol(task, binary=binary), tuple(objects))


def protocol(task: Task, *, binary: bool = False) -> dict[str, Any]:
    """Describe the protocol, to be printed with the scores."""
    return {
        "measure": "J and F of DAVIS, means over objects",
        "task": task,
        "frames": "all but the first and last" if task == "semi-supervised" else "all",
        "label_255": "background" if task == "semi-supervised" else "void",
        "objects": "one, every value but 0" if binary else "labels of the first mask",
    }


Pair = tuple[Path, Path]
"""Files of a prediction and of its ground truth."""


@dataclass(frozen=True)
class MaskPairs:
    """The masks of one sequence: the first of the ground truth, and the frames to score."""

    sequence: str
    first: Path
    files: tuple[Pair, ...]


class MissingPredictions(DavisError):
    """A sequence of the ground truth of which nothing was predicted."""


Faults = dict[str, ValueError]
"""Errors of sequences that cannot be scored, by name."""


def pair_masks(
    ground_truth: Path,
    predictions: Path,
    task: Task = "semi-supervised",
    sequences: Sequence[str] = (),
    *,
    allow_gaps: bool = False,
) -> tuple[list[MaskPairs], Faults]:
    """Find the masks of every sequence, before any is read; arguments as `score_folders`.

    A sequence whose files do not fit together stands among the faults and keeps no other from being scored.

    Raises:
        DavisError: a folder that is missing or holds no sequences, a sequence that the ground truth has not,
            or an unknown task.
    """
    if task not in get_args(Task):
        raise DavisError(f"there is no protocol {task!r}; choose {' or '.join(get_args(Task))}")
    there = _sequence_folders(ground_truth, "ground truth")
    predicted = _sequence_folders(predictions, "predictions", frozenset(there))
    if unknown := [name for name in sequences if name not in there]:
        raise DavisError(f"sequence {unknown[0]!r} is not in {ground_truth}; it has {', '.join(there)[:300]}")
    pairs: list[MaskPairs] = []
    faults: Faults = {}
    for name in there:
        if sequences and name not in sequences:
            continue
        try:
            if name not in predicted:
                raise MissingPredictions(f"{predictions} has no predictions of {name}")
            pairs.append(_pair(ground_truth / name, predictions / name, task, allow_gaps))
        except (DavisError, VideoError) as error:
            faults[name] = error
    return pairs, faults


def _pair(ground_truth: Path, predictions: Path, task: Task, allow_gaps: bool) -> MaskPairs:
    masks = frame_files(ground_truth, allow_gaps=allow_gaps)
    scored = masks[1:-1] if task == "semi-supervised" else masks
    if not scored:
        raise DavisError(
            f"{ground_truth} has {len(masks)} masks; the first and last are not scored, "
            "so at least 3 are needed"
        )
    files = tuple((predictions / f"{mask.stem}.png", mask) for mask in scored)
    if absent := [prediction for prediction, _ in files if not prediction.is_file()]:
        raise DavisError(
            f"{len(absent)} of {len(files)} predictions of {ground_truth.name} are missing, "
            f"the first is {absent[0]}"
        )
    return MaskPairs(ground_truth.name, masks[0], files)


def score_sequences(
    pairs: Sequence[MaskPairs], task: Task, *, binary: bool = False
) -> Iterator[list[ObjectScores] | ValueError]:
    """Score sequences in parallel threads; arguments as `score_folders`.

    Yields:
        For each sequence in order its scores, or the error that prevents them.
    """
    score = partial(_score_or_error, task=task, binary=binary)
    # Decoding and counting release the interpreter lock. Each thread holds a frame or two.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, MAX_THREADS)) as threads:
        yield from threads.map(score, pairs)


def _score_or_error(pairs: MaskPairs, task: Task, binary: bool) -> list[ObjectScores] | ValueError:
    try:
        return score_sequence(pairs, task, binary=binary)
    except (DavisError, LabelError, VideoError) as error:
        return error


def score_sequence(pairs: MaskPairs, task: Task, *, binary: bool = False) -> list[ObjectScores]:
    """Score each object of a sequence, in ascending order of the labels; errors as `score_folders`."""
    labels = object_ids(read_labels(pairs.first, binary=binary))
    if not labels:
        raise DavisError(
            f"the first mask {pairs.first} marks no object (only 0 and perhaps 255); "
            "if its masks are binary, as in DAVIS-2016, pass --binary"
        )
    if task == "semi-supervised":
        region, boundary = score_frames(_read_pairs(pairs.files, binary, _only((0, *labels))), labels)
    else:
        region, boundary = score_proposals(_read_pairs(pairs.files, binary, _few_proposals()), labels)
    scores = zip(labels, region, boundary, strict=True)
    return [ObjectScores(pairs.sequence, label, J, F) for label, J, F in scores]


def _sequence_folders(root: Path, what: str, wanted: frozenset[str] = frozenset()) -> list[str]:
    """List the folders of PNGs in a folder; only those `wanted`, if any are named.

    Raises:
        DavisError: there is none; names the folder that looks right, up to three levels away.
    """
    if not root.is_dir():
        raise DavisError(f"the folder of {what} {root} does not exist")
    if names := _folders_of_masks(root, wanted):
        return names
    near = [  # below first: what lies above may be anybody's
        *(folder for depth in ("*/", "*/*/", "*/*/*/") for folder in sorted(root.glob(depth))),
        *root.resolve().parents[:2],
    ]
    right = next((folder for folder in near if _folders_of_masks(folder, wanted)), None)
    named = f", named as in the ground truth: {', '.join(sorted(wanted))[:200]}" if wanted else ""
    remedy = f"{right} looks right" if right else f"expected one folder of PNGs per sequence{named}"
    raise DavisError(f"{root} holds no sequences of {what}; {remedy}")


def _folders_of_masks(root: Path, wanted: frozenset[str]) -> list[str]:
    folders = (folder for folder in sorted(root.glob("*/")) if not folder.name.startswith("."))
    named = (folder for folder in folders if not wanted or folder.name in wanted)
    return [folder.name for folder in named if next(folder.glob("*.png"), None)]


Check = Callable[[Path, Labels], None]
"""Raises an error for wrong labels of a prediction, and names its file."""


def _read_pairs(files: Sequence[Pair], binary: bool, check: Check) -> Iterator[tuple[Labels, Labels]]:
    """Yield prediction and ground truth of each frame, of one size; every file is opened once."""
    for prediction_file, truth_file in files:
        prediction, truth = (read_labels(file, binary=binary) for file in (prediction_file, truth_file))
        if prediction.shape != truth.shape:
            raise DavisError(
                f"the prediction {prediction_file} is {prediction.shape[1]}x{prediction.shape[0]} pixels, "
                f"its ground truth {truth.shape[1]}x{truth.shape[0]}; write masks at the size of the frames"
            )
        check(prediction_file, prediction)
        yield prediction, truth


def _only(known: Sequence[int]) -> Check:
    """Return a check that refuses unknown labels."""
    unknown_label = np.ones(256, np.uint8)
    unknown_label[list(known)] = 0
    first_unknown = int(unknown_label.argmax())

    def check(file: Path, prediction: Labels) -> None:
        # Which labels there are takes longer than all else about a mask, so it is asked only to name one.
        if prediction.max() >= first_unknown and cv2.LUT(prediction, unknown_label).any():
            unknown = min(_labels_in(prediction) - set(known))
            raise DavisError(
                f"the prediction {file} has label {unknown}, but the first mask of its "
                f"sequence only {sorted(known)}; use those labels"
            )

    return check


def _few_proposals() -> Check:
    """Return a check that refuses void, and more labels than the protocol allows."""
    proposed: set[int] = set()

    def check(file: Path, prediction: Labels) -> None:
        proposed.update(_labels_in(prediction) - {0})
        if VOID in proposed:
            raise DavisError(
                f"the prediction {file} has label 255, which is void and no object; use 1 to 254"
            )
        if len(proposed) > MAX_PROPOSALS:
            raise DavisError(
                f"predictions up to {file} propose {len(proposed)} objects; "
                f"the protocol allows {MAX_PROPOSALS}"
            )

    return check


def _labels_in(labels: Labels) -> set[int]:
    counts = cv2.calcHist([labels], [0], None, [256], [0, 256])  # several times faster than np.unique
    return {int(label) for label in np.flatnonzero(counts)}
