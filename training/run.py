"""Folder of a training run, without importing torch.

RUN/config.json        settings: enough to load a network, to resume the run or to repeat it
RUN/provenance.json    command line and versions of the packages
RUN/checkpoint.pt      newest state: {"format", "step", "method", "optimizer", "scaler"}
RUN/step-00012000.pt   milestones: {"format", "step", "method"}
RUN/log.jsonl          one line per step
RUN/.lock              during training: the process that trains
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dino_model.runtime import files
from training.settings import at_least

CONFIG_FORMAT = 2
WRITTEN = (
    *("config.json", "provenance.json", "checkpoint.pt", "step-*.pt", "log.jsonl", "doctor.png"),
    *("wandb.txt", "tensorboard/events.out.tfevents.*"),
)
"""Files that training and its doctor write into the folder of a run."""
UNFINISHED = (".checkpoint.*.pt", ".step-*.pt")
"""Checkpoints whose writing was interrupted."""


@dataclass(frozen=True)
class CheckpointOptions:
    """Schedule of the checkpoints."""

    save_minutes: float = 5.0
    """Minutes between checkpoints, which are written while training continues; 0: none by time."""
    save_every: int = 0
    """Steps between checkpoints; 0: none by steps."""
    milestone_every: int = 5000
    """Steps between checkpoints that stay."""
    keep: int = 0
    """Number of milestones that stay, the newest; 0: all."""

    def __post_init__(self) -> None:
        at_least(self, save_minutes=0, save_every=0, milestone_every=1, keep=0)

    def is_due(self, done: int, seconds: float) -> bool:
        """Test if a checkpoint is due after `done` steps, `seconds` after the last one."""
        by_steps = self.save_every and done % self.save_every == 0
        return bool(by_steps or (self.save_minutes and seconds >= 60 * self.save_minutes))


class RunError(ValueError):
    """A run's folder that cannot be used. The message is one sentence."""


@dataclass(frozen=True)
class Run:
    """A training run on disk. Methods raise RunError where they cannot use its folder or files."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        """File of the newest state."""
        return self.folder / "checkpoint.pt"

    @property
    def log(self) -> Path:
        """File with one JSON line per step."""
        return self.folder / "log.jsonl"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training this run; a folder that stays empty is removed."""
        created = not self.folder.exists()
        try:
            with files.file_lock(self.folder / ".lock"):
                yield
        except files.FileLocked as holder:
            raise RunError(
                f"{self.folder} is being trained by {holder}: wait for it, end it, or pass another --output"
            ) from None
        finally:
            if created:
                with suppress(OSError):  # not empty
                    self.folder.rmdir()

    def lines(self) -> list[dict[str, Any]]:
        """Read the log; an incomplete last line is left out."""
        if not self.log.exists():
            raise RunError(
                f"{self.folder} has no log.jsonl: its training has not begun, or the file was moved"
            )
        records = [_parsed(text) for text in self.log.read_text("utf-8", "replace").splitlines()]
        if None in records[:-1]:
            number = records.index(None) + 1
            raise RunError(f"{self.log} is damaged: line {number} of {len(records)} is no step of a run")
        return [record for record in records if record is not None]

    def check_absent(self) -> None:
        """Raise RunError if the folder holds a run."""
        if self.checkpoint.exists():
            with self.lock():
                pass  # if another process trains it, the error says so
            raise RunError(
                f"{self.folder} already holds a run: --resume continues it, --overwrite replaces it, "
                "or pass another --output"
            )

    def remove(self) -> None:
        """Remove what training wrote, and nothing else; the folder stays."""
        self._unlink(*WRITTEN, *UNFINISHED)

    def create(self, config: Mapping[str, Any]) -> None:
        """Create the folder and write its configuration."""
        self.check_absent()
        self._unlink("log.jsonl", *UNFINISHED)
        self.rewrite(config)

    def config(self) -> dict[str, Any]:
        """Read the configuration."""
        path = self.folder / "config.json"
        if not path.is_file():
            raise RunError(f"{self.folder} holds no run: expected config.json and checkpoint.pt in it")
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise RunError(f"{path} is no configuration of a run: {error}") from None

    def rewrite(self, config: Mapping[str, Any]) -> None:
        """Replace the configuration."""
        files.write_text(self.folder / "config.json", json.dumps(config, indent=2) + "\n")

    def tidy(self, step: int) -> None:
        """Remove unfinished files and the log after the checkpoint at `step`: those steps are repeated."""
        self._unlink(*UNFINISHED)
        texts = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        kept = [text for text in texts if (record := _parsed(text)) and record["step"] < step]
        files.write_text(self.log, "".join(f"{text}\n" for text in kept))

    def _unlink(self, *patterns: str) -> None:
        for pattern in patterns:
            for file in self.folder.glob(pattern):
                file.unlink()


def _parsed(line: str) -> dict[str, Any] | None:
    """Record of a line of the log; None if it is damaged or incomplete."""
    try:
        record: dict[str, Any] = json.loads(line)
        float(record["step"])
    except (ValueError, KeyError, TypeError):
        return None
    return record
