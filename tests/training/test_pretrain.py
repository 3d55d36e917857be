"""The command on small real runs, and what it says when it cannot."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from training import __main__ as command
from training import losses
from training.checkpoint import Run

REPOSITORY = Path(__file__).parents[2]
TINY = [
    *("--architecture", "vit_tiny", "--width", "24", "--depth", "2", "--heads", "3", "--drop-path", "0.1"),
    *("--patch-size", "8", "--image-size", "32", "--global-size", "32", "--local-size", "16"),
    *("--prototypes", "64", "--hidden", "16", "--bottleneck", "8", "--local-crops", "2", "--batch-size", "4"),
    *("--epochs", "3", "--warmup-epochs", "1", "--workers", "0", "--device", "cpu", "--precision", "fp32"),
    *("--save-every", "2"),
]


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    generator = np.random.default_rng(0)
    for i in range(10):
        target = folder / f"class{i % 2}" / f"{i}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (40, 48, 3), np.uint8)).save(target)
    return folder


def pretrain(pictures, output, *more):
    return command.main(
        ["pretrain", "--data", str(pictures), "--output", str(output), *TINY, *map(str, more)]
    )


def logged(output):
    return [json.loads(line) for line in Run(output).log.read_text().splitlines()]


def weights(output):
    return torch.load(Run(output).checkpoint, weights_only=True)["method"]


def test_a_run_leaves_log_configuration_and_checkpoint(pictures, tmp_path):
    output = tmp_path / "run"
    assert pretrain(pictures, output, "--probe-every", 3) == 0
    lines = logged(output)
    assert [line["step"] for line in lines] == list(range(6))  # 10 pictures: 2 steps in each of 3 epochs
    assert {"loss", "teacher_entropy", "kl", "ln_k", "images_per_second", "center_norm", "lr"} <= lines[
        0
    ].keys()
    assert [line["step"] for line in lines if "knn_teacher" in line] == [2, 5]
    assert lines[0]["loss"] == pytest.approx(lines[0]["teacher_entropy"] + lines[0]["kl"], abs=1e-5)
    assert json.loads((output / "config.json").read_text())["backbone"]["width"] == 24
    state = torch.load(Run(output).checkpoint, weights_only=True)
    assert state["step"] == 6
    assert "teacher.backbone.cls_token" in state["method"]


def test_resuming_gives_the_very_run_that_was_not_interrupted(pictures, tmp_path, monkeypatch):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert pretrain(pictures, whole, "--drop-path", 0) == 0
    calls = iter([False, False, True])
    monkeypatch.setattr("training.pretrain.stop_signal", lambda: nullcontext(lambda: next(calls)))
    assert pretrain(pictures, parts, "--drop-path", 0) == 0
    assert len(logged(parts)) == 3
    monkeypatch.undo()
    assert pretrain(pictures, parts, "--drop-path", 0, "--resume") == 0
    assert values(parts) == values(whole)
    torch.testing.assert_close(weights(parts), weights(whole), rtol=0, atol=0)


def test_a_run_older_than_a_setting_goes_on(pictures, tmp_path, monkeypatch):
    run = tmp_path / "run"
    monkeypatch.setattr("training.pretrain.stop_signal", lambda: nullcontext(lambda: True))
    assert pretrain(pictures, run) == 0
    monkeypatch.undo()
    config = json.loads((run / "config.json").read_text())
    del config["recipe"]["crops"]["margin"]
    (run / "config.json").write_text(json.dumps(config))
    assert pretrain(pictures, run, "--resume", "--margin", 0.25) == 1
    assert pretrain(pictures, run, "--resume") == 0


def values(run):
    """What a run logged, but for the clock's."""
    return [
        {name: value for name, value in line.items() if name != "images_per_second"} for line in logged(run)
    ]


def test_a_run_begins_with_any_models_backbone(pictures, tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    assert pretrain(pictures, first) == 0
    more = ("--init-backbone", first, "--image-size", 48, "--global-size", 48, "--optimizer", "muon")
    assert pretrain(pictures, second, *more) == 0
    assert f"backbone of {first}, a fresh head" in capsys.readouterr().out
    start = torch.load(second / "step-00000000.pt", weights_only=True)["method"]
    taken = weights(first)
    for network in ("student", "teacher"):
        name = f"{network}.backbone.blocks.0.attn.qkv.weight"
        torch.testing.assert_close(start[name], taken["teacher.backbone.blocks.0.attn.qkv.weight"])
        assert start[f"{network}.backbone.pos_embed"].shape == (1, 37, 24)
    assert not torch.equal(start["student.head.mlp.0.weight"], taken["student.head.mlp.0.weight"])


def test_two_places_to_start_from_are_one_too_many(pictures, tmp_path, capsys):
    assert pretrain(pictures, tmp_path / "run", "--init-from", "a", "--init-backbone", "embedded") != 0
    assert "choose one" in capsys.readouterr().err


def test_init_from_takes_weights_only_and_resamples_positions(pictures, tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    assert pretrain(pictures, first) == 0
    more = ("--init-from", first, "--image-size", 48, "--global-size", 48, "--epochs", 1)
    assert pretrain(pictures, second, *more) == 0
    assert f"weights of {first}, step 6" in capsys.readouterr().out
    assert weights(second)["student.backbone.pos_embed"].shape == (1, 37, 24)
    assert logged(second)[0]["step"] == 0


def test_excluded_and_broken_pictures_are_left_out(pictures, tmp_path, capsys):
    (pictures / "class0" / "0.png").write_bytes(b"broken")
    (pictures / "notes.txt").write_text("no picture")
    excluded = tmp_path / "exclude.txt"
    excluded.write_text("class1/1.png\n")
    assert pretrain(pictures, tmp_path / "run", "--exclude", excluded) == 0
    captured = capsys.readouterr()
    assert "9 pictures" in captured.out
    assert captured.err.count("0.png") == 1
    assert "1 unreadable pictures were skipped" in captured.out


def test_the_small_data_recipe_prints_its_reasons(pictures, tmp_path, capsys):
    (pictures / "class0" / "0.png").write_bytes(b"broken")
    assert pretrain(pictures, tmp_path / "run", "--recipe", "small-data") == 0
    assert "pictures cannot fill more prototypes" in capsys.readouterr().out


def test_a_loss_that_is_no_number_stops_with_a_report_and_a_loadable_run(
    pictures, tmp_path, capsys, monkeypatch
):
    honest, calls = losses.multi_crop_cross_entropy, iter(range(100))

    def fail_at_fourth(*arguments):
        return honest(*arguments) * (float("nan") if next(calls) == 3 else 1.0)

    monkeypatch.setattr(losses, "multi_crop_cross_entropy", fail_at_fourth)
    output = tmp_path / "run"
    assert pretrain(pictures, output) == 1
    assert "the loss is nan at step 3" in capsys.readouterr().err
    assert all(tensor.isfinite().all() for tensor in weights(output).values())
    monkeypatch.undo()
    assert pretrain(pictures, output, "--resume") == 0
    assert len(logged(output)) == 6


def test_weights_that_are_no_numbers_are_never_saved(pictures, tmp_path, capsys, monkeypatch):
    def poison(parameters, _):
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.fill_(float("inf"))

    monkeypatch.setattr("training.loop.clip_each", poison)
    output = tmp_path / "run"
    assert pretrain(pictures, output, "--save-every", 1) == 1
    assert "hold NaN or infinity after step 0" in capsys.readouterr().err
    assert all(tensor.isfinite().all() for tensor in weights(output).values())


def test_signals_are_the_callers_again_after_a_run(pictures, tmp_path):
    former = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert pretrain(pictures, tmp_path / "run") == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == former


def test_pictures_that_are_all_broken_end_in_one_sentence(pictures, tmp_path, capsys):
    for path in pictures.rglob("*.png"):
        path.write_bytes(b"broken")
    assert pretrain(pictures, tmp_path / "run", "--workers", 1) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: 10 pictures in a row cannot be read")
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--batch-size", 11), "10 pictures are fewer than one batch of 11"),
        (("--warmup-epochs", 9), "--warmup-epochs 9 is longer than training of 3 epochs"),
        (("--teacher-temperature-warmup-epochs", 9), "--teacher-temperature-warmup-epochs 9 is longer"),
        (("--prototypes", 1), "K is 1"),
        (("--local-size", 4), "local_size is 4 pixels, less than one patch of 8"),
        (("--global-scale", 0.5, 0.2), "global_scale"),
        (("--exclude", "nowhere.txt"), "nowhere.txt"),
        (("--init-from", "nowhere"), "nowhere"),
        (("--resume",), "holds no run"),
        (("--device", "cuda:77"), "cuda:77"),
        (("--teacher-temperature", 0), "temperatures have to be above 0"),
        (("--teacher-momentum", 1.5), "teacher_momentum is 1.5"),
        (("--freeze-last-layer-epochs", -1), "--freeze-last-layer-epochs is -1, expected at least 0"),
        (("--lr", -1), "--lr is -1.0, expected a number of at least 0"),
        (("--min-lr", "nan"), "--min-lr is nan, expected a number of at least 0"),
        (("--clip-grad", -1), "--clip-grad is -1.0, expected a number of at least 0"),
        (("--save-every", 0), "--save-every is 0"),
        (("--workers", -1), "--workers is -1"),
        (("--heads", 0), "heads is 0"),
        (("--in-channels", 4), "in_channels is 4"),
        (("--recipe", "small-data", "--batch-size", 0), "batch_size is 0"),
    ],
)
def test_settings_that_cannot_be_end_in_one_sentence(pictures, tmp_path, capsys, more, words):
    assert pretrain(pictures, tmp_path / "run", *more) == 1
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.glob("run/*"))


def test_a_run_without_classes_says_that_it_is_not_probed(pictures, tmp_path, capsys):
    assert pretrain(pictures / "class0", tmp_path / "run") == 0
    assert "no k-NN probe" in capsys.readouterr().out


def test_an_empty_folder_ends_in_one_sentence(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert pretrain(tmp_path / "empty", tmp_path / "run") == 1
    assert "empty" in capsys.readouterr().err


def test_resuming_with_other_settings_is_refused(pictures, tmp_path, capsys):
    assert pretrain(pictures, tmp_path / "run") == 0
    assert pretrain(pictures, tmp_path / "run", "--resume", "--lr", 0.1) == 1
    assert "recipe.optimizer.lr was 0.0005, now 0.1" in capsys.readouterr().err
    assert pretrain(pictures, tmp_path / "run") == 1
    assert "already holds a run" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_can_be_loaded_and_goes_on(pictures, tmp_path, number):
    output = tmp_path / "run"
    arguments = [
        "--data",
        str(pictures),
        "--output",
        str(output),
        *TINY,
        "--epochs",
        "400",
        "--warmup-epochs",
        "1",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "training", "pretrain", *arguments],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (Run(output).log.exists() and len(Run(output).log.read_text().splitlines()) > 5):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (0 if number == signal.SIGTERM else -number)
    state = torch.load(Run(output).checkpoint, weights_only=True)
    assert state["step"] > 0
    if number == signal.SIGTERM:
        assert state["step"] == len(logged(output))


def test_help_and_unknown_commands(capsys):
    assert command.main(["--help"]) == 0
    assert "pretrain" in capsys.readouterr().out
    assert command.main(["dance"]) == 2
    with pytest.raises(SystemExit) as exit_:
        command.main(["pretrain", "--help"])
    assert exit_.value.code == 0
    assert "--teacher-momentum" in capsys.readouterr().out
