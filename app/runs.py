"""Training runs as the page draws them: a log thinned while it grows, and the checkpoints beside it.

Runs are the folders that `training.checkpoint` writes, found directly inside --models-dir; the log of the
embedded model comes with the package. A visitor chooses by name and never types a path.
"""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypeGuard

from app.errors import NotHere
from dino_model.weights import EMBEDDED_FILE
from training.recipe import METHODS
from training.run import Run, RunError

Diagnosis = Callable[[Mapping[str, float]], str | None]

MOST_CURVES = 20
POINTS = 500
"""Most points of a curve: about as many as a screen can tell apart."""
CHECKPOINTS_OFFERED = 40
WARNINGS_KEPT = 50
WATCHED_EVERY = 100
"""Steps between two looks at whether a run collapses, as `training.monitor` takes them."""
LIVE_FOR = 120.0
"""Seconds after its last line for which a run counts as live."""
QUANTITIES = (
    "loss",
    "teacher_entropy",
    "kl",
    "ln_k",
    "knn_teacher",
    "knn_student",
    "images_per_second",
)
"""What is drawn of a log, by its names there; so is knn_NAME of every network that a method has."""
EMBEDDED_LOG = EMBEDDED_FILE.with_name("log.jsonl")
_MILESTONE = re.compile(r"step-(\d{1,12})\.pt")
_CHECKPOINT = re.compile(r"(?P<run>[^/\\]+)@(?P<which>\d{1,12}|newest\.\d{1,20})")


class Curve:
    """Means of one quantity over bins of equal width; when there are too many bins, two become one.

    Memory is bounded however long a run goes on, and a rare quantity keeps its exact steps.
    """

    def __init__(self, points: int = POINTS) -> None:
        self.points = points
        self.width = 1  # steps that share a bin
        self._bins: dict[int, tuple[float, float, int]] = {}  # sum of steps, sum of values, count

    def add(self, step: int, value: float) -> None:
        """Take in a finite value."""
        self._put(step // self.width, step, value, 1)
        if len(self._bins) > self.points:
            bins, self._bins, self.width = self._bins, {}, 2 * self.width
            for number, entry in bins.items():
                self._put(number // 2, *entry)

    def cut(self, step: int) -> None:
        """Forget `step` and what came after it, to the width of a bin."""
        self._bins = {number: entry for number, entry in self._bins.items() if number < step // self.width}

    def steps_and_values(self) -> tuple[list[float], list[float]]:
        """Mean step and mean value of every bin, in the order of the steps."""
        entries = [self._bins[number] for number in sorted(self._bins)]
        return [s / n for s, _, n in entries], [v / n for _, v, n in entries]

    def _put(self, number: int, steps: float, values: float, count: int) -> None:
        s, v, n = self._bins.get(number, (0.0, 0.0, 0))
        self._bins[number] = (s + steps, v + values, n + count)


@dataclass
class Curves:
    """What a log says so far, line by line.

    Where `phase` changes, steps are counted on from the last one. Where a step comes again, as after a
    resumed run that was not cut, the later line counts.
    """

    diagnose: Diagnosis = lambda line: None
    """What the run's method says is wrong with a line."""
    lines: int = 0
    broken: int = 0
    """Lines that are no JSON object with a step."""
    not_finite: dict[str, int] = field(default_factory=dict)
    """How often a quantity was NaN or infinite; such values are left out of the curve and told."""
    phases: list[tuple[str, int]] = field(default_factory=list)
    """Name and first step of each phase; empty where the log names none."""
    warnings: list[tuple[int, str]] = field(default_factory=list)
    """Step and sentence of what the monitor says of the log, or said in it: one for each new cause, the
    newest `WARNINGS_KEPT`."""
    last: int = -1
    """The newest step, counted over all phases."""
    curves: dict[str, Curve] = field(default_factory=lambda: {name: Curve() for name in QUANTITIES})
    _watched: int = -(10**9)
    _cause: str = ""

    def add(self, line: bytes) -> None:
        """Take in one whole line."""
        record = _record(line)
        if record is None:
            self.broken += 1
            return
        self.lines += 1
        step = self._place(record)
        for probed in record.keys() - self.curves.keys():
            if probed.startswith("knn_") and len(self.curves) < MOST_CURVES:
                self.curves[probed] = Curve()
        for name, curve in self.curves.items():
            value = record.get(name)
            if _is_figure(value):
                curve.add(step, float(value))
            elif isinstance(value, float):
                self.not_finite[name] = self.not_finite.get(name, 0) + 1
        self._watch(step, record)

    @property
    def warning(self) -> str | None:
        """What is wrong now; None where nothing is."""
        return self.warnings[-1][1] if self.warnings and self._cause else None

    def _watch(self, step: int, record: dict[str, Any]) -> None:
        """Say of every hundredth step what the monitor says, once for each cause."""
        if "warning" not in record and step - self._watched < WATCHED_EVERY:
            return
        self._watched = step
        figures = {name: float(value) for name, value in record.items() if _is_figure(value)}
        sentence = str(record.get("warning") or self.diagnose(figures) or "")
        cause = re.sub(r"[\d.]+", "", sentence.partition(":")[0])
        if sentence and cause != self._cause:
            self.warnings = [*self.warnings, (step, sentence)][-WARNINGS_KEPT:]
        self._cause = cause

    def _place(self, record: dict[str, Any]) -> int:
        """The record's step over all phases."""
        phase = record.get("phase")
        if phase is not None and (not self.phases or self.phases[-1][0] != str(phase)):
            self.phases.append((str(phase), self.last + 1))
        step = record["step"] + (self.phases[-1][1] if self.phases else 0)
        if step <= self.last:
            for curve in self.curves.values():
                curve.cut(step)
            self.warnings = [(at, said) for at, said in self.warnings if at < step]
            self._watched, self._cause = -WATCHED_EVERY, ""
        self.last = step
        return int(step)


class GrowingLog:
    """A log file that may still be written; `read` takes in only what was added since."""

    def __init__(self, path: Path, diagnose: Diagnosis = lambda line: None) -> None:
        self.path, self._diagnose = path, diagnose
        self._file = -1  # its number on disk: a resumed run replaces the file
        self._offset = 0
        self._curves = Curves(diagnose)

    def read(self) -> Curves:
        """Curves up to the last whole line; a line that is half written waits for its end.

        Raises:
            OSError: the log is not there (any more).
        """
        with self.path.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._file or found.st_size < self._offset:
                self._file, self._offset, self._curves = found.st_ino, 0, Curves(self._diagnose)
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._curves.add(line)
            return self._curves


@dataclass(frozen=True)
class TrainingRun:
    """A run that visitors may choose."""

    name: str
    title: str
    log: Path
    folder: Path | None
    """None for the embedded model, of which only the log is left."""

    def planned_steps(self) -> int | None:
        """What the run's configuration promises; None where it does not say."""
        if self.folder is None:
            return None
        try:
            config = Run(self.folder).config()
            recipe = config["recipe"]
            return int(recipe["epochs"]) * (int(config["pictures"]) // int(recipe["batch_size"]))
        except (RunError, OSError, KeyError, TypeError, ValueError, ZeroDivisionError):
            return None

    def method(self) -> str:
        """What trains it, by its name on the command line; DINO where the run does not say."""
        try:
            return "dino" if self.folder is None else str(Run(self.folder).config().get("method", "dino"))
        except RunError:
            return "dino"

    def checkpoints(self) -> list[dict[str, Any]]:
        """Models along the run, oldest first: name for the engine, label, step where the file tells it."""
        if self.folder is None:
            return [
                {"model": "random:embedded", "step": 0, "label": "untrained: random weights"},
                {"model": "embedded", "step": None, "label": "as it ships"},
            ]
        found = [
            {"model": f"{self.name}@{step}", "step": step, "label": f"step {step:,}"}
            for step in _thinned(_milestones(self.folder), CHECKPOINTS_OFFERED)
        ]
        newest = _version(self.folder)
        if newest is not None:
            name = f"{self.name}@newest.{newest}"
            found.append({"model": name, "step": None, "label": "newest checkpoint"})
        return found


class Runs:
    """The runs in a folder and the embedded model's; looked for again at every question, for new ones begin.

    Safe for several threads.

    Args:
        folder: --models-dir; None for the embedded model's log only.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._logs: dict[Path, GrowingLog] = {}
        self._lock = Lock()

    def all(self) -> dict[str, TrainingRun]:
        """Runs by name, the one written last first, the embedded model's at the end."""
        found = sorted(_runs(self.folder), key=lambda run: _written(run.log), reverse=True)
        embedded = TrainingRun("embedded", "The embedded model, as it was trained", EMBEDDED_LOG, None)
        runs = {run.name: run for run in found}
        return runs if "embedded" in runs or not EMBEDDED_LOG.is_file() else runs | {"embedded": embedded}

    def told(self, name: str) -> dict[str, Any]:
        """Everything the page draws of a run, as JSON.

        Raises:
            NotHere: no such run, or its log went away.
        """
        try:
            run = self.all()[name]
            with self._lock:
                log = self._logs.setdefault(run.log, GrowingLog(run.log, _diagnosis(run.method())))
                return _as_json(run, log.read())
        except (KeyError, OSError) as error:
            raise NotHere("There is no such run here (any more): choose another.", "run") from error


def checkpoint_file(name: str, folder: Path | None) -> Path | None:
    """The file behind a checkpoint's name, RUN@STEP or RUN@newest.VERSION; None where there is none.

    Args:
        name: as `TrainingRun.checkpoints` gives it; anything else a visitor may send finds nothing.
        folder: where the runs lie.
    """
    parts = _CHECKPOINT.fullmatch(name)
    run = parts and next((run for run in _runs(folder) if run.name == parts["run"]), None)
    if not parts or not run or run.folder is None:
        return None
    if parts["which"].isdecimal():
        path = run.folder / f"step-{int(parts['which']):08d}.pt"
        return path if path.is_file() else None
    same = parts["which"] == f"newest.{_version(run.folder)}"
    return Run(run.folder).checkpoint if same else None


def _as_json(run: TrainingRun, curves: Curves) -> dict[str, Any]:
    planned, checkpoints, done = run.planned_steps(), run.checkpoints(), curves.last + 1
    age = None if run.folder is None else max(0.0, time.time() - _written(run.log))
    if age is None or (planned is not None and done >= planned):
        state = "finished"
    else:
        state = "live" if age < LIVE_FOR else "stopped"
    newest = checkpoints[-1]["model"] if checkpoints else ""
    return {
        "name": run.name,
        "version": f"{curves.lines}.{curves.broken}.{state}.{newest}",
        "steps": done,
        "planned": planned,
        "age": age,
        "state": state,
        "broken": curves.broken,
        "notFinite": curves.not_finite,
        "warning": curves.warning,
        "warnings": [{"step": step, "message": message} for step, message in curves.warnings],
        "phases": [{"name": phase, "start": start} for phase, start in curves.phases],
        "curves": {name: _rounded(curve) for name, curve in curves.curves.items()},
        "checkpoints": checkpoints,
    }


def _is_figure(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _record(line: bytes) -> dict[str, Any] | None:
    """A line's object, if it is one with a step."""
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
    """Tells one newest checkpoint from the next; None where there is none."""
    try:
        return Run(folder).checkpoint.stat().st_mtime_ns
    except OSError:
        return None


def _thinned(steps: list[int], most: int) -> list[int]:
    """At most `most` of them, evenly, the first and the last among them."""
    if len(steps) <= most:
        return steps
    return [steps[round(i * (len(steps) - 1) / (most - 1))] for i in range(most)]


def _diagnosis(method: str) -> Diagnosis:
    """What a method says is wrong with a line of its log; nothing where it is none of ours."""
    known = METHODS.get(method)
    return (lambda line: None) if known is None else known.method_class().diagnose


def _rounded(curve: Curve) -> dict[str, list[float]]:
    """Steps and values with six figures: a screen shows no more."""
    steps, values = curve.steps_and_values()
    return {
        "steps": [round(step, 1) for step in steps],
        "values": [float(f"{value:.6g}") for value in values],
    }


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
