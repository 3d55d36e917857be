"""A run that was begun by the program before configurations had today's format goes on as it would have.

tests/training/data/format_1 holds the state after five steps, written by that program, and in whole.json what
it logged in all nine when it was not stopped.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from training import __main__ as command
from training.checkpoint import Run

DATA = Path(__file__).parent / "data" / "format_1"


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    rows, columns = np.mgrid[0:24, 0:24]
    for i in range(6):
        pixels = [rows * (i + 3) % 256, columns * (2 * i + 5) % 256, (rows + columns) * (i + 1) % 256]
        Image.fromarray(np.stack(pixels, axis=-1).astype(np.uint8)).save(folder / f"{i}.png")
    return folder


@pytest.fixture
def run(tmp_path):
    shutil.copytree(DATA, tmp_path / "run")
    return Run(tmp_path / "run")


def test_an_old_run_goes_on_with_the_losses_it_would_have_had(run, pictures, capsys):
    resume = ["pretrain", "--resume", str(run.folder), "--workers", "0", "--device", "cpu"]
    assert command.main([*resume, "--data", str(pictures)]) == 0
    assert "going on at step 5 of 9" in capsys.readouterr().out
    lines = [json.loads(line) for line in run.log.read_text().splitlines()]
    whole = json.loads((DATA / "whole.json").read_text())
    for name in ("loss", "lr", "center_norm"):
        assert [line[name] for line in lines] == pytest.approx(whole[name], abs=1e-5), name
    config = json.loads((run.folder / "config.json").read_text())
    assert (config["format"], config["method"]) == (2, "dino")
    assert config["options"]["data"] == str(pictures)
    assert command.main(resume) == 0  # from now on its folder is enough


def test_an_old_run_does_not_know_its_pictures(run, capsys):
    assert command.main(["pretrain", "--resume", str(run.folder)]) == 1
    assert "which pictures? Pass --data" in capsys.readouterr().err


def test_an_old_run_on_fewer_pictures_is_refused(run, pictures, capsys):
    (pictures / "5.png").unlink()
    assert command.main(["pretrain", "--resume", str(run.folder), "--data", str(pictures)]) == 1
    assert "the number of pictures was 6, now 5" in capsys.readouterr().err
