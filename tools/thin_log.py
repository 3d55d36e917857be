"""Merge and shorten logs of runs: `python -m tools.thin_log RUN … --output FILE [--every 50]`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import tyro
from tyro.conf import Positional

from dino_model.runtime.files import write_text
from training.run.folder import Run


def thin(logs: Sequence[Sequence[dict[str, Any]]], every: int) -> list[dict[str, Any]]:
    """Merge `every` steps of each log: its number as phase, the last step, and the mean of every metric.

    Args:
        logs: Lines of the logs of runs; a metric may be missing in some lines.
        every: Steps per merged line.
    """
    lines = pd.concat(pd.DataFrame(log).assign(phase=number) for number, log in enumerate(logs, start=1))
    groups = lines.groupby(["phase", lines["step"] // every])
    last, means = groups["step"].max(), groups.mean().drop(columns="step")
    return [
        {"phase": int(phase), "step": int(step)}
        | {name: float(f"{value:.6g}") for name, value in row.items() if pd.notna(value)}
        for ((phase, _), step), row in zip(last.items(), means.to_dict("records"), strict=True)
    ]


def main(runs: Positional[tuple[Path, ...]], output: Path, every: int = 50) -> None:
    """Write means over some steps of the logs of runs.

    Args:
        runs: Folders of runs, one for each phase of the training.
        output: File to write.
        every: Steps per line.
    """
    lines = thin([Run(folder).lines() for folder in runs], every)
    write_text(output, "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))
    print(f"{len(lines):,} lines: {output}")


if __name__ == "__main__":
    tyro.cli(main, prog="python -m tools.thin_log")
