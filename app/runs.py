"""Training runs for the page: logs that may still grow, as curves for a screen, and checkpoints.

Runs are folders of `training.run.Run` directly inside --models-dir. The log of the embedded model is part of
the package. A client chooses a run by name and never sends a path.
"""

import json
import math
import os
import re
import time
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import pandas as pd

from app.errors import NotHere
from dino_model.weights import EMBEDDED_FILE
from training.doctor import diagnose
from training.recipe import METHODS
from training.run import Run, RunError

POINTS = 500
"""Largest number of points of a curve: about the width of a chart in pixels."""
MAX_CHECKPOINTS = 40
MAX_WARNINGS = 50
DIAGNOSED_EVERY = 100
"""Steps between two diagnoses, as in `training.monitor`."""
LIVE_SECONDS = 120.0
"""Time after its last line for which a run counts as live."""
EMBEDDED_LOG = EMBEDDED_FILE.with_name("log.jsonl")
_MILESTONE = re.compile(r"step-(\d{1,12})\.pt")
_CHECKPOINT = re.compile(r"(?P<run>[^/\\]+)@(?P<which>\d{1,12}|newest\.\d{1,20})")


class Chart(NamedTuple):
    """A plot of a run: title, unit, and labels of its curves by their keys in the log."""

    title: str
    unit: str
    curves: Mapping[str, str]


CHARTS = (
    Chart("Loss", "nats", {"loss": "Loss"}),
    Chart(
        "Teacher entropy and KL",
        "nats",
        {"teacher_entropy": "Teacher entropy", "kl": "KL(teacher, student)", "ln_k": "ln K"},
    ),
    Chart(
        "k-NN accuracy on training images", "top-1, %", {"knn_teacher": "Teacher", "knn_student": "Student"}
    ),
    Chart("Throughput", "images per second", {"images_per_second": "Images per second"}),
)


class Checkpoint(NamedTuple):
    """A model of a run: its name for the engine, its training step if known, and its label."""

    model: str
    step: int | None
    label: str


class Curve(NamedTuple):
    """Steps and values of one quantity."""

    steps: array
    values: array

    def thinned(self, points: int = POINTS) -> tuple[list[float], list[float]]:
        """Return steps and values, or the means of at most `points` bins of them."""
        if len(self.steps) <= points:
            return self.steps.tolist(), self.values.tolist()
        bins = np.array_split(np.array([self.steps, self.values]), points, axis=1)
        steps, values = np.stack([one.mean(axis=1) for one in bins], axis=1).tolist()
        return steps, values


class Log:
    """The contents of a log file that may still grow.

    Steps of a later phase follow those of the phase before. If a step is repeated, as after a resume, the
    later line replaces the earlier ones.

    Attributes:
        lines: Number of records.
        broken: Number of lines that are not a JSON object with a step.
        not_finite: Number of NaN or infinite values by quantity; the curves leave them out.
        phases: Name and first step of each phase; empty if the log names none.
        warnings: Step and sentence of the last `MAX_WARNINGS` faults, one per new cause.
        warning: The fault of the last diagnosis; None without one.
        last: The last step, counted over all phases.
        curves: By quantity.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clear(inode=-1)

    @cached_property
    def _remedy(self) -> str:
        """Options of the pretraining method that avoid a collapse."""
        method = str(_config(self.path.parent).get("method", "dino"))
        return METHODS.get(method, METHODS["dino"]).remedy

    def _clear(self, inode: int) -> None:
        self._inode, self._offset = inode, 0
        self.lines = self.broken = 0
        self.not_finite: dict[str, int] = {}
        self.phases: list[tuple[str, int]] = []
        self.warnings: list[tuple[int, str]] = []
        self.warning: str | None = None
        self.last = -1
        names = [name for chart in CHARTS for name in chart.curves]
        self.curves = {name: Curve(array("q"), array("d")) for name in names}
        self._diagnosed, self._cause = -DIAGNOSED_EVERY, ""

    def read(self) -> None:
        """Parse the complete lines that were added since the last call.

        Raises:
            OSError: If the log does not exist any more.
        """
        with self.path.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._inode or found.st_size < self._offset:  # a resumed run replaces the file
                self._clear(found.st_ino)
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._add(line)

    def _add(self, line: bytes) -> None:
        record = _record(line)
        if record is None:
            self.broken += 1
            return
        self.lines += 1
        step = self._global_step(record)
        for name, curve in self.curves.items():
            value = record.get(name)
            if _is_finite_number(value):
                curve.steps.append(step)
                curve.values.append(value)
            elif isinstance(value, float):
                self.not_finite[name] = self.not_finite.get(name, 0) + 1
        if step - self._diagnosed >= DIAGNOSED_EVERY:
            self._update_warnings(step, record)

    def _update_warnings(self, step: int, record: dict[str, Any]) -> None:
        """Diagnose a line and record each new cause once."""
        self._diagnosed = step
        numbers = {name: float(value) for name, value in record.items() if _is_finite_number(value)}
        self.warning = diagnose(numbers, self._remedy)
        cause = re.sub(r"[\d.]+", "", (self.warning or "").partition(":")[0])
        if self.warning and cause != self._cause:
            self.warnings = [*self.warnings, (step, self.warning)][-MAX_WARNINGS:]
        self._cause = cause

    def _global_step(self, record: dict[str, Any]) -> int:
        """Return the step of a record, counted over all phases."""
        phase = record.get("phase")
        if phase is not None and (not self.phases or self.phases[-1][0] != str(phase)):
            self.phases.append((str(phase), self.last + 1))
        step = int(record["step"]) + (self.phases[-1][1] if self.phases else 0)
        if step <= self.last:
            for curve in self.curves.values():
                start = bisect_left(curve.steps, step)
                del curve.steps[start:], curve.values[start:]
            self.warnings = [(at, sentence) for at, sentence in self.warnings if at < step]
            self._diagnosed, self._cause = -DIAGNOSED_EVERY, ""
        self.last = step
        return step


@dataclass(frozen=True)
class TrainingRun:
    """A run that a client may choose.

    Attributes:
        name, title: The name for requests and the label for people.
        log: The contents of its log so far.
        folder: None for the embedded model, of which only the log is kept.
    """

    name: str
    title: str
    log: Log
    folder: Path | None

    @property
    def planned(self) -> int | None:
        """Number of steps in the run's configuration; None if unknown."""
        config = _config(self.log.path.parent)
        try:
            recipe = config["recipe"]
            return int(recipe["epochs"]) * (int(config["pictures"]) // int(recipe["batch_size"]))
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return None

    @property
    def age(self) -> float:
        """Seconds since the last line."""
        return max(0.0, time.time() - _written(self.log.path))

    @property
    def state(self) -> str:
        """State of the training: live, stopped or finished."""
        planned = self.planned
        if self.folder is None or (planned is not None and self.log.last + 1 >= planned):
            return "finished"
        return "live" if self.age < LIVE_SECONDS else "stopped"

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """Models of the run, oldest first."""
        if self.folder is None:
            return [
                Checkpoint("random:embedded", 0, "untrained: random weights"),
                Checkpoint("embedded", None, "final weights"),
            ]
        names = (_MILESTONE.fullmatch(path.name) for path in self.folder.glob("step-*.pt"))
        steps = sorted(int(name[1]) for name in names if name)
        chosen = np.linspace(0, len(steps) - 1, min(len(steps), MAX_CHECKPOINTS)).round().astype(int)
        found = [
            Checkpoint(f"{self.name}@{step}", step, f"step {step:,}")
            for step in (steps[index] for index in chosen)
        ]
        newest = _version(self.folder)
        if newest is not None:
            found.append(Checkpoint(f"{self.name}@newest.{newest}", None, "newest checkpoint"))
        return found

    @property
    def version(self) -> str:
        """Text that changes whenever the plots or the checkpoints change."""
        log, newest = self.log, [one.model for one in self.checkpoints[-1:]]
        return ".".join(map(str, [self.name, log.lines, log.broken, log.last, self.state, *newest]))


class Runs:
    """The runs in a folder and that of the embedded model. New runs appear without a restart. Thread-safe.

    Args:
        folder: --models-dir; None for the embedded model only.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._logs: dict[Path, Log] = {}
        self._lock = Lock()

    def all(self) -> dict[str, TrainingRun]:
        """Return the runs by name, the last written first and the embedded model last."""
        folders = sorted(_folders(self.folder), key=lambda one: _written(Run(one).log), reverse=True)
        found: list[tuple[str, str, Path, Path | None]] = [
            (folder.name, folder.name, Run(folder).log, folder) for folder in folders
        ]
        if EMBEDDED_LOG.is_file():
            found.append(("embedded", "Training of the embedded model", EMBEDDED_LOG, None))
        runs: dict[str, TrainingRun] = {}
        for name, title, path, folder in found:
            log = self._logs.setdefault(path, Log(path))
            runs.setdefault(name, TrainingRun(name, title, log, folder))
        return runs

    def read(self, name: str) -> TrainingRun:
        """Return a run whose log has been read to its end.

        Raises:
            NotHere: There is no such run, or its log does not exist any more.
        """
        try:
            run = self.all()[name]
            with self._lock:
                run.log.read()
            return run
        except (KeyError, TypeError, OSError) as error:
            raise NotHere("There is no such run (any more): choose another.") from error


def chart_table(
    chart: Chart, runs: Sequence[TrainingRun], *, log_steps: bool = False, log_values: bool = False
) -> pd.DataFrame:
    """Return the curves of one chart as a table with the columns step, value and curve.

    Args:
        chart: Which quantities.
        runs: One run or several; with several, the run's name precedes the curve's.
        log_steps: Replace steps by log10(step + 1).
        log_values: Replace values by log10(value), without values that are not positive.
    """
    rows = []
    for run in runs:
        for key, label in chart.curves.items():
            name = f"{run.name}: {label}" if len(runs) > 1 else label
            for step, value in zip(*run.log.curves[key].thinned(), strict=True):
                if log_values and value <= 0:
                    continue
                at = math.log10(step + 1) if log_steps else round(step, 1)
                rows.append((at, float(f"{math.log10(value) if log_values else value:.6g}"), name))
    return pd.DataFrame(rows, columns=["step", "value", "curve"])


def status_text(run: TrainingRun) -> str:
    """Describe in one line whether a run is live and how many steps are done."""
    age = _duration(run.age)
    state = {"live": f"Live, last line {age} ago", "stopped": f"Stopped: no line for {age}"}
    planned = f" of {run.planned:,}" if run.planned else ""
    phases = "".join(f" · phase {name} from step {start:,}" for name, start in run.log.phases[1:])
    return f"{state.get(run.state, 'Finished')} · {run.log.last + 1:,}{planned} steps{phases}"


def warnings_text(run: TrainingRun) -> str:
    """Return the faults of a run as Markdown: the present one first, then earlier ones. Empty without any."""
    log = run.log
    now = [f"**{log.warning}**"] if log.warning else []
    now += [f"**Values of {name} that are not finite: {count}.**" for name, count in log.not_finite.items()]
    if log.broken:
        now.append(f"**Lines of the log that cannot be read: {log.broken}.**")
    past = [f"- Step {step:,}: {text}" for step, text in log.warnings if text != log.warning]
    return "\n\n".join([*now, *(["\n".join(past)] if past else [])])


def checkpoint_file(name: str, folder: Path | None) -> Path | None:
    """Return the file of a checkpoint by its name, RUN@STEP or RUN@newest.VERSION; None if there is none.

    Args:
        name: Of a `Checkpoint`; any other string finds nothing.
        folder: The folder of the runs.
    """
    parts = _CHECKPOINT.fullmatch(name)
    found = parts and next((one for one in _folders(folder) if one.name == parts["run"]), None)
    if not parts or not found:
        return None
    if parts["which"].isdecimal():
        path = found / f"step-{int(parts['which']):08d}.pt"
        return path if path.is_file() else None
    return Run(found).checkpoint if parts["which"] == f"newest.{_version(found)}" else None


def _is_finite_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _record(line: bytes) -> dict[str, Any] | None:
    """Parse a line; None if it is not an object with a step."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = record.get("step") if isinstance(record, dict) else None
    return record if type(step) is int and 0 <= step < 10**12 else None


def _folders(folder: Path | None) -> list[Path]:
    """Return the folders of runs directly inside a folder."""
    entries = sorted(folder.iterdir()) if folder and folder.is_dir() else []
    return [entry for entry in entries if Run(entry).log.is_file()]


def _config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a run; empty if there is none that can be read."""
    try:
        return Run(folder).config()
    except (RunError, OSError):
        return {}


def _version(folder: Path) -> int | None:
    """Return the modification time of the newest checkpoint in nanoseconds; None without one."""
    try:
        return Run(folder).checkpoint.stat().st_mtime_ns
    except OSError:
        return None


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _duration(seconds: float) -> str:
    for unit, length, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            return f"{round(seconds / length)} {unit}"
    return f"{round(seconds / 86_400)} days"
