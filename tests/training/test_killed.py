"""Trainings that are killed (SIGKILL, workers included) at random moments and resumed."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.training.runs import TINY, noise, values

pytestmark = pytest.mark.slow


def start(images, run, workers):
    words = ["--data", str(images), "--output", str(run), "--resume", *TINY, "--workers", str(workers)]
    return subprocess.Popen(
        [sys.executable, "-m", "training", "pretrain", *words, "--epochs", "8", "--probe-every", "0"],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def test_pretrain_killed_twice_logs_what_an_uninterrupted_run_logs(tmp_path):
    images, run, whole = noise(tmp_path / "images", 24, 1, 40, 48), tmp_path / "run", tmp_path / "whole"
    moments = random.Random(0)
    for workers in (0, 2):
        wanted, process = len(values(run)) + moments.randrange(1, 16), start(images, run, workers)
        while len(values(run)) < wanted and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert 0 < len(values(run)) < 48
    assert start(images, run, workers=0).wait() == 0
    assert start(images, whole, workers=0).wait() == 0
    assert values(run) == values(whole)
