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
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
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
        newest: The finite numbers of the last record.
        last: The last step, counted over all phases.
        curves: By quantity.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clear(inode=-1)

    def _clear(self, inode: int) -> None:
        self._inode, self._offset = inode, 0
        self._phase, self._first = "", 0  # name and first step of the phase
        self.lines = self.broken = 0
        self.not_finite: Counter[str] = Counter()
        self.newest: dict[str, float] = {}
        self.last = -1
        self.curves = {name: Curve(array("q"), array("d")) for chart in CHARTS for name in chart.curves}

    @property
    def warning(self) -> str | None:
        """One sentence if the last record shows a collapse."""
        method = str(_config(self.path.parent).get("method", "dino"))
        return diagnose(self.newest, METHODS.get(method, METHODS["dino"]).remedy)

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
        self.newest = {name: float(value) for name, value in record.items() if _is_finite_number(value)}
        self.not_finite.update(
            name for name in self.curves.keys() - self.newest if isinstance(record.get(name), float)
        )
        for name in self.curves.keys() & self.newest:
            self.curves[name].steps.append(step)
            self.curves[name].values.append(self.newest[name])

    def _global_step(self, record: dict[str, Any]) -> int:
        """Return the step of a record, counted over all phases; drop this step and later ones of before."""
        phase = str(record.get("phase", self._phase))
        if phase != self._phase:
            self._phase, self._first = phase, self.last + 1
        step = int(record["step"]) + self._first
        if step <= self.last:
            for curve in self.curves.values():
                start = bisect_left(curve.steps, step)
                del curve.steps[start:], curve.values[start:]
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
        return "/".join(map(str, [self.name, log.lines, log.broken, log.last, self.state, *newest]))


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


def chart_table(chart: Chart, run: TrainingRun) -> pd.DataFrame:
    """Return the curves of one chart as a table with the columns step, value and curve."""
    rows = [
        (round(step, 1), float(f"{value:.6g}"), label)
        for key, label in chart.curves.items()
        for step, value in zip(*run.log.curves[key].thinned(), strict=True)
    ]
    return pd.DataFrame(rows, columns=["step", "value", "curve"])


def status_text(run: TrainingRun) -> str:
    """Describe in one line whether a run is live and how many steps are done."""
    age = _duration(run.age)
    state = {"live": f"Live, last line {age} ago", "stopped": f"Stopped: no line for {age}"}
    planned = f" of {run.planned:,}" if run.planned else ""
    return f"{state.get(run.state, 'Finished')} · {run.log.last + 1:,}{planned} steps"


def warnings_text(run: TrainingRun) -> str:
    """Return the present faults of a run as Markdown; empty without any."""
    log = run.log
    found = [log.warning] if log.warning else []
    found += [f"Values of {name} that are not finite: {count}." for name, count in log.not_finite.items()]
    found += [f"Lines of the log that cannot be read: {log.broken}."] if log.broken else []
    return "\n\n".join(f"**{text}**" for text in found)


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
