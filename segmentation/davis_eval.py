"""DAVIS scores of predicted masks against ground truth, in place of the official evaluator.

docs/protocols.md, "J and F", describes the protocol and the differences from davis2017-evaluation.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dino_model.runtime.errors import pluralize
from segmentation.annotations import MaskReader, MaskRules
from segmentation.datasets import nearby_hint
from segmentation.frames import frame_files
from segmentation.labels import VOID, DataError, Labels, check_size, window
from segmentation.metrics import Scores, contour_match, contour_radius, jaccard, statistics, trace

DavisTask = Literal["semi-supervised", "unsupervised"]
Objects = Literal["first-mask", "appearance"]

COUNTED: dict[tuple[DavisTask, Objects], tuple[str, str]] = {
    ("semi-supervised", "first-mask"): (
        "1 to the highest label of the first mask",
        "all true masks but the first and last",
    ),
    ("semi-supervised", "appearance"): (
        "every label of the true masks",
        "all true masks after the first one that has the object",
    ),
    ("unsupervised", "first-mask"): ("1 to the highest label of the first mask", "all true masks"),
}
"""Objects and frames that count in each protocol, in words."""
MAX_THREADS = 4  # sequences scored in parallel
MAX_PROPOSALS = 20  # per sequence, in the unsupervised protocol
EMPTY = 256  # label of an empty proposal; no uint8 mask has it
STATISTICS = [f"{kind}_{name}" for kind in "JF" for name in ("mean", "recall", "decay")]


def object_scores(region: Scores, boundary: Scores) -> dict[str, Any]:
    """Collect J and F of one object, float64 [frames] each, as JSON types.

    Returns the lists `J` and `F` with their `STATISTICS`.
    """
    kinds = {"J": region, "F": boundary}
    summaries = {kind: statistics(scores) for kind, scores in kinds.items()}
    means = {f"{kind}_{name}": each for kind, summary in summaries.items() for name, each in summary.items()}
    return {kind: scores.tolist() for kind, scores in kinds.items()} | means


def mean_scores(objects: Collection[Mapping[str, Any]]) -> dict[str, float]:
    """Average the statistics of objects, see `object_scores`, and add J&F."""
    means = {key: float(np.mean([each[key] for each in objects])) for key in STATISTICS}
    return {"J&F_mean": (means["J_mean"] + means["F_mean"]) / 2, **means}


def score_frames(frames: Iterable[tuple[Labels, Labels]], labels: Sequence[int]) -> tuple[Scores, Scores]:
    """Compute J and F, float64 [objects, frames], of the objects of one sequence with these labels.

    `frames` are prediction and ground truth of each scored frame, uint8 [H, W] each; one is held at a time.
    """
    scores = []
    for prediction, truth in frames:
        radius = contour_radius(truth.shape[0], truth.shape[1])
        part = window(radius + 1, prediction, truth)
        pairs = [(prediction[part] == label, truth[part] == label) for label in labels]
        contours = [[trace(mask, radius) for mask in pair] for pair in pairs]
        scores.append([[jaccard(*pair) for pair in pairs], [contour_match(*pair) for pair in contours]])
    region, boundary = np.array(scores).transpose(1, 2, 0)
    return region, boundary


def score_proposals(frames: Iterable[tuple[Labels, Labels]], labels: Sequence[int]) -> tuple[Scores, Scores]:
    """Compute J and F like `score_frames`, of proposals that are matched to the objects (unsupervised).

    Proposals are the labels of the predictions, `MAX_PROPOSALS` at most. They are matched one to one with the
    objects so that the mean of J and F is largest. An object without a partner is compared with an empty
    mask. Pixels with label 255 are excluded.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import, and only needed here

    frame_scores = [_pair_scores(prediction, truth, labels) for prediction, truth in frames]
    proposals = sorted(set().union(*frame_scores) - {EMPTY})
    if len(proposals) > MAX_PROPOSALS:
        raise DataError(f"{len(proposals)} proposals; at most {MAX_PROPOSALS} per sequence are allowed")
    # Officially, every number up to the highest is a proposal. Every object has a partner.
    numbered = [label if label in proposals else EMPTY for label in range(1, max(proposals, default=0) + 1)]
    padded = numbered + [EMPTY] * (len(labels) - len(numbered))
    scores = np.array([[one.get(label, one[EMPTY]) for label in padded] for one in frame_scores])
    rows, columns = linear_sum_assignment(-scores.mean((0, 2)))  # of [frames, proposals, J and F, objects]
    matched = scores[:, rows[np.argsort(columns)], :, np.sort(columns)]  # [objects, frames, J and F]
    return matched[..., 0], matched[..., 1]


def _pair_scores(prediction: Labels, truth: Labels, labels: Sequence[int]) -> dict[int, Scores]:
    """Compute J and F [2, objects] of every proposal of a frame, and of an empty one, with every object."""
    radius = contour_radius(truth.shape[0], truth.shape[1])
    part = window(radius + 1, prediction, truth)
    prediction, truth = prediction[part], truth[part]
    objects = [truth == label for label in labels]
    contours = [trace(mask, radius) for mask in objects]
    scores = {}
    for label in (EMPTY, *np.unique(prediction[prediction > 0]).tolist()):
        mask = (prediction == label) & (truth != VOID)
        region = [jaccard(mask, true) for true in objects]
        contour = trace(mask, radius)
        scores[label] = np.array([region, [contour_match(contour, true) for true in contours]])
    return scores


def score_folders(
    ground_truth: Path,
    predictions: Path,
    *,
    task: DavisTask = "semi-supervised",
    objects: Objects = "first-mask",
    sequences: Sequence[str] = (),
    rules: MaskRules | None = None,
    listed: Path | None = None,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> dict[str, Any]:
    """Score a folder of predicted masks against a folder of true masks.

    Args:
        ground_truth: Folder with one folder of PNGs per sequence, such as DAVIS/Annotations/480p.
        predictions: Folder of the same structure.
        sequences: Only these; empty for all of the ground truth.
        task: semi-supervised: the labels are those of the objects. unsupervised: see `score_proposals`.
        objects: first-mask: the labels from 1 to the highest of the first true mask, as officially.
            appearance: every label, on the true masks after the first one that has it, as YouTube-VOS does.
        rules: How masks are read; the threshold is 1 for DAVIS-2016.
        listed: File with the order of the frames, see `frame_files`.
        progress: Wraps the iterator over the sequences.

    Returns:
        JSON types. `dataset` and `per_sequence` are as of `mean_scores`, `per_object` as of `object_scores`
        by names such as dog_1. `not_scored` has sequences with unusable masks and the reasons. `notes` has a
        sentence on each object that the first mask lacks or that appears later, and on each sparse ground
        truth. The last note
        names folders of predictions that are not scored.

    Raises:
        DataError: A folder is missing, or no sequence can be scored.
    """
    if (task, objects) not in COUNTED:
        raise DataError(
            f"objects are scored from their appearance on in the semi-supervised protocol, not {task}"
        )
    names, others = _pair_folders(ground_truth, predictions, sequences)
    rules = rules or MaskRules()
    score = partial(_score_sequence, ground_truth, predictions, task, objects, rules, listed)
    # Decoding and counting release the interpreter lock. Each thread holds a frame or two.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, MAX_THREADS)) as threads:
        results = dict(zip(names, progress(threads.map(score, names)), strict=True))
    not_scored = {name: str(result) for name, result in results.items() if isinstance(result, ValueError)}
    scored = {name: result[:2] for name, result in results.items() if not isinstance(result, ValueError)}
    read = {result[2] for result in results.values() if not isinstance(result, ValueError)}
    if not scored:
        raise DataError(next(iter(not_scored.values())))
    per_object = {name: scores for sequence, _ in scored.values() for name, scores in sequence.items()}
    notes = [f"{name}: {note}" for name, (_, notes) in scored.items() for note in notes]
    if others:
        count = pluralize(len(others), "folder")
        notes.append(f"not scored: {count} without ground truth: {', '.join(others)}"[:300])
    counted_objects, frames = COUNTED[task, objects]
    protocol = {
        "measure": "J and F of DAVIS, means over objects",
        "task": task,
        "frames": frames,
        "label_255": "background" if task == "semi-supervised" else "excluded",
        "objects": counted_objects if rules.threshold is None else f"one, values from {rules.threshold} on",
        "masks": "; ".join(sorted(read)),
    }
    return {
        "protocol": protocol,
        "dataset": mean_scores(per_object.values()),
        "per_sequence": {name: mean_scores(sequence.values()) for name, (sequence, _) in scored.items()},
        "per_object": per_object,
        "not_scored": not_scored,
        "notes": notes,
    }


def _pair_folders(
    ground_truth: Path, predictions: Path, wanted: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the sequences to score, and those of the predictions that have no ground truth."""
    names = _sequence_folders(ground_truth, "ground truth")
    _sequence_folders(predictions, "predictions", names)
    if unknown := [name for name in wanted if name not in names]:
        raise DataError(f"sequence {unknown[0]!r} is not in {ground_truth}; it has {', '.join(names)[:300]}")
    others = sorted(set(_sequence_folders(predictions, "predictions")) - set(names))
    return [name for name in names if name in wanted or not wanted], others


def _score_sequence(
    ground_truth: Path,
    predictions: Path,
    task: DavisTask,
    objects: Objects,
    rules: MaskRules,
    listed: Path | None,
    name: str,
) -> tuple[dict[str, dict[str, Any]], list[str], str] | ValueError:
    """Score each object of a sequence, in ascending order of the labels, with notes and how masks are read.

    Returns errors.
    """
    try:
        masks = frame_files(ground_truth / name, listed)
        scored = masks if task == "unsupervised" else masks[1:-1] if objects == "first-mask" else masks[1:]
        pairs = _pair_files(masks, scored, predictions / name)
        reader = MaskReader([*masks, *(file for file, _ in pairs)], rules, keep=True)
        appearances = _appearances(masks if objects == "appearance" else masks[:1], reader)
        if min(appearances.values(), default=len(pairs)) >= len(pairs):
            remedy = "pass --binary if masks are binary, or --objects appearance if objects appear later"
            raise DataError(f"the first mask {masks[0]} marks no object; {remedy}")
        if objects == "first-mask":
            missing = sorted(set(range(1, max(appearances))) - set(appearances))
            notes = [f"the first mask lacks object {label}, which counts as officially" for label in missing]
            appearances |= dict.fromkeys(missing, 0)
            notes += [
                f"object {label} first appears in {masks[first].name} and is not scored (see --objects)"
                for label, first in _appearances(masks, reader).items()
                if label not in appearances
            ]
        else:
            last = [label for label, first in appearances.items() if first == len(masks) - 1]
            notes = [f"object {label} appears in the last mask and is not scored" for label in last]
        if len(masks) < (number := len(list((predictions / name).glob("*.png")))):
            notes.append(f"{len(masks)} true masks for {number} predictions; scored on the frames they have")
        labels = sorted(appearances)
        if task == "semi-supervised":
            region, boundary = score_frames(_read_pairs(pairs, reader, (0, *labels)), labels)
        else:
            region, boundary = score_proposals(_read_pairs(pairs, reader, range(VOID)), labels)
    except DataError as error:
        return error
    scores = {
        f"{name}_{label}": object_scores(J[appearances[label] :], F[appearances[label] :])
        for label, J, F in zip(labels, region, boundary, strict=True)
        if appearances[label] < len(pairs)
    }
    return scores, notes, reader.describe()


def _appearances(masks: Sequence[Path], reader: MaskReader) -> dict[int, int]:
    """Return the number of the first mask that has each label."""
    first_masks: dict[int, int] = {}
    for number, mask in enumerate(masks):
        first_masks = dict.fromkeys(sorted(reader.labels(mask) - {0, VOID}), number) | first_masks
    return first_masks


def _pair_files(masks: Sequence[Path], scored: Sequence[Path], predictions: Path) -> list[tuple[Path, Path]]:
    """List the predictions and true masks to score of one sequence, given its true masks."""
    if not scored:
        raise DataError(f"{masks[0].parent} has {pluralize(len(masks), 'mask')}; expected at least 3")
    pairs = [(predictions / f"{mask.stem}.png", mask) for mask in scored]
    if absent := [prediction for prediction, _ in pairs if not prediction.is_file()]:
        number = f"{len(absent)} of {len(pairs)}"
        raise DataError(f"{number} predictions of {predictions.name} are missing, the first is {absent[0]}")
    return pairs


def _sequence_folders(root: Path, content: str, wanted: Sequence[str] = ()) -> list[str]:
    """List the folders of PNGs in a folder; only those `wanted`, if any are named."""
    if not root.is_dir():
        raise DataError(f"the folder of {content} {root} does not exist")

    def masks_in(folder: Path) -> list[str]:
        folders = (each for each in sorted(folder.glob("[!.]*/")) if not wanted or each.name in wanted)
        return [each.name for each in folders if next(each.glob("*.png"), None)]

    if not (names := masks_in(root)):
        like = f" named as in the ground truth: {', '.join(wanted)[:200]}" if wanted else ""
        hint = nearby_hint(root, lambda folder: bool(masks_in(folder)))
        if not wanted and any(root.glob("*.png")):
            hint = "; it holds PNGs itself: move them into a folder in it"
        raise DataError(
            f"{root} holds no sequences of {content}; expected one folder of PNGs per sequence{like}{hint}"
        )
    return names


def _read_pairs(
    pairs: Iterable[tuple[Path, Path]], reader: MaskReader, known: Sequence[int]
) -> Iterator[tuple[Labels, Labels]]:
    """Yield prediction and ground truth of each frame, of one size, with labels among the `known` only."""
    for file, truth_file in pairs:
        prediction, truth = reader.read(file), reader.read(truth_file)
        check_size(f"the prediction {file}", prediction.shape, "its ground truth", truth.shape)
        if unknown := sorted(reader.labels(file) - {*known}):
            expected = (
                f"but the objects are 1 to {max(known)}; use their labels, or pass --objects appearance"
            )
            if unknown[0] == VOID:
                expected = "which is void; pass --binary if the masks are 0 and 255"
            elif len(known) == VOID:
                expected = f"expected proposals from 1 to {VOID - 1}"
            raise DataError(f"the prediction {file} has label {unknown[0]}, {expected}")
        yield prediction, truth
