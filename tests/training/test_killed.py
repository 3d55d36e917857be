"""Trainings that are killed (SIGKILL, workers included) at random moments and resumed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow

SETTINGS = [
    *("--architecture", "vit_tiny", "--width", "24", "--depth", "2", "--heads", "2", "--drop-path", "0.1"),
    *("--patch-size", "8", "--global-size", "32", "--local-size", "16", "--local-crops", "2"),
    *("--prototypes", "64", "--hidden", "16", "--bottleneck", "8", "--batch-size", "4", "--epochs", "8"),
    *("--warmup-epochs", "1", "--device", "cpu", "--precision", "fp32", "--probe-every", "0"),
    *("--save-every", "3"),
]
"""48 steps of a small ViT with stochastic depth."""
CLOCK = ("images_per_second", "data_wait")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 images of noise."""
    folder = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for index in range(24):
        noise = generator.integers(0, 256, (40, 48, 3), np.uint8)
        Image.fromarray(noise).save(folder / f"{index}.png")
    return folder


def start(images: Path, run: Path, workers: int) -> subprocess.Popen[bytes]:
    words = ["pretrain", "--data", str(images), "--output", str(run), "--resume", "--workers", str(workers)]
    return subprocess.Popen(
        [sys.executable, "-m", "training", *words, *SETTINGS],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def steps(run: Path) -> list[dict[str, Any]]:
    log = run / "log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]


@pytest.fixture(scope="module")
def expected(images: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Log of the training that nobody stopped."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert start(images, run, workers=0).wait() == 0
    return steps(run)


def test_pretrain_killed_twice_logs_what_an_uninterrupted_run_logs(images, expected, tmp_path):
    run, moments = tmp_path / "run", random.Random(0)
    for workers in (0, 2):
        process, wanted = start(images, run, workers), len(steps(run)) + moments.randrange(1, 16)
        while len(steps(run)) < wanted and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert 0 < len(steps(run)) < len(expected)
    assert start(images, run, workers=0).wait() == 0
    assert steps(run) == expected
