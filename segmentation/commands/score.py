"""`python -m segmentation score`: J and F of anybody's masks, in place of the official DAVIS evaluator."""

import csv
import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dino_model.files import make_room
from segmentation import export
from segmentation.commands.progress import progress
from segmentation.scoring import Evaluation, MaskPairs, Task, pair_masks, protocol, score_sequences

COLUMNS = ("J&F_mean", "J_mean", "J_recall", "J_decay", "F_mean", "F_recall", "F_decay")


@dataclass(frozen=True)
class Score:
    """Region similarity J and contour accuracy F of predicted masks, as DAVIS defines them.

    Both folders hold one folder of PNGs per sequence; their values (palette indices or grey) are the labels.
    """

    ground_truth: Path
    """Folder of the true masks, such as DAVIS/Annotations/480p."""
    predictions: Path
    """Folder of the predicted masks."""
    protocol: Task = "semi-supervised"
    """Objects are given by the first mask, or proposals are matched to them."""
    sequences: tuple[str, ...] = ()
    """Score only these sequences; all of the ground truth by default."""
    binary: bool = False
    """Every value but 0 is object 1, as in DAVIS-2016."""
    allow_gaps: bool = False
    """Let the frame numbers of the ground truth jump."""
    csv: Path | None = None
    """File for the table: dataset, sequences and objects."""
    json: Path | None = None
    """File for the figures: `dataset`, `per_sequence`, `per_object` with the scores of every frame."""

    def run(self) -> None:
        """Score, print, write."""
        make_room(self.csv, self.json)
        pairs = pair_masks(
            self.ground_truth, self.predictions, self.protocol, self.sequences, allow_gaps=self.allow_gaps
        )
        evaluation = evaluate(pairs, self.protocol, binary=self.binary)
        print(table(evaluation))
        write(evaluation, self.csv, self.json)


def evaluate(
    pairs: Sequence[MaskPairs], task: Task, *, binary: bool, settings: Mapping[str, Any] | None = None
) -> Evaluation:
    """Score one sequence after the other, with a line of progress; `settings` tell how the masks were
    made."""
    scored = zip(progress(pairs, "score"), score_sequences(pairs, task, binary=binary), strict=True)
    objects = [one for _, found in scored for one in found]
    return Evaluation({**protocol(task, binary=binary), **(settings or {})}, tuple(objects))


def table(evaluation: Evaluation) -> str:
    """Protocol and figures in percent: the data set, then every sequence and object."""
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
    return "\n".join(lines)


def described(title: str, settings: Mapping[str, Any]) -> str:
    """Settings as lines of text."""
    text = "; ".join(f"{key} {value}" for key, value in settings.items())
    return textwrap.fill(text, 110, initial_indent=f"{title}: ", subsequent_indent=" " * (len(title) + 2))


def write(evaluation: Evaluation, table_file: Path | None, json_file: Path | None) -> None:
    """The table as CSV and all figures as JSON, where a file is named."""
    if table_file is not None:
        text = io.StringIO()
        writer = csv.DictWriter(text, ("level", "name", *COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(evaluation.rows())
        export.write_text(table_file, text.getvalue())
    if json_file is not None:
        export.write_json(json_file, evaluation.as_json())
