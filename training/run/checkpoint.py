"""Checkpoints of a run: copied to the CPU, written in the background, read strictly."""

import errno
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.utils._pytree import tree_flatten, tree_unflatten

from dino_model.models.catalogue import WeightsError
from dino_model.models.checkpoint import read_torch
from dino_model.runtime import files
from training.run.folder import Run, RunError
from training.run.logging import Diverged, copy_to_host

FORMAT = 1
"""Version of the file format."""


def training_state(
    step: int, method: nn.Module, optimizer: Optimizer, scaler: GradScaler | None = None
) -> dict[str, Any]:
    """State after `step` steps, as a checkpoint holds it; its tensors are those of the training."""
    return {
        "format": FORMAT,
        "step": step,
        "method": method.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict() if scaler else {},
    }


class CheckpointWriter:
    """Writes a run's checkpoints in the background, one at a time; without a run it writes nothing.

    A state is copied to the CPU, so that training continues while the copy is written. From a CUDA device the
    copies go to pinned buffers, which are reused, without waiting for the device. An error is raised by the
    next call, or at the end of the `with` block, which waits for the last checkpoint.
    """

    def __init__(self, run: Run | None, keep: int = 0) -> None:
        self.run, self.keep = run, keep
        self.buffers: list[torch.Tensor] = []
        self.thread = ThreadPoolExecutor(1, "checkpoint")
        self.writing: Future[None] | None = None

    def __enter__(self) -> "CheckpointWriter":
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
        """Start to write the state after `step` steps, once the former checkpoint is written."""
        if self.run is not None:
            self.wait()
            copied = self._copy_state(training_state(step, method, optimizer, scaler))
            self.writing = self.thread.submit(self._write, self.run, *copied, milestone)

    def _copy_state(self, state: Mapping[str, Any]) -> tuple[dict[str, Any], torch.cuda.Event | None]:
        leaves, structure = tree_flatten(state)
        tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.buffers, complete = copy_to_host(tensors, self.buffers)
        copies = iter(self.buffers)
        leaves = [next(copies) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return tree_unflatten(leaves, structure), complete

    def _write(
        self, run: Run, state: dict[str, Any], complete: torch.cuda.Event | None, milestone: bool
    ) -> None:
        if complete is not None:
            complete.synchronize()
        broken = [name for name, tensor in state["method"].items() if not tensor.isfinite().all()]
        if broken:  # a gradient may overflow under a finite loss
            raise Diverged(
                f"{len(broken)} tensors, such as {broken[0]}, hold NaN or infinity after step "
                f"{state['step'] - 1}"
            )
        write_checkpoint(run, state, milestone=milestone, keep=self.keep)

    def check(self) -> None:
        """Raise the error of the checkpoint, if it has ended with one."""
        if self.writing is not None and self.writing.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the checkpoint; raise its error.

        Raises:
            Diverged: A weight is not finite; the former checkpoint is intact.
            OSError: The checkpoint could not be written.
        """
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.thread.shutdown()
        if kind is None:
            self.wait()


def write_checkpoint(run: Run, state: Mapping[str, Any], *, milestone: bool = False, keep: int = 0) -> None:
    """Replace the checkpoint of a run atomically.

    A milestone is written as well, without the optimizer; the newest `keep` of them stay, 0 for all.
    """
    if milestone:
        networks = {name: state[name] for name in ("format", "step", "method")}
        _write(run.milestone(state["step"]), networks)
    _write(run.checkpoint, state)
    for _, old in run.milestones()[: -keep if keep else 0]:
        old.unlink()


def _write(path: Path, state: Mapping[str, Any]) -> None:
    with files.replace_file(path) as temporary:
        try:
            torch.save(state, temporary)  # by its path: a file would hold Python's lock of the training
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        except (OSError, RuntimeError) as error:  # torch hides the reason in a RuntimeError
            code = error.errno if isinstance(error, OSError) else errno.EIO
            raise OSError(code, "write failed; is the disk full?", str(path)) from error


def load_checkpoint(
    run: Run, method: nn.Module, optimizer: Optimizer, scaler: GradScaler | None = None
) -> int:
    """Load the newest state into method, optimizer and loss scaler; return the steps done.

    Raises:
        RunError: No readable checkpoint, or one that does not fit.
    """
    state = read_state(run.checkpoint)
    if "optimizer" not in state:
        raise RunError(f"{run.checkpoint} holds weights only: pass --init-from to start from them")
    try:
        method.load_state_dict(state["method"])
        optimizer.load_state_dict(state["optimizer"])
        if scaler and scaler.is_enabled() and state.get("scaler"):  # empty after another precision
            scaler.load_state_dict(state["scaler"])
    except (RuntimeError, ValueError) as error:
        raise RunError(f"{run.checkpoint} does not fit the configuration: {first_misfit(error)}") from None
    return int(state["step"])


def first_misfit(error: Exception) -> str:
    """First of the lines, one per tensor, of torch's message about a state that does not fit."""
    first, *more = str(error).splitlines()[1:] or [str(error)]
    return first.strip() + (f" ({len(more)} more like it)" if more else "")


def read_state(path: Path) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        RunError: It is missing, broken, or was written by another program.
    """
    if not path.is_file():
        raise RunError(f"no checkpoint {path}: expected a file written by `python -m training pretrain`")
    try:
        state = read_torch(path)
    except WeightsError as error:
        raise RunError(str(error)) from None
    if (version := state.get("format")) != FORMAT or "method" not in state:
        raise RunError(f"{path} is no checkpoint of this program: format {version!r}, expected {FORMAT}")
    return state
