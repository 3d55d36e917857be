"""`python -m training keep`: a run small enough to be kept beside code."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from training.run import Run


@dataclass(frozen=True)
class Keep:
    """Copy a run's networks in half precision, without optimizer, log and paths: enough for --init-from."""

    source: Positional[Path]
    """Folder of the run."""
    output: Path
    """Folder to write, in which there is no run yet."""

    def run(self) -> None:
        """Read, write, say how large."""
        from training.checkpoint import export_fp16  # imports torch

        kept = Run(self.output)
        step = export_fp16(Run(self.source), kept)
        size = kept.checkpoint.stat().st_size / 1e6
        print(f"{kept.checkpoint}: step {step:,}, {size:.1f} MB; --init-from {self.output} starts from it")
