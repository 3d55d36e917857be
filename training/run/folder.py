"""Folder of a training run, without importing torch.

RUN/config.json        settings: enough to load a network, to resume the run or to repeat it
RUN/images.csv.gz      name and size in bytes of every image
RUN/provenance.json    command line and versions of the packages
RUN/checkpoint.pt      newest state: {"format", "step", "method", "optimizer", "scaler"}
RUN/step-00012000.pt   milestones: {"format", "step", "method"}; the one of step 0 holds the initial weights
RUN/log.jsonl          one line per step
RUN/doctor.png         page of `python -m training doctor`
RUN/.lock              during training: the process that trains

Names that other packages need, too, are in `dino_model.models.run_folder`.
"""

import csv
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dino_model.models.run_folder import CHECKPOINT, CONFIG, LOG, milestone_name, milestones
from dino_model.runtime import files
from dino_model.runtime.outputs import PROVENANCE, OutputError
from training.recipes.validation import at_least
from training.run.log import read_log

IMAGES = "images.csv.gz"
DOCTOR_PAGE, WANDB_ID, TENSORBOARD = "doctor.png", "wandb.txt", "tensorboard"
WRITTEN = (
    *(CONFIG, PROVENANCE, IMAGES, CHECKPOINT, "step-*.pt", LOG, DOCTOR_PAGE, WANDB_ID),
    f"{TENSORBOARD}/events.out.tfevents.*",
)
"""Files that training and its doctor write into the folder of a run."""
NEEDED = ("method", "recipe", "num_images", "seed", "precision")
"""Entries of a configuration without which a run can neither be resumed nor diagnosed."""
UNFINISHED = (".checkpoint.*.pt", ".step-*.pt")
"""Checkpoints whose writing was interrupted."""


@dataclass(frozen=True)
class SaveSchedule:
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


class RunError(OutputError):
    """A run's folder that cannot be used. The message is one sentence."""


@dataclass(frozen=True)
class Run:
    """A training run on disk. Methods raise RunError where they cannot use its folder or files."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        """File of the newest state."""
        return self.folder / CHECKPOINT

    @property
    def log(self) -> Path:
        """File with one JSON line per step."""
        return self.folder / LOG

    @property
    def config_file(self) -> Path:
        """File of the configuration."""
        return self.folder / CONFIG

    def milestone(self, step: int) -> Path:
        """File of the checkpoint after `step` steps that stays."""
        return self.folder / milestone_name(step)

    def milestones(self) -> list[tuple[int, Path]]:
        """Steps and files of the checkpoints that stay, in the order of the steps."""
        return milestones(self.folder)

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
            raise RunError(f"{self.folder} has no {LOG}: its training has not begun, or the file was moved")
        records, damaged = read_log(self.log)
        if damaged:
            total = len(records) + len(damaged)
            raise RunError(f"{self.log} is damaged: line {damaged[0]} of {total} is no step of a run")
        return records

    def check_absent(self) -> None:
        """Raise RunError if the folder holds a run, or the rest of one that has lost its checkpoint."""
        if self.checkpoint.exists():
            with self.lock():
                pass  # if another process trains it, the error says so
            raise RunError(
                f"{self.folder} already holds a run: --resume continues it, --overwrite replaces it, "
                "or pass another --output"
            )
        steps, file = max(self.milestones(), default=(0, self.folder))
        if steps or (self.log.exists() and any(read_log(self.log))):  # step 0: it was killed at its start
            found = f"the weights after {steps:,} steps" if steps else f"the {LOG} of a run"
            start = f", or start from them in another folder with --init-from {file}" if steps else ""
            raise RunError(
                f"{self.folder} has no {CHECKPOINT}, but {found}: put {CHECKPOINT} back{start}; --overwrite "
                "replaces the run"
            )

    def remove(self) -> None:
        """Remove what training wrote, and nothing else; the folder stays."""
        self._unlink(*WRITTEN, *UNFINISHED)

    def create(self, config: Mapping[str, Any], images: Iterable[tuple[str, int]]) -> None:
        """Create the folder and write its configuration, and names and sizes of the images."""
        self.check_absent()
        self._unlink(LOG, *UNFINISHED)
        self.write_images(images)
        self.rewrite(config)

    def write_images(self, images: Iterable[tuple[str, int]]) -> None:
        """Write the name and the size in bytes of every image."""
        with (
            files.replace_file(self.folder / IMAGES) as temporary,
            gzip.open(temporary, "wt", encoding="utf-8", newline="") as file,
        ):
            csv.writer(file).writerows(images)

    def describe_changed_images(self, images: Iterable[tuple[str, int]]) -> str:
        """Count and name the images that were added, removed or changed since the run began."""
        try:
            with gzip.open(self.folder / IMAGES, "rt", encoding="utf-8", newline="") as file:
                before = {name: int(size) for name, size in csv.reader(file)}
        except (OSError, EOFError, ValueError):
            return f"the run has no readable {IMAGES}, which would name them"
        now = dict(images)
        found = {
            "added": sorted(now.keys() - before.keys()),
            "removed": sorted(before.keys() - now.keys()),
            "changed": [name for name in now if before.get(name, now[name]) != now[name]],
        }
        parts = (
            f"{len(names):,} {what} ({', '.join(names[:3])}{', …' * (len(names) > 3)})"
            for what, names in found.items()
            if names
        )
        return ", ".join(parts) or "their order or channels changed"

    def config(self) -> dict[str, Any]:
        """Read the configuration."""
        path, remedy = self.config_file, "put the file back as training wrote it, or pass another folder"
        if not path.is_file():
            raise RunError(f"{self.folder} holds no run: expected {CONFIG} and {CHECKPOINT} in it")
        try:
            config = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise RunError(f"{path} is no configuration of a run ({error}): {remedy}") from None
        if missing := [name for name in NEEDED if name not in config]:
            raise RunError(f"{path} is no configuration of a run, it lacks {', '.join(missing)}: {remedy}")
        return config

    def rewrite(self, config: Mapping[str, Any]) -> None:
        """Replace the configuration."""
        files.write_text(self.config_file, json.dumps(config, indent=2) + "\n")

    def tidy(self, step: int) -> None:
        """Remove unfinished files and the log after the checkpoint at `step`: those steps are repeated."""
        self._unlink(*UNFINISHED)
        records, _ = read_log(self.log) if self.log.exists() else ([], [])
        kept = [record for record in records if record["step"] < step]
        files.write_text(self.log, "".join(f"{json.dumps(record)}\n" for record in kept))

    def _unlink(self, *patterns: str) -> None:
        for pattern in patterns:
            for file in self.folder.glob(pattern):
                file.unlink()
