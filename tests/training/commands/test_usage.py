"""Help, usage errors, an early end of the command, and what it writes."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.training.runs import pretrain
from training import __main__ as command
from training.commands.arguments import parse
from training.run.folder import Run, SaveSchedule

REPOSITORY = Path(__file__).parents[3]


def test_sigterm_before_the_first_step_returns_75(images, tmp_path, monkeypatch):
    def killed(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("went on after SIGTERM")

    monkeypatch.setattr("training.commands.pretrain.Session", killed)
    assert pretrain(images, tmp_path / "run") == 75


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        ("pretrain --recipe paper --help", 0, "--epochs INT Passes over the images. (default: 300)"),
        ("pretrain --dta images --output run", 2, "--dta"),
    ],
)
def test_help_and_usage_errors(words, code, shown, capsys):
    try:
        found = command.main(words.split())
    except SystemExit as end:
        found = end.code
    assert found == code
    captured = capsys.readouterr()
    printed = captured.err if code else captured.out
    assert shown in " ".join(printed.replace("│", " ").split())


def test_options_that_are_no_settings_have_documented_defaults(tmp_path):
    options = parse(["--data", "images", "--output", str(tmp_path / "run")])
    text = " ".join((REPOSITORY / "docs" / "training.md").read_text().split())
    minutes, steps = re.findall(r"every (\d+) minutes, and every ([\d,]+) steps one that stays", text)[0]
    assert options.checkpoints == SaveSchedule(int(minutes), 0, int(steps.replace(",", "")), 0)
    assert (options.seed, options.accumulate, options.probe_every) == (0, 1, 1000)


@pytest.mark.parametrize(("count", "side"), [(45, 122), (3, 100)])
def test_small_data_is_fitted_to_the_median_short_side_of_about_twenty_images(tmp_path, capsys, count, side):
    """Of 45 images every second one is read, of three all."""
    (tmp_path / "images").mkdir()
    for number in range(count):
        size = (200, 100 + number) if number % 2 == 0 or count < 20 else (400, 300)
        Image.new("RGB", size if number % 4 else size[::-1]).save(tmp_path / "images" / f"{number:02}.png")
    if count == 3:
        Image.new("RGB", (90, 500)).save(tmp_path / "images" / "01.png")
    words = ["--data", str(tmp_path / "images"), "--output", str(tmp_path / "run"), "--recipe", "small-data"]
    parse([*words, "--batch-size", "2"])
    assert f"for {count} images with a short side of {side} pixels" in capsys.readouterr().out


def test_pretrain_with_wrong_options_refuses_before_data_or_torch(tmp_path):
    wrong = {
        "--data absent --output run --batch-size 0": "--batch-size is 0",
        "--data absent --output run --recipe small-data --milestone-every 0": "--milestone-every is 0",
        "--output run --recipe small-data": "no images",
    }
    code = (
        "import sys; from training.__main__ import main;"
        "print(*(main(['pretrain', *words.split()]) for words in sys.argv[1:]), 'torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code, *wrong]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout == "1 1 1 False\n"
    for message, line in zip(wrong.values(), ended.stderr.splitlines(), strict=True):
        assert message in line


def test_pretrain_writes_log_configuration_and_checkpoint(trained):
    lines = Run(trained).lines()
    assert [line["step"] for line in lines] == list(range(6))  # 10 images: 2 steps in each of 3 epochs
    assert {"images_per_second", "data_wait", "lr", "weight_decay"} <= lines[0].keys()
    probed = [line for line in lines if "knn_teacher" in line]
    assert [line["step"] for line in probed] == [2, 5]
    assert {"knn_student", "lift_teacher", "lift_student"} <= probed[0].keys()
    assert lines[0]["loss"] == pytest.approx(lines[0]["teacher_entropy"] + lines[0]["kl"], abs=1e-5)
    config = Run(trained).config()
    assert config["backbone"]["width"] == 24
    assert (config["backbone"]["drop_path"], config["recipe"]["backbone"]["drop_path"]) == (0, 0.1)
    provenance = json.loads((trained / "provenance.json").read_text())
    assert {"torch", "python"} <= provenance["versions"].keys()
    assert provenance["precision"] == "fp32"
    assert "class: path of the folders" in provenance["reading"]
    state = torch.load(Run(trained).checkpoint, weights_only=True)
    assert state["step"] == 6
    assert "teacher.backbone.cls_token" in state["method"]
