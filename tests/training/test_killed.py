"""Trainings that are killed (SIGKILL, workers included) at random moments and resumed."""

import os
import random
import signal
import time

import pytest

from tests.training.ranks import Group
from tests.training.runs import noise, pretrain, values

pytestmark = pytest.mark.slow


def test_pretrain_killed_twice_logs_what_an_uninterrupted_run_logs(tmp_path):
    images, run, whole = noise(tmp_path / "images", 24, 1, 40, 48), tmp_path / "run", tmp_path / "whole"
    moments, more = random.Random(0), ("--resume", "--epochs", 5, "--probe-every", 0)
    for workers in (0, 2):
        job = (pretrain, images, run, *more, "--workers", workers)
        wanted, group = (
            len(values(run)) + moments.randrange(1, 10),
            Group(tmp_path / f"{workers}", job, daemon=False),
        )
        (process,) = group.processes
        while len(values(run)) < wanted and process.is_alive():
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        assert group.codes() == [-signal.SIGKILL], group.printed(0)
        assert 0 < len(values(run)) < 30
    assert pretrain(images, run, *more) == 0
    assert pretrain(images, whole, *more) == 0
    assert values(run) == values(whole)
