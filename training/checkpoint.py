"""Checkpoints of a run: snapshots on the CPU, written in the background, read strictly."""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import nn
from torch.amp import GradScaler
from torch.utils._pytree import tree_map_only

from dino_model import files
from training.optim import Optimizer
from training.run import Run, RunError

FORMAT = 1
"""Of checkpoints."""


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
            self.writing = self.thread.submit(
                write_checkpoint, self.run, state, milestone=milestone, keep=self.keep
            )

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


def write_checkpoint(run: Run, state: Mapping[str, Any], *, milestone: bool = False, keep: int = 0) -> None:
    """Write a `snapshot`; a reader finds the old one or the new one, never half of it.

    A milestone is kept beside it; of those but the newest `keep` are removed, 0 for none.
    """
    if milestone:
        networks = {name: state[name] for name in ("format", "step", "method")}
        _write(run.folder / f"step-{state['step']:08d}.pt", networks)
    _write(run.checkpoint, state)
    for left in sorted(run.folder.glob("step-*.pt"))[: -keep if keep else 0]:
        left.unlink()


def export_fp16(run: Run, target: Run) -> int:
    """Write what `--init-from` needs into another folder, in fp16 and with no path; returns the step.

    Raises:
        RunError: nothing to copy, or `target` holds a run.
    """
    config, state = run.config(), read_state(run.checkpoint)
    target.create({name: value for name, value in config.items() if name not in ("command", "data", "init")})
    halved = {
        name: tensor.half() if tensor.is_floating_point() else tensor
        for name, tensor in state["method"].items()
    }
    _write(target.checkpoint, {"format": FORMAT, "step": state["step"], "method": halved})
    return int(state["step"])


def load_checkpoint(
    run: Run, method: nn.Module, optimizer: Optimizer, scaler: GradScaler | None = None
) -> int:
    """Put the newest state into method, optimizer and the scaler of the loss; returns the steps done.

    Raises:
        RunError: no readable checkpoint, or one that does not fit.
    """
    state = read_state(run.checkpoint)
    if "optimizer" not in state:
        raise RunError(
            f"{run.checkpoint} holds weights only, as milestones do: pass --init-from to start from them"
        )
    try:
        method.load_state_dict(state["method"])
        optimizer.load_state_dict(state["optimizer"])
        if scaler and scaler.is_enabled() and state.get("scaler"):  # none: it was another precision
            scaler.load_state_dict(state["scaler"])
    except (RuntimeError, ValueError) as error:
        raise RunError(f"{run.checkpoint} does not fit the configuration: {first_misfit(error)}") from None
    return int(state["step"])


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
