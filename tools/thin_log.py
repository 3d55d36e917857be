"""Merge and shorten logs of runs: `python -m tools.thin_log LOG … --output FILE [--every 50]`."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import tyro
from tyro.conf import Positional

from dino_model import files
from dino_model.errors import SettingError
from training.run import Run
from training.settings import at_least

Record = dict[str, Any]


@dataclass(frozen=True)
class ThinLog:
    """Merge the logs of one or more runs and shorten them to means over --every steps."""

    logs: Positional[tuple[Path, ...]]
    """Runs or their logs, one for each phase of the training; a log that names phases keeps them."""
    output: Path
    """File to write."""
    every: int = 50
    """Steps per line."""

    def run(self) -> None:
        """Read, merge, write."""
        at_least(self, every=1)
        files.make_room(self.output)
        records = [read_log(Run(path).log if path.is_dir() else path) for path in self.logs]
        short = list(thinned(in_phases(records), self.every))
        lines = (json.dumps(record, allow_nan=False) + "\n" for record in short)
        files.write_text(self.output, "".join(lines))
        print(f"{sum(map(len, records)):,} lines merged into {len(short):,}: {self.output}")


def read_log(path: Path) -> list[Record]:
    """Read every line of a log.

    Raises:
        SettingError: A line that is no JSON object with a step.
        OSError: The file cannot be read.
    """
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
            int(record["step"])
        except (ValueError, TypeError, KeyError):
            raise SettingError(
                f"line {number} of {path} is no JSON object with a step: {line[:40]!r}"
            ) from None
        records.append(record)
    return records


def in_phases(logs: Iterable[list[Record]]) -> Iterator[Record]:
    """Number the records of logs without phases by the next phase, from 1."""
    phase = 0
    for log in logs:
        following = phase + 1
        for record in log:
            phase = record.get("phase", following)
            yield {"phase": phase} | record


def thinned(records: Iterable[Record], every: int) -> Iterator[Record]:
    """Merge `every` steps of a phase: the last step, and the mean of every metric."""
    for _, group in groupby(records, lambda record: (record["phase"], record["step"] // every)):
        merged = list(group)
        names = dict.fromkeys(name for record in merged for name in record if name not in ("phase", "step"))
        means = {name: fmean(record[name] for record in merged if name in record) for name in names}
        last = {name: merged[-1][name] for name in ("phase", "step")}
        yield last | {name: float(f"{value:.6g}") for name, value in means.items()}


if __name__ == "__main__":
    tyro.cli(ThinLog).run()
