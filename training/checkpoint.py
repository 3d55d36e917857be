"""A run's folder: configuration, checkpoints and log, each loadable whenever the power goes::

    RUN/config.json        what is trained, in words and numbers, enough to go on or to begin again:
                           "backbone", "networks" (name: prefix in the state), "mean", "std" to load one by,
                           "recipe", "data", "seed", "precision", "init", "command", "versions", "changes"
    RUN/checkpoint.pt      the newest state: {"format", "step", "method", "optimizer", "scaler"}
    RUN/step-00012000.pt   milestones: {"format", "step", "method"}
    RUN/log.jsonl          one line per step
    RUN/.lock              while it is trained: by which process

Of the milestones `--keep N` leaves the newest.
"""

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import nn
from torch.amp import GradScaler
from torch.utils._pytree import tree_map_only

from dino_model import files
from training.optim import Optimizer

FORMAT = 1
"""Of checkpoints."""
CONFIG_FORMAT = 2


class RunError(ValueError):
    """A run's folder that cannot be used. The message is one sentence for people."""


@dataclass(frozen=True)
class Run:
    """A training run on disk."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        """The newest state."""
        return self.folder / "checkpoint.pt"

    @property
    def log(self) -> Path:
        """One JSON line per step."""
        return self.folder / "log.jsonl"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from training this run while the block runs.

        A folder that is made for it and stays empty is gone afterwards: nothing was begun.

        Raises:
            RunError: one of them does.
        """
        made = not self.folder.exists()
        try:
            with files.held(self.folder / ".lock"):
                yield
        except files.Held as holder:
            raise RunError(
                f"{self.folder} is being trained by {holder}: wait for it, end it, or pass another --output"
            ) from None
        finally:
            if made:
                with suppress(OSError):  # something lies in it
                    self.folder.rmdir()

    def lines(self) -> list[dict[str, Any]]:
        """The log; a last line that is cut short, as while it is written, is left out.

        Raises:
            RunError: no log, or a line within it that is none.
        """
        try:
            texts = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            raise RunError(
                f"{self.folder} has no log.jsonl: its training has not begun, or the file was moved"
            ) from None
        whole = [_logged_step(text) < float("inf") for text in texts]
        if not all(whole[:-1]):
            raise RunError(
                f"{self.log} is damaged: line {whole.index(False) + 1} of {len(texts)} is no step of a run"
            )
        return [json.loads(text) for text, good in zip(texts, whole, strict=True) if good]

    def create(self, config: Mapping[str, Any]) -> None:
        """Make the folder and write its configuration.

        Raises:
            RunError: the folder already holds a run.
        """
        if self.checkpoint.exists():
            raise RunError(
                f"{self.folder} already holds a run: --resume {self.folder} goes on with it, "
                "or pass another --output"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        self.log.unlink(missing_ok=True)
        self.rewrite(config)

    def config(self) -> dict[str, Any]:
        """The configuration it was created with, and what changed since; an older format comes as today's.

        Raises:
            RunError: there is none, or it cannot be read.
        """
        path = self.folder / "config.json"
        if not path.is_file():
            raise RunError(f"{self.folder} holds no run: expected config.json and checkpoint.pt in it")
        try:
            config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError(f"{path} is no configuration of a run: {error}") from None
        if not isinstance(config, dict):
            raise RunError(f"{path} is no configuration of a run: it holds a {type(config).__name__}")
        return upgraded(config)

    def rewrite(self, config: Mapping[str, Any]) -> None:
        """Put another configuration in the place of the old one."""
        files.write_text(self.folder / "config.json", json.dumps(config, indent=2) + "\n")

    def write(self, state: Mapping[str, Any], *, milestone: bool = False, keep: int = 0) -> None:
        """Write a `snapshot`; a reader finds the old one or the new one, never half of it.

        A milestone is kept beside it; of those but the newest `keep` are removed, 0 for none.
        """
        if milestone:
            networks = {name: state[name] for name in ("format", "step", "method")}
            _write(self.folder / f"step-{state['step']:08d}.pt", networks)
        _write(self.checkpoint, state)
        for left in sorted(self.folder.glob("step-*.pt"))[: -keep if keep else 0]:
            left.unlink()

    def keep(self, target: "Run") -> int:
        """Write what `--init-from` needs into another folder, in fp16 and with no path; returns the step.

        Raises:
            RunError: nothing to copy, or `target` holds a run.
        """
        config, state = self.config(), read_state(self.checkpoint)
        target.create(
            {name: value for name, value in config.items() if name not in ("command", "data", "init")}
        )
        halved = {
            name: tensor.half() if tensor.is_floating_point() else tensor
            for name, tensor in state["method"].items()
        }
        _write(target.checkpoint, {"format": FORMAT, "step": state["step"], "method": halved})
        return int(state["step"])

    def load(self, method: nn.Module, optimizer: Optimizer, scaler: GradScaler | None = None) -> int:
        """Put the newest state into method, optimizer and the scaler of the loss; returns the steps done.

        Raises:
            RunError: no readable checkpoint, or one that does not fit.
        """
        state = read_state(self.checkpoint)
        if "optimizer" not in state:
            raise RunError(
                f"{self.checkpoint} holds weights only, as milestones do: pass --init-from to start from them"
            )
        try:
            method.load_state_dict(state["method"])
            optimizer.load_state_dict(state["optimizer"])
            if scaler and scaler.is_enabled() and state.get("scaler"):  # none: it was another precision
                scaler.load_state_dict(state["scaler"])
        except (RuntimeError, ValueError) as error:
            raise RunError(
                f"{self.checkpoint} does not fit the configuration: {first_misfit(error)}"
            ) from None
        return int(state["step"])

    def tidy(self, step: int) -> None:
        """Take away what a kill left, and what was logged after the checkpoint at `step`."""
        self._sweep()
        self._cut_log(step)

    def _sweep(self) -> None:
        """Remove what a kill left of a checkpoint that was being written."""
        for pattern in (".checkpoint.*.pt", ".step-*.pt"):
            for left in self.folder.glob(pattern):
                left.unlink()

    def _cut_log(self, step: int) -> None:
        """Drop what was logged after the checkpoint: those steps are taken again."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        files.write_text(self.log, "".join(f"{line}\n" for line in lines if _logged_step(line) < step))


def snapshot(
    step: int, method: nn.Module, optimizer: Optimizer, scaler: GradScaler | None = None
) -> dict[str, Any]:
    """A copy of the state after `step` steps, on the CPU: training goes on while it is written."""
    state = {
        "format": FORMAT,
        "step": step,
        "method": method.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict() if scaler else {},
    }
    copied: dict[str, Any] = tree_map_only(torch.Tensor, lambda t: t.detach().to("cpu", copy=True), state)
    return copied


class Saver:
    """Writes a run's checkpoints in the background, one at a time; without a run it writes nothing.

    What went wrong is raised by the next call, or at the end of its `with` block, which waits for the last.
    """

    def __init__(self, run: Run | None, keep: int = 0) -> None:
        self.run, self.keep = run, keep
        self.thread = ThreadPoolExecutor(1, "checkpoint")
        self.writing: Future[None] | None = None

    def __enter__(self) -> "Saver":
        return self

    def save(
        self,
        step: int,
        method: nn.Module,
        optimizer: Optimizer,
        scaler: GradScaler | None = None,
        *,
        milestone: bool = False,
    ) -> None:
        """Begin to write the state after `step` steps, when the one before is written."""
        if self.run is not None:
            self.wait()
            state = snapshot(step, method, optimizer, scaler)
            self.writing = self.thread.submit(self.run.write, state, milestone=milestone, keep=self.keep)

    def check(self) -> None:
        """Raise what went wrong so far."""
        if self.writing is not None and self.writing.done():
            self.wait()

    def wait(self) -> None:
        """Until the last is written; raise what went wrong."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.thread.shutdown()
        if kind is None:
            self.wait()


def upgraded(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration in today's format; format 1 knew one method, whose settings stood beside its head's."""
    crops = (config.get("recipe") or {}).get("crops", {})
    if "batched_photometry" in crops:  # the setting's name before
        crops["augment"] = "device" if crops.pop("batched_photometry") else "workers"
    if config.get("format") != 1 or not isinstance(config.get("recipe"), dict):
        return config
    recipe = dict(config["recipe"])
    method = recipe.pop("dino", {}) | {"head": recipe.pop("head", {})}
    return config | {"format": CONFIG_FORMAT, "recipe": recipe | {"method": method}, "data": None}


def first_misfit(error: Exception) -> str:
    """The first of the lines, one a tensor, of which torch makes its message."""
    first, *more = str(error).splitlines()[1:] or [str(error)]
    return first.strip() + (f" ({len(more)} more like it)" if more else "")


def read_state(path: Path) -> dict[str, Any]:
    """What a checkpoint holds.

    Raises:
        RunError: it is not there, is broken, or was written by something else.
    """
    if not path.is_file():
        raise RunError(f"no checkpoint {path}: expected a file written by `python -m training pretrain`")
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # torch raises many kinds for a file that is not its own
        reason = "broken, cut off, or of another program" if path.stat().st_size else "empty"
        raise RunError(f"{path} is no checkpoint of `python -m training pretrain`: {reason}") from None
    found = state.get("format") if isinstance(state, dict) else None
    if found != FORMAT or "method" not in state:
        raise RunError(f"{path} is no checkpoint of this program: format {found!r}, expected {FORMAT}")
    return dict(state)


def _write(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint; a disk that is full is an OSError that names the file."""
    with files.replacing(path) as beside:
        try:
            with beside.open("wb") as file:
                _save(state, file)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None


def _save(state: Mapping[str, Any], file: BinaryIO) -> None:
    recorder = _Recorder(file)
    try:
        torch.save(state, recorder)  # type: ignore[arg-type]  # writes and flushes, no more is asked
    except RuntimeError as error:
        raise recorder.error or error from None


class _Recorder:
    """A file to write to that keeps what went wrong: torch says only that something did."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write, and keep the error."""
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Flush."""
        self.file.flush()


def _logged_step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # half a line: written while the power went
