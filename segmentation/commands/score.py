"""`python -m segmentation score`: J and F of predicted masks, in place of the official DAVIS evaluator."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from dino_model.runtime.files import make_room, write_json
from dino_model.runtime.progress import progress
from segmentation.commands.common import MaskOptions, format_settings
from segmentation.datasets import read_names
from segmentation.davis_eval import Objects, mean_scores, score_folders
from segmentation.labels import DataError

COLUMNS = ("J&F_mean", "J_mean", "J_recall", "J_decay", "F_mean", "F_recall", "F_decay")

track_scores = partial(progress, name="score")


@dataclass(frozen=True, kw_only=True)
class Score(MaskOptions):
    """Region similarity J and contour accuracy F of predicted masks, as DAVIS defines them.

    Both folders hold one folder of PNGs per sequence; their values (palette indices or gray) are the labels.
    A sequence whose masks are missing or do not fit is named and left out of the means; the exit code is then
    1.
    """

    ground_truth: Path
    """Folder of the true masks, such as DAVIS/Annotations/480p."""
    predictions: Path
    """Folder of the predicted masks."""
    sequence_list: Annotated[Path | None, tyro.conf.arg(name="list")] = None
    """Text file of sequences to score, one per line, such as ImageSets/2017/val.txt; all by default."""
    frames: Path | None = None
    """Text file with frames in their order, one SEQUENCE/FRAME a line."""
    protocol: Literal["semi-supervised", "unsupervised"] = "semi-supervised"
    """Predictions have the labels of the objects, or are proposals that are matched to them."""
    objects: Objects = "first-mask"
    """first-mask: labels 1 to the highest of the first true mask, as officially. appearance: every label,
    after the first true mask that has it, as YouTube-VOS does."""
    json: Path | None = None
    """File for the scores: `dataset`, `per_sequence`, `per_object` with the scores of every frame."""

    def run(self) -> None:
        """Score, print, write."""
        make_room(self.json)
        sequences: tuple[str, ...] = ()
        if self.sequence_list is not None:
            sequences = read_names(
                self.sequence_list, [folder.name for folder in self.ground_truth.glob("*/")]
            )
        scores = score_folders(
            self.ground_truth,
            self.predictions,
            sequences=sequences,
            task=self.protocol,
            objects=self.objects,
            rules=self.mask_rules(),
            listed=self.frames,
            progress=track_scores,
        )
        print(format_scores(scores))
        if self.json:
            write_json(self.json, scores)
        if missing := list(scores["not_scored"]):
            raise DataError(f"{len(missing)} sequences are not scored: {', '.join(missing)[:300]}")


def format_scores(scores: Mapping[str, Any]) -> str:
    """Format the result of `score_folders` in percent: objects, then sequences, then the data set."""
    objects = {name: mean_scores([each]) for name, each in scores["per_object"].items()}
    groups = objects, scores["per_sequence"], {"all": scores["dataset"]}
    width = max(map(len, ("protocol", *objects)))
    lines = [format_settings("protocol", scores["protocol"])]
    lines.append(" " * width + "".join(f"{column.replace('_', ' '):>10}" for column in COLUMNS))
    for rows in groups:
        lines.append("")
        for name, row in rows.items():
            cells = (f"{row[column] * 100:>10.1f}" for column in COLUMNS)
            lines.append(f"{name:<{width}}" + "".join(cells))
    if scores["notes"]:
        lines += ["", *(f"note: {note}" for note in scores["notes"])]
    if not_scored := scores["not_scored"]:
        lines += ["", f"not scored, and in none of the means: {len(not_scored)}"]
        lines += [f"  {name}: {reason}" for name, reason in not_scored.items()]
    return "\n".join(lines)
