"""Trainings that are killed twice and go on, against the one that nobody stopped: bit for bit.

python -m benchmarks.resume [--trials 20] [--json FILE]
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from dino_model import files
from training.__main__ import main
from training.commands import arguments as _  # noqa: F401 (imported before the forks, of which each begins at once)

SETTINGS = [
    *("--architecture", "vit_tiny", "--width", "24", "--depth", "2", "--heads", "2", "--drop-path", "0.1"),
    *("--patch-size", "8", "--global-size", "32", "--local-size", "16", "--local-crops", "2"),
    *("--prototypes", "64", "--hidden", "16", "--bottleneck", "8", "--batch-size", "4", "--epochs", "8"),
    *("--warmup-epochs", "1", "--device", "cpu", "--precision", "fp32", "--probe-every", "0"),
    *("--save-every", "3"),
]
"""48 steps of a small ViT, with stochastic depth, in fp32."""

CLOCK = ("images_per_second", "data_wait")
"""What is logged of the clock."""


@dataclass(frozen=True)
class Resume:
    """Kill trainings (SIGKILL, workers and all) at random moments, let them go on, compare their logs."""

    trials: int = 20
    """Trainings that are killed; every other one has two workers."""
    kills: int = 2
    """For each."""
    seed: int = 0
    """Of the moments."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> int:
        """Compare, print; the exit code is 1 where a training differs."""
        torch.set_num_threads(1)
        moments = random.Random(self.seed)
        equal, killed_at = 0, []
        with tempfile.TemporaryDirectory() as folder:
            pictures = Path(folder) / "pictures"
            draw(pictures)
            whole = Path(folder) / "whole"
            finish(train(pictures, whole, workers=0))
            expected = steps(whole)
            for trial in range(self.trials):
                run = Path(folder) / str(trial)
                killed_at.append([kill(pictures, run, moments, trial) for _ in range(self.kills)])
                finish(train(pictures, run, workers=2 * (trial % 2)))
                equal += steps(run) == expected
                print(
                    f"trial {trial + 1}: killed after steps {killed_at[-1]}, {equal} equal so far", flush=True
                )
        print(f"{equal} of {self.trials} trainings of {len(expected)} steps equal the one that went through")
        if self.json:
            found = {"name": "resume", "trials": self.trials, "equal": equal, "killed_at": killed_at}
            files.write_json(self.json, found)
        return int(equal < self.trials)


def draw(folder: Path) -> None:
    """24 pictures of noise."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for i in range(24):
        Image.fromarray(generator.integers(0, 256, (40, 48, 3), np.uint8)).save(folder / f"{i}.png")


def train(pictures: Path, run: Path, workers: int) -> int:
    """Begin or go on in another process, the first of its group; returns its number."""
    pid = os.fork()
    if not pid:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        words = ["pretrain", "--data", str(pictures), "--resume", str(run), "--workers", str(workers)]
        os._exit(main([*words, *SETTINGS]))
    return pid


def finish(pid: int) -> None:
    """Wait for the end.

    Raises:
        SystemExit: the training failed.
    """
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise SystemExit(f"the training ended with {code}")


def kill(pictures: Path, run: Path, moments: random.Random, trial: int) -> int:
    """Train for some new steps and a moment more, then SIGKILL; returns the lines of the log then."""
    before = len(lines(run))
    pid = train(pictures, run, workers=2 * (trial % 2))
    wanted = before + moments.randrange(1, 16)
    while len(lines(run)) < wanted and os.waitpid(pid, os.WNOHANG)[0] == 0:
        time.sleep(0.002)
    time.sleep(0.1 * moments.random())
    try:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # it was through
    return len(lines(run))


def lines(run: Path) -> list[str]:
    """Of the log so far."""
    log = run / "log.jsonl"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def steps(run: Path) -> list[dict[str, Any]]:
    """What was logged, but for `CLOCK`."""
    found = [json.loads(line) for line in lines(run)]
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in found]


if __name__ == "__main__":
    import tyro

    sys.exit(tyro.cli(Resume).run())
