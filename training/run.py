"""The folder of a training run, without importing torch; `training.checkpoint` writes and reads its states.

RUN/config.json        settings: enough to load a network, to resume the run or to repeat it
RUN/provenance.json    command line and versions of the packages
RUN/checkpoint.pt      newest state: {"format", "step", "method", "optimizer", "scaler"}
RUN/step-00012000.pt   milestones: {"format", "step", "method"}
RUN/log.jsonl          one line for each step
RUN/.lock              during training: the process that trains
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dino_model import files

CONFIG_FORMAT = 2
WRITTEN = (
    "config.json",
    "provenance.json",
    "checkpoint.pt",
    "step-*.pt",
    "log.jsonl",
    "doctor.png",
    "wandb.txt",
    "tensorboard/events.out.tfevents.*",
)
"""Files that training and its doctor write into the folder of a run."""


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

    def check_absent(self) -> None:
        """Raise RunError if the folder holds a run."""
        if self.checkpoint.exists():
            with self.held():
                pass  # says that it is being trained, where that is so
            raise RunError(
                f"{self.folder} already holds a run: --resume {self.folder} continues it, "
                "--overwrite replaces it, or pass another --output"
            )

    def remove(self) -> None:
        """Remove what training wrote, and nothing else; the folder stays."""
        for pattern in (
            "config.json",
            "provenance.json",
            "checkpoint.pt",
            "step-*.pt",
            "log.jsonl",
            "doctor.png",
            "wandb.txt",
        ):
            for file in self.folder.glob(pattern):
                file.unlink()
        for events in self.folder.glob("tensorboard/events.out.tfevents.*"):
            events.unlink()
        self._sweep()

    def create(self, config: Mapping[str, Any]) -> None:
        """Make the folder and write its configuration.

        Raises:
            RunError: the folder already holds a run.
        """
        self.check_absent()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        self.log.unlink(missing_ok=True)
        self.rewrite(config)

    def config(self) -> dict[str, Any]:
        """Read the configuration.

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

    def rewrite(self, config: Mapping[str, Any]) -> None:
        """Put another configuration in the place of the old one."""
        files.write_text(self.folder / "config.json", json.dumps(config, indent=2) + "\n")

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


def _logged_step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # half a line: written while the power went
