"""Training runs for the page: logs that may still grow, reduced to the width of a screen, and checkpoints.

Runs are the folders that `training.checkpoint` writes directly inside --models-dir. The log of the embedded
model is part of the package. A client chooses a run by name and never sends a path.
"""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeGuard

import pandas as pd

from app.errors import NotHere
from dino_model.weights import EMBEDDED_FILE
from training.recipe import METHODS
from training.run import Run, RunError

Diagnosis = Callable[[Mapping[str, float]], str | None]
"""Returns a sentence if a line of a log shows a fault, such as a collapse."""

MAX_CURVES = 20
POINTS = 500
"""Largest number of points of a curve: about the width of a chart in pixels."""
MAX_CHECKPOINTS = 40
MAX_WARNINGS = 50
DIAGNOSED_EVERY = 100
"""Steps between two diagnoses, as in `training.monitor`."""
LIVE_SECONDS = 120.0
"""A run counts as live for so long after its last line."""
QUANTITIES = (
    "loss",
    "teacher_entropy",
    "kl",
    "ln_k",
    "knn_teacher",
    "knn_student",
    "images_per_second",
)
"""Keys of a log that are plotted; knn_NAME of other networks of a method is plotted as well."""
EMBEDDED_LOG = EMBEDDED_FILE.with_name("log.jsonl")
_MILESTONE = re.compile(r"step-(\d{1,12})\.pt")
_CHECKPOINT = re.compile(r"(?P<run>[^/\\]+)@(?P<which>\d{1,12}|newest\.\d{1,20})")


class Chart(NamedTuple):
    """One plot of a run: title, unit, and labels of its curves by their keys in the log."""

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


class Curve:
    """Means of one quantity over bins of steps; the bins double in width when there are too many.

    Memory is bounded for runs of any length, and a rare quantity keeps its exact steps.
    """

    def __init__(self, points: int = POINTS) -> None:
        self.points = points
        self.width = 1  # steps per bin
        self._bins: dict[int, tuple[float, float, int]] = {}  # sum of steps, sum of values, count

    def add(self, step: int, value: float) -> None:
        """Add a finite value."""
        self._put(step // self.width, step, value, 1)
        if len(self._bins) > self.points:
            bins, self._bins, self.width = self._bins, {}, 2 * self.width
            for number, entry in bins.items():
                self._put(number // 2, *entry)

    def cut(self, step: int) -> None:
        """Remove the values from `step` on, to the width of a bin."""
        self._bins = {number: entry for number, entry in self._bins.items() if number < step // self.width}

    def steps_and_values(self) -> tuple[list[float], list[float]]:
        """Return mean step and mean value of every bin, in the order of the steps."""
        entries = [self._bins[number] for number in sorted(self._bins)]
        return [s / n for s, _, n in entries], [v / n for _, v, n in entries]

    def _put(self, number: int, steps: float, values: float, count: int) -> None:
        s, v, n = self._bins.get(number, (0.0, 0.0, 0))
        self._bins[number] = (s + steps, v + values, n + count)


@dataclass
class Curves:
    """The contents of a log so far, read line by line.

    Steps of a later phase follow those of the phase before. If a step is repeated, as after a resume, the
    later line replaces the earlier ones.

    Attributes:
        diagnose: The diagnosis of the run's method.
        lines: Number of records.
        broken: Number of lines that are not a JSON object with a step.
        not_finite: Number of NaN or infinite values by quantity; the curves leave them out.
        phases: Name and first step of each phase; empty if the log names none.
        warnings: Step and sentence of the last `MAX_WARNINGS` faults, one per new cause.
        last: The last step, counted over all phases.
        curves: By quantity.
    """

    diagnose: Diagnosis = lambda line: None
    lines: int = 0
    broken: int = 0
    not_finite: dict[str, int] = field(default_factory=dict)
    phases: list[tuple[str, int]] = field(default_factory=list)
    warnings: list[tuple[int, str]] = field(default_factory=list)
    last: int = -1
    curves: dict[str, Curve] = field(default_factory=lambda: {name: Curve() for name in QUANTITIES})
    _diagnosed: int = -(10**9)
    _cause: str = ""

    def add(self, line: bytes) -> None:
        """Add one complete line."""
        record = _record(line)
        if record is None:
            self.broken += 1
            return
        self.lines += 1
        step = self._global_step(record)
        for name in record.keys() - self.curves.keys():
            if name.startswith("knn_") and len(self.curves) < MAX_CURVES:
                self.curves[name] = Curve()
        for name, curve in self.curves.items():
            value = record.get(name)
            if _is_finite_number(value):
                curve.add(step, float(value))
            elif isinstance(value, float):
                self.not_finite[name] = self.not_finite.get(name, 0) + 1
        self._update_warnings(step, record)

    @property
    def warning(self) -> str | None:
        """The fault of the last diagnosis; None without one."""
        return self.warnings[-1][1] if self.warnings and self._cause else None

    def _update_warnings(self, step: int, record: dict[str, Any]) -> None:
        """Diagnose every hundredth step and record each new cause once."""
        if "warning" not in record and step - self._diagnosed < DIAGNOSED_EVERY:
            return
        self._diagnosed = step
        numbers = {name: float(value) for name, value in record.items() if _is_finite_number(value)}
        sentence = str(record.get("warning") or self.diagnose(numbers) or "")
        cause = re.sub(r"[\d.]+", "", sentence.partition(":")[0])
        if sentence and cause != self._cause:
            self.warnings = [*self.warnings, (step, sentence)][-MAX_WARNINGS:]
        self._cause = cause

    def _global_step(self, record: dict[str, Any]) -> int:
        """Return the step of a record, counted over all phases."""
        phase = record.get("phase")
        if phase is not None and (not self.phases or self.phases[-1][0] != str(phase)):
            self.phases.append((str(phase), self.last + 1))
        step = record["step"] + (self.phases[-1][1] if self.phases else 0)
        if step <= self.last:
            for curve in self.curves.values():
                curve.cut(step)
            self.warnings = [(at, sentence) for at, sentence in self.warnings if at < step]
            self._diagnosed, self._cause = -DIAGNOSED_EVERY, ""
        self.last = step
        return int(step)


class GrowingLog:
    """A log file that may still grow; `read` parses only what was added."""

    def __init__(self, path: Path, diagnose: Diagnosis = lambda line: None) -> None:
        self.path, self._diagnose = path, diagnose
        self._inode = -1  # a resumed run replaces the file
        self._offset = 0
        self._curves = Curves(diagnose)

    def read(self) -> Curves:
        """Return the curves up to the last complete line.

        Raises:
            OSError: If the log does not exist any more.
        """
        with self.path.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._inode or found.st_size < self._offset:
                self._inode, self._offset, self._curves = found.st_ino, 0, Curves(self._diagnose)
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._curves.add(line)
            return self._curves


@dataclass(frozen=True)
class TrainingRun:
    """A run that a client may choose.

    Attributes:
        name, title: The name for requests and the label for people.
        log: The log file.
        folder: None for the embedded model, of which only the log is kept.
    """

    name: str
    title: str
    log: Path
    folder: Path | None

    def planned_steps(self) -> int | None:
        """Return the number of steps in the run's configuration; None if unknown."""
        if self.folder is None:
            return None
        try:
            config = Run(self.folder).config()
            recipe = config["recipe"]
            return int(recipe["epochs"]) * (int(config["pictures"]) // int(recipe["batch_size"]))
        except (RunError, OSError, KeyError, TypeError, ValueError, ZeroDivisionError):
            return None

    def method(self) -> str:
        """Return the name of the pretraining method; "dino" if the run does not say."""
        try:
            return "dino" if self.folder is None else str(Run(self.folder).config().get("method", "dino"))
        except RunError:
            return "dino"

    def checkpoints(self) -> list[Checkpoint]:
        """Return the models of the run, oldest first."""
        if self.folder is None:
            return [
                Checkpoint("random:embedded", 0, "untrained: random weights"),
                Checkpoint("embedded", None, "final weights"),
            ]
        found = [
            Checkpoint(f"{self.name}@{step}", step, f"step {step:,}")
            for step in _thinned(_milestones(self.folder), MAX_CHECKPOINTS)
        ]
        newest = _version(self.folder)
        if newest is not None:
            found.append(Checkpoint(f"{self.name}@newest.{newest}", None, "newest checkpoint"))
        return found


@dataclass(frozen=True)
class RunStatus:
    """What the page shows of a run at one moment.

    Attributes:
        name: Of the run.
        curves: The contents of its log.
        planned: Planned number of steps; None if unknown.
        state: "live", "stopped" or "finished".
        age: Seconds since the last line; None for the embedded model.
        checkpoints: Its models, oldest first.
        version: Changes whenever the plots or the checkpoints change.
    """

    name: str
    curves: Curves
    planned: int | None
    state: str
    age: float | None
    checkpoints: list[Checkpoint]
    version: str

    @property
    def steps(self) -> int:
        """Finished steps over all phases."""
        return self.curves.last + 1


class Runs:
    """The runs in a folder and that of the embedded model. New runs appear without a restart. Thread-safe.

    Args:
        folder: --models-dir; None for the embedded model only.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._logs: dict[Path, GrowingLog] = {}
        self._lock = Lock()

    def all(self) -> dict[str, TrainingRun]:
        """Return the runs by name, the last written first and the embedded model last."""
        found = sorted(_runs(self.folder), key=lambda run: _written(run.log), reverse=True)
        embedded = TrainingRun("embedded", "Training of the embedded model", EMBEDDED_LOG, None)
        runs = {run.name: run for run in found}
        return runs if "embedded" in runs or not EMBEDDED_LOG.is_file() else runs | {"embedded": embedded}

    def status(self, name: str) -> RunStatus:
        """Read a run.

        Raises:
            NotHere: If there is no such run, or its log does not exist any more.
        """
        try:
            run = self.all()[name]
            with self._lock:
                log = self._logs.setdefault(run.log, GrowingLog(run.log, _diagnosis(run.method())))
                return _status(run, log.read())
        except (KeyError, TypeError, OSError) as error:
            raise NotHere("There is no such run (any more): choose another.") from error


def _status(run: TrainingRun, curves: Curves) -> RunStatus:
    planned, checkpoints = run.planned_steps(), run.checkpoints()
    age = None if run.folder is None else max(0.0, time.time() - _written(run.log))
    if age is None or (planned is not None and curves.last + 1 >= planned):
        state = "finished"
    else:
        state = "live" if age < LIVE_SECONDS else "stopped"
    newest = checkpoints[-1].model if checkpoints else ""
    version = f"{run.name}.{curves.lines}.{curves.broken}.{curves.last}.{state}.{newest}"
    return RunStatus(run.name, curves, planned, state, age, checkpoints, version)


def chart_table(
    chart: Chart, statuses: Sequence[RunStatus], *, log_steps: bool = False, log_values: bool = False
) -> pd.DataFrame:
    """Return the curves of one chart as a table with the columns step, value and curve.

    Args:
        chart: Which quantities.
        statuses: One run or several; with several, the run's name precedes the curve's.
        log_steps: Replace steps by log10(step + 1).
        log_values: Replace values by log10(value), without values that are not positive.
    """
    rows = []
    for status in statuses:
        for key, label in chart.curves.items():
            curve = status.curves.curves.get(key)
            name = f"{status.name}: {label}" if len(statuses) > 1 else label
            for step, value in zip(*curve.steps_and_values(), strict=True) if curve else ():
                if log_values and value <= 0:
                    continue
                at = math.log10(step + 1) if log_steps else round(step, 1)
                rows.append((at, float(f"{math.log10(value) if log_values else value:.6g}"), name))
    return pd.DataFrame(rows, columns=["step", "value", "curve"])


def status_text(status: RunStatus) -> str:
    """Describe in one line whether a run is live and how many steps are done."""
    age = _duration(status.age or 0)
    state = {"live": f"Live, last line {age} ago", "stopped": f"Stopped: no line for {age}"}
    planned = f" of {status.planned:,}" if status.planned else ""
    phases = "".join(f" · phase {name} from step {start:,}" for name, start in status.curves.phases[1:])
    return f"{state.get(status.state, 'Finished')} · {status.steps:,}{planned} steps{phases}"


def warnings_text(status: RunStatus) -> str:
    """Return the faults of a run as Markdown: the present one first, then earlier ones. Empty without any."""
    curves = status.curves
    faults = [f"{name} was not finite {_times(count)}" for name, count in curves.not_finite.items()]
    if curves.broken:
        faults.append(f"{curves.broken} {'line' if curves.broken == 1 else 'lines'} could not be read")
    now = [curves.warning] if curves.warning else []
    if faults:
        now.append(f"In this log {', '.join(faults)}.")
    past = [f"- Step {step:,}: {text}" for step, text in curves.warnings if text != curves.warning]
    return "\n\n".join([*(f"**{sentence}**" for sentence in now), *(["\n".join(past)] if past else [])])


def checkpoint_file(name: str, folder: Path | None) -> Path | None:
    """Return the file of a checkpoint by its name, RUN@STEP or RUN@newest.VERSION; None if there is none.

    Args:
        name: As `TrainingRun.checkpoints` returns it; any other string finds nothing.
        folder: The folder of the runs.
    """
    parts = _CHECKPOINT.fullmatch(name)
    run = parts and next((run for run in _runs(folder) if run.name == parts["run"]), None)
    if not parts or not run or run.folder is None:
        return None
    if parts["which"].isdecimal():
        path = run.folder / f"step-{int(parts['which']):08d}.pt"
        return path if path.is_file() else None
    return Run(run.folder).checkpoint if parts["which"] == f"newest.{_version(run.folder)}" else None


def _is_finite_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _record(line: bytes) -> dict[str, Any] | None:
    """Parse a line; None if it is not an object with a step."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = record.get("step") if isinstance(record, dict) else None
    return record if isinstance(step, int) and not isinstance(step, bool) and step >= 0 else None


def _runs(folder: Path | None) -> Iterator[TrainingRun]:
    for entry in sorted(folder.iterdir()) if folder and folder.is_dir() else ():
        run = Run(entry)
        if run.log.is_file():
            yield TrainingRun(entry.name, entry.name, run.log, entry)


def _milestones(folder: Path) -> list[int]:
    names = (_MILESTONE.fullmatch(path.name) for path in folder.glob("step-*.pt"))
    return sorted(int(name[1]) for name in names if name)


def _version(folder: Path) -> int | None:
    """Return the modification time of the newest checkpoint in nanoseconds; None without one."""
    try:
        return Run(folder).checkpoint.stat().st_mtime_ns
    except OSError:
        return None


def _thinned(steps: list[int], most: int) -> list[int]:
    """Return at most `most` of the steps, evenly spaced, with the first and the last."""
    if len(steps) <= most:
        return steps
    return [steps[round(i * (len(steps) - 1) / (most - 1))] for i in range(most)]


def _diagnosis(method: str) -> Diagnosis:
    """Return the diagnosis of a method; one that finds nothing for an unknown method."""
    known = METHODS.get(method)
    return (lambda line: None) if known is None else known.method_class().diagnose


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _duration(seconds: float) -> str:
    for unit, length, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            return f"{round(seconds / length)} {unit}"
    return f"{round(seconds / 86_400)} days"
