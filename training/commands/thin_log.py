"""Short logs: means over equal numbers of steps, of one run or of several phases one after the other.

The log that ships with the embedded model was made so, see docs/embedded-model.md.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from tyro.conf import Positional

from dino_model import files
from training.run import Run

Record = dict[str, Any]


@dataclass(frozen=True)
class ThinLog:
    """Write the logs of one or more runs as one that is short, with means over --every steps."""

    logs: Positional[tuple[Path, ...]]
    """Runs or their logs, one for each phase of the training; a log that names phases keeps them."""
    output: Path
    """File to write to; the page draws it as it draws a run's log."""
    every: int = 50
    """Steps behind a line."""

    def run(self) -> None:
        """Read, thin, write."""
        if self.every < 1:
            raise ValueError(f"--every is {self.every}, expected at least 1")
        files.make_room(self.output)
        records = [read_log(Run(path).log if path.is_dir() else path) for path in self.logs]
        short = list(thinned(in_phases(records), self.every))
        lines = (json.dumps(record, allow_nan=False) + "\n" for record in short)
        files.write_text(self.output, "".join(lines))
        print(f"{sum(map(len, records)):,} lines made into {len(short):,}: {self.output}")


def read_log(path: Path) -> list[Record]:
    """Every line of a log.

    Raises:
        ValueError: a line that is no JSON object with a step.
        OSError: it cannot be read.
    """
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
            int(record["step"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"line {number} of {path} is no JSON object with a step: {line[:40]!r}"
            ) from error
        records.append(record)
    return records


def in_phases(logs: Iterable[list[Record]]) -> Iterator[Record]:
    """All records in order; those of a log without phases get the number that comes next, from 1."""
    phase = 0
    for log in logs:
        following = phase + 1
        for record in log:
            phase = record.get("phase", following)
            yield {"phase": phase} | record


def thinned(records: Iterable[Record], every: int) -> Iterator[Record]:
    """One record for `every` steps of a phase: the last step and, of every quantity, the mean of its values.

    What was thinned so before stays as it is.
    """
    for _, together in groupby(records, lambda record: (record["phase"], record["step"] // every)):
        yield _mean(list(together))


def _mean(records: list[Record]) -> Record:
    names = dict.fromkeys(name for record in records for name in record if name not in ("phase", "step"))
    means = {name: fmean(record[name] for record in records if name in record) for name in names}
    last = records[-1]
    return {"phase": last["phase"], "step": last["step"]} | {k: float(f"{v:.6g}") for k, v in means.items()}
