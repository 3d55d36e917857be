"""A run's folder: configuration, checkpoints and log, each loadable whenever the power goes.

RUN/config.json        what is trained, in words and numbers (key `backbone`: the BackboneConfig)
RUN/checkpoint.pt      the newest state: {"format", "step", "method", "optimizer"}
RUN/step-00012000.pt   milestones: {"format", "step", "method"}
RUN/log.jsonl          one line per step
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dino_model import files, position
from dino_model.weights import load_model
from training.optim import Optimizer

FORMAT = 1


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

    def create(self, config: Mapping[str, Any]) -> None:
        """Make the folder and write its configuration.

        Raises:
            RunError: the folder already holds a run.
        """
        if self.checkpoint.exists():
            raise RunError(
                f"{self.folder} already holds a run: pass --resume to go on with it, or another --output"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        self.log.unlink(missing_ok=True)
        files.write_text(self.folder / "config.json", json.dumps(config, indent=2) + "\n")

    def config(self) -> dict[str, Any]:
        """The configuration it was created with.

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
        return config

    def save(self, step: int, method: nn.Module, optimizer: Optimizer, *, milestone: bool = False) -> None:
        """Write the state after `step` steps; a reader finds the old one or the new one, never half of it."""
        state = {"format": FORMAT, "step": step, "method": method.state_dict()}
        if milestone:
            _write(self.folder / f"step-{step:08d}.pt", state)
        _write(self.checkpoint, state | {"optimizer": optimizer.state_dict()})

    def load(self, method: nn.Module, optimizer: Optimizer) -> int:
        """Put the newest state into method and optimizer, cut the log there; returns the steps done.

        Raises:
            RunError: no readable checkpoint, or one that does not fit.
        """
        state = _read(self.checkpoint)
        if "optimizer" not in state:
            raise RunError(
                f"{self.checkpoint} holds weights only, as milestones do: pass --init-from to start from them"
            )
        try:
            method.load_state_dict(state["method"])
            optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError) as error:
            raise RunError(
                f"{self.checkpoint} does not fit the configuration: {_first_misfit(error)}"
            ) from None
        step = int(state["step"])
        self._sweep()
        self._cut_log(step)
        return step

    def _sweep(self) -> None:
        """Remove what a kill left of a checkpoint that was being written."""
        for pattern in (".checkpoint.*.pt", ".step-*.pt"):
            for left in self.folder.glob(pattern):
                left.unlink()

    def _cut_log(self, step: int) -> None:
        """Drop what was logged after the checkpoint: those steps are taken again."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        files.write_text(self.log, "".join(f"{line}\n" for line in lines if _logged_step(line) < step))


def initialise(method: nn.Module, path: Path) -> int:
    """Load weights only, from a run's folder or a checkpoint of one; returns the step they come from.

    Position embeddings of another grid are resampled, so that a run at another crop size can go on from them.

    Raises:
        RunError: nothing to load, or tensors that do not fit.
    """
    state = _read(path / "checkpoint.pt" if path.is_dir() else path)
    _load_resampled(method, state["method"], str(path))
    return int(state["step"])


def initialise_backbones(backbones: Sequence[nn.Module], name: str) -> None:
    """Load the weights of any model into each backbone, with position embeddings resampled as needed.

    Raises:
        RunError: a model of another architecture.
        WeightsError, DownloadError: as `dino_model.weights.load_model`.
    """
    tensors = load_model(name).backbone.state_dict()
    for backbone in backbones:
        _load_resampled(backbone, dict(tensors), name)


def _load_resampled(module: nn.Module, tensors: dict[str, Any], where: str) -> None:
    own = module.state_dict()
    for name, tensor in tensors.items():
        if name.endswith("pos_embed") and name in own and own[name].shape != tensor.shape:
            old, new = (round((t.shape[1] - 1) ** 0.5) for t in (tensor, own[name]))
            tensors[name] = position.resample(tensor, (old, old), (new, new))
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise RunError(f"weights in {where} do not fit the model to train: {_first_misfit(error)}") from None


def _first_misfit(error: Exception) -> str:
    """The first of the lines, one a tensor, of which torch makes its message."""
    first, *more = str(error).splitlines()[1:] or [str(error)]
    return first.strip() + (f" ({len(more)} more like it)" if more else "")


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise RunError(f"no checkpoint {path}: expected a file written by `python -m training pretrain`")
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a file that is not its own
        raise RunError(f"{path} is no readable checkpoint ({type(error).__name__})") from None
    found = state.get("format") if isinstance(state, dict) else None
    if found != FORMAT or "method" not in state:
        raise RunError(f"{path} is no checkpoint of this program: format {found!r}, expected {FORMAT}")
    return dict(state)


def _write(path: Path, state: Mapping[str, Any]) -> None:
    with files.replacing(path) as beside, beside.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def _logged_step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # half a line: written while the power went
