"""Training runs for the page: logs that may still grow, as curves for a screen, and checkpoints.

Runs are folders of `training.run.folder.Run` directly inside --models-dir. The logs of the shipped models are
part of the package. A client chooses a run by name and never sends a path.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.limits.errors import NotHere
from dino_model.models.catalogue import EMBEDDED
from dino_model.models.run_folder import LOG
from training.run.doctor import RunSettings, diagnose, run_settings
from training.run.folder import Run, RunError
from training.run.log import KNN, LOSS, TERMS, Panel, logged_names, metric_names, read_log

POINTS = 300
"""Largest number of points of a curve: about the width of a chart in pixels."""
MAX_CHECKPOINTS = 40
SHIPPED = {
    "embedded-dino": ("Training of embedded-dino", EMBEDDED["embedded-dino"].with_name(LOG)),
    "embedded": ("Distillation of embedded", EMBEDDED["embedded"].with_name(LOG)),
}
"""Titles and logs of the runs that trained the models of the package."""
CHARTS = (LOSS, TERMS, KNN)
"""Panels of a log that the page shows."""


class Checkpoint(NamedTuple):
    """A model of a run: its name in `app.store.models`, its label, and its step."""

    model: str
    label: str
    step: int


@dataclass(frozen=True)
class Log:
    """The complete lines of a log file, in which steps of a later phase follow those of the phase before.

    Attributes:
        last: The last step; -1 without lines.
        newest: The finite numbers of the last record.
        broken: Number of lines that are not a JSON object with a step.
        not_finite: Number of NaN or infinite values by quantity; the curves leave them out.
        phases: First steps of all phases but the first.
        curves: By quantity, steps and values as [2, points]: all, or the means of `POINTS` bins of them.
    """

    last: int
    newest: Mapping[str, float]
    broken: int
    not_finite: Mapping[str, int]
    phases: tuple[int, ...]
    curves: Mapping[str, NDArray[np.float64]]


@lru_cache(64)
def summarize_log(path: Path, version: tuple[int, int]) -> Log:
    """Read a log with this modification time and size; raise OSError if it cannot be read."""
    records, damaged = read_log(path)
    steps: list[int] = []
    phase, first, phases = None, 0, []
    for record in records:
        if record.get("phase", phase) != phase:
            phase, first = record["phase"], steps[-1] + 1 if steps else 0
            phases.append(first)
        steps.append(first + record["step"])
    charted = [name for chart in CHARTS for name in chart.select(logged_names(records))]
    curves, not_finite = {}, {}
    for name in dict.fromkeys([*metric_names(records), *charted]):
        pairs = zip(steps, (record.get(name) for record in records), strict=True)
        curve = np.array([pair for pair in pairs if type(pair[1]) in (int, float)], np.float64).reshape(-1, 2)
        finite = np.isfinite(curve[:, 1])
        curves[name], not_finite[name] = _thin(curve[finite].T), int((~finite).sum())
    newest = (records or [{}])[-1].items()
    return Log(
        last=steps[-1] if steps else -1,
        newest={name: one for name, one in newest if type(one) in (int, float) and math.isfinite(one)},
        broken=len(damaged),
        not_finite={name: count for name, count in not_finite.items() if count},
        phases=tuple(phases[1:]),
        curves=curves,
    )


@dataclass(frozen=True)
class TrainingRun:
    """A run by its name; `folder` is None for a run of `SHIPPED`, of which only the log is kept."""

    name: str
    folder: Path | None
    log: Log

    @property
    def settings(self) -> RunSettings | None:
        """The run's configuration; None if it cannot be read."""
        try:
            return run_settings(Run(self.folder or SHIPPED[self.name][1].parent).config())
        except (RunError, OSError, KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError):
            return None

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """Models of the run, oldest first."""
        if self.folder is None:
            return [
                Checkpoint("random:embedded", "untrained: random weights", 0),
                Checkpoint(self.name, "final weights", self.log.last),
            ]
        kept = milestones(self.folder)
        found = [Checkpoint(f"{self.name}@{step}", f"step {step:,}", step) for step, _ in kept]
        newest = Checkpoint(self.name, "newest checkpoint", self.log.last)
        return [*found, newest] if Run(self.folder).checkpoint.is_file() else found


class Runs:
    """The runs in --models-dir and those of the package. New runs appear without a restart."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def folders(self) -> dict[str, Path | None]:
        """Return the folders of runs by name, the last written first, and None for those of the package."""
        folders = sorted(run_folders(self.folder), key=lambda folder: -Run(folder).log.stat().st_mtime_ns)
        found: dict[str, Path | None] = {folder.name: folder for folder in folders}
        return found | {name: None for name in SHIPPED if name not in found}

    def choices(self) -> list[tuple[str, str]]:
        """Return (title, name) of every run, for a dropdown."""
        return [(name if folder else SHIPPED[name][0], name) for name, folder in self.folders().items()]

    def read(self, name: str) -> TrainingRun:
        """Return a run whose log has been read to its end."""
        try:
            folder = self.folders()[name]
            path = Run(folder).log if folder else SHIPPED[name][1]
            status = path.stat()
            return TrainingRun(name, folder, summarize_log(path, (status.st_mtime_ns, status.st_size)))
        except (KeyError, TypeError, OSError) as error:
            raise NotHere("There is no such run (any more): choose another.") from error


def chart_value(chart: Panel, run: TrainingRun) -> dict[str, Any]:
    """Return the value of a chart view: title and curves, which are interrupted between two phases."""
    curves = []
    for key, label in chart.select(run.log.curves).items():
        steps, values = run.log.curves[key]
        points: list[tuple[float, float | None]] = [
            (round(step, 1), float(f"{value:.6g}"))
            for step, value in zip(steps.tolist(), values.tolist(), strict=True)
        ]
        points += [(step - 0.5, None) for step in run.log.phases]
        points.sort(key=lambda point: point[0])
        if len(steps):
            curves.append({"label": label, "points": points})
    return {"title": chart.title, "curves": curves}


def status_text(run: TrainingRun) -> str:
    """Describe the steps that are done, and the phases."""
    found, log = run.settings, run.log
    planned = f" of {found.steps:,}" if found else " of an unknown number of" if run.folder else ""
    phases = f" in {len(log.phases) + 1} phases, whose losses may have other terms" if log.phases else ""
    return f"{log.last + 1:,}{planned} steps{phases}"


def warnings_text(run: TrainingRun) -> str:
    """Return the present faults of a run as Markdown; empty without any."""
    log, known = run.log, run.settings
    collapse = diagnose(log.newest, known.remedy if known else RunSettings.remedy)
    found = [collapse] if collapse else []
    found += [f"Values of {name} that are not finite: {count}." for name, count in log.not_finite.items()]
    found += [f"Lines of the log that cannot be read: {log.broken}."] if log.broken else []
    return "\n\n".join(f"**{text}**" for text in found)


def milestones(folder: Path) -> list[tuple[int, Path]]:
    """Return steps and files of the kept checkpoints of a run, oldest first, at most `MAX_CHECKPOINTS`."""
    files = Run(folder).milestones()
    chosen = np.linspace(0, len(files) - 1, min(len(files), MAX_CHECKPOINTS)).round().astype(int)
    return [files[index] for index in chosen]


def _thin(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    if curve.shape[1] <= POINTS:
        return curve
    return np.stack([part.mean(axis=1) for part in np.array_split(curve, POINTS, axis=1)], axis=1)


def run_folders(folder: Path | None) -> list[Path]:
    """Return the folders with a log directly inside a folder, by name."""
    entries = sorted(folder.iterdir()) if folder and folder.is_dir() else []
    return [entry for entry in entries if Run(entry).log.is_file()]
