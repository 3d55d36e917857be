"""`python -m segmentation score`: J and F of predicted masks, in place of the official DAVIS evaluator."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from dino_model.files import make_room, write_json
from dino_model.progress import progress
from segmentation.commands.common import write_csv
from segmentation.datasets import DavisError, open_davis, sequence_list
from segmentation.davis_eval import (
    Evaluation,
    Faults,
    MaskPairs,
    MissingPredictions,
    Task,
    pair_masks,
    protocol,
    score_sequences,
)

COLUMNS = ("J&F_mean", "J_mean", "J_recall", "J_decay", "F_mean", "F_recall", "F_decay")


@dataclass(frozen=True)
class Score:
    """Region similarity J and contour accuracy F of predicted masks, as DAVIS defines them.

    Both folders hold one folder of PNGs per sequence; their values (palette indices or grey) are the labels.
    A sequence whose masks do not fit together is named and left out of the figures; the exit code is then 1.
    """

    ground_truth: Path | None = None
    """Folder of the true masks, such as DAVIS/Annotations/480p; or see --root."""
    predictions: Path | None = None
    """Folder of the predicted masks."""
    root: Path | None = None
    """Instead of --ground-truth: DAVIS, the folder that holds ImageSets and Annotations; the sequences are
    those of --split."""
    year: Literal[2016, 2017] = 2017
    """Layout of --root: 2017 has labeled objects, 2016 binary masks."""
    split: str = "val"
    """List of sequences in the ImageSets of --root."""
    resolution: str = "480p"
    """Folder of masks within the Annotations of --root."""
    listed: Annotated[Path | None, tyro.conf.arg(name="list")] = None
    """Text file of sequences to score, one per line."""
    sequences: tuple[str, ...] = ()
    """Score only these sequences; all by default."""
    allow_missing: bool = False
    """Score the others where sequences have no predictions."""
    protocol: Task = "semi-supervised"
    """Objects are given by the first mask, or proposals are matched to them."""
    binary: bool = False
    """Every value other than 0 is object 1, as in DAVIS-2016."""
    allow_gaps: bool = False
    """Accept gaps in the frame numbers of the ground truth."""
    csv: Path | None = None
    """File for the table: dataset, sequences and objects."""
    json: Path | None = None
    """File for the scores: `dataset`, `per_sequence`, `per_object` with the scores of every frame."""

    def run(self) -> None:
        """Score, print, write."""
        make_room(self.csv, self.json)
        if self.predictions is None:
            raise DavisError("no --predictions given: name the folder of predicted masks")
        truth, sequences, binary = self._ground_truth()
        pairs, faults = pair_masks(
            truth, self.predictions, self.protocol, sequences, allow_gaps=self.allow_gaps
        )
        missing = [name for name, fault in faults.items() if isinstance(fault, MissingPredictions)]
        if missing and not self.allow_missing:
            raise DavisError(
                f"{self.predictions} has no predictions of {len(missing)} of {len(pairs) + len(faults)} "
                f"sequences ({', '.join(missing)[:300]}): name those to score with --root and --split, "
                "--list or --sequences, or pass --allow-missing to score the others"
            )
        evaluation = evaluate(pairs, faults, self.protocol, binary=binary)
        print(table(evaluation))
        write(evaluation, self.csv, self.json)
        broken = [name for name in evaluation.not_scored if name not in missing]
        if broken:
            raise DavisError(f"{len(broken)} sequences are not in the figures: {', '.join(broken)[:300]}")

    def _ground_truth(self) -> tuple[Path, tuple[str, ...], bool]:
        """Return the folder of true masks, the sequences to score (none: all), whether masks are binary."""
        if (self.ground_truth is None) == (self.root is None):
            raise DavisError("pass either --ground-truth FOLDER or --root DAVIS")
        named = self.sequences if self.listed is None else (*self.sequences, *sequence_list(self.listed))
        if self.ground_truth is not None:
            return self.ground_truth, named, self.binary
        assert self.root is not None
        dataset = open_davis(
            self.root, year=self.year, split=self.split, resolution=self.resolution, sequences=named
        )
        return dataset.masks, dataset.sequences, self.binary or dataset.binary


def evaluate(
    pairs: Sequence[MaskPairs],
    faults: Faults,
    task: Task,
    *,
    binary: bool,
    settings: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Score one sequence after the other, with a line of progress.

    Args:
        pairs, faults: see `pair_masks`.
        task, binary: see `score_folders`.
        settings: how the masks were made.

    Raises:
        ValueError: no sequence can be scored.
    """
    objects, left_out = [], {name: str(fault) for name, fault in faults.items()}
    scored = score_sequences(pairs, task, binary=binary)
    for one, found in zip(pairs, progress(scored, "score", len(pairs)), strict=True):
        if isinstance(found, ValueError):
            left_out[one.sequence] = str(found)
        else:
            objects += found
    if not objects:
        raise DavisError(next(iter(left_out.values()), "there is no sequence to score"))
    return Evaluation({**protocol(task, binary=binary), **(settings or {})}, tuple(objects), left_out)


def table(evaluation: Evaluation) -> str:
    """Format protocol and scores in percent: the data set, then every sequence and object."""
    rows = evaluation.rows()
    width = max(len("protocol"), *(len(row["name"]) for row in rows))
    lines = [described("protocol", evaluation.protocol)]
    lines.append(" " * width + "".join(f"{column.replace('_', ' '):>10}" for column in COLUMNS))
    for level in ("object", "sequence", "dataset"):
        lines.append("")
        lines += [
            f"{row['name']:<{width}}" + "".join(f"{row[column] * 100:>10.1f}" for column in COLUMNS)
            for row in rows
            if row["level"] == level
        ]
    if evaluation.not_scored:
        lines += ["", f"not scored, and in none of the means: {len(evaluation.not_scored)}"]
        lines += [f"  {name}: {why}" for name, why in evaluation.not_scored.items()]
    return "\n".join(lines)


def described(title: str, settings: Mapping[str, Any]) -> str:
    """Format settings as lines of text."""
    text = "; ".join(f"{key} {value}" for key, value in settings.items())
    return textwrap.fill(text, 110, initial_indent=f"{title}: ", subsequent_indent=" " * (len(title) + 2))


def write(evaluation: Evaluation, table_file: Path | None, json_file: Path | None) -> None:
    """Write the table as CSV and all scores as JSON, where a file is named."""
    if table_file is not None:
        write_csv(table_file, ("level", "name", *COLUMNS), evaluation.rows())
    if json_file is not None:
        write_json(json_file, evaluation.as_json())
