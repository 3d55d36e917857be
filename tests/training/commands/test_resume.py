"""Resuming what people have: other settings, and folders with damaged or missing files."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from dino_model.data import textures
from tests.training.runs import pretrain, resume
from training.run.folder import Run


def change_config(run: Path, **changes: object) -> None:
    file = run / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def remove_config_entry(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    del config["seed"]
    (run / "config.json").write_text(json.dumps(config))


def lose_checkpoint(run: Path) -> None:
    (run / "checkpoint.pt").unlink()


def lose_weights(run: Path) -> None:
    for file in run.glob("*.pt"):
        file.unlink()


def take_checkpoint_of_other_settings(run: Path) -> None:
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    state["method"]["center"] = torch.zeros(1, 8)
    torch.save(state, run / "checkpoint.pt")


DAMAGES = {
    "fewer epochs than done": (
        lambda run: None,
        "--resume --epochs 2",
        "has done 6 steps, but --epochs 2 are 4 steps: pass --epochs 3 or more",
    ),
    "checkpoint gone": (
        lose_checkpoint,
        "--resume",
        "has no checkpoint.pt, but the weights after 6 steps: put checkpoint.pt back, or start from them in "
        "another folder with --init-from {run}/step-00000006.pt; --overwrite replaces the run",
    ),
    "all weights gone": (
        lose_weights,
        "--resume",
        "has no checkpoint.pt, but the log.jsonl of a run: put checkpoint.pt back; --overwrite",
    ),
    "checkpoint without configuration": (
        lambda run: (run / "config.json").unlink(),
        "--resume",
        "{run} holds no run: expected config.json and checkpoint.pt in it",
    ),
    "cut configuration": (
        lambda run: (run / "config.json").write_text((run / "config.json").read_text()[:200]),
        "--resume",
        "config.json is no configuration of a run",
    ),
    "configuration without seed": (remove_config_entry, "--resume", "it lacks seed: put the file back"),
    "unknown method": (
        lambda run: change_config(run, method="simsiam"),
        "--resume",
        "the run was trained with 'simsiam', an unknown method",
    ),
    "checkpoint of other settings": (
        take_checkpoint_of_other_settings,
        "--resume",
        "checkpoint.pt does not fit the configuration: size mismatch for center",
    ),
}


@pytest.mark.parametrize(("damage", "words", "message"), DAMAGES.values(), ids=DAMAGES)
def test_resume_of_unusable_folder_is_an_error_and_touches_nothing(
    images, trained, tmp_path, capsys, damage, words, message
):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    damage(run)
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert pretrain(images, run, "--epochs", 3, *words.split()) == 1
    assert message.format(run=run) in capsys.readouterr().err
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def test_resume_of_finished_run_with_same_epochs_ends_at_once_and_more_epochs_continue(
    trained, tmp_path, capsys
):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    before = {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()}
    assert resume(run, "--epochs", 3) == 0
    assert "6 of 6 steps done" in capsys.readouterr().out
    assert {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()} == before
    assert resume(run, "--epochs", 4, "--probe-every", 0) == 0
    assert [line["step"] for line in Run(run).lines()] == list(range(8))


def test_resume_opens_generated_images_again(tmp_path, monkeypatch):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path))
    monkeypatch.setattr(textures, "SETS", {"textures:": (0, 1)})
    run = tmp_path / "run"
    assert pretrain("textures:", run, "--epochs", 1, "--probe-every", 0) == 0
    assert resume(run, "--epochs", 2, "--probe-every", 0) == 0
    assert [line["step"] for line in Run(run).lines()] == list(range(8))


@pytest.mark.parametrize("kept", [0, 4])
def test_resume_counts_the_steps_that_the_log_has_lost(trained, tmp_path, capsys, kept):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    lines = (run / "log.jsonl").read_text().splitlines(keepends=True)
    (run / "log.jsonl").write_text("".join(lines[:kept]))
    if not kept:
        (run / "log.jsonl").unlink()
    assert resume(run, "--epochs", 4, "--probe-every", 0) == 0
    assert f"{run / 'log.jsonl'} lacks {6 - kept} steps before it" in capsys.readouterr().out


def test_resume_names_changed_images_and_accepts_them_by_option(images, tmp_path, capsys):
    data, run = Path(shutil.copytree(images, tmp_path / "data")), tmp_path / "run"
    assert pretrain(data, run, "--epochs", 1, "--probe-every", 0) == 0
    removed, changed, *_ = sorted(data.rglob("*.png"))
    removed.unlink()
    changed.write_bytes(changed.read_bytes() + b" ")
    shutil.copy(changed, changed.with_name("new.png"))
    words = ("--epochs", 3, "--probe-every", 0)
    assert resume(run, *words) == 1
    error = capsys.readouterr().err
    names = {path.relative_to(data).as_posix() for path in (removed, changed, changed.with_name("new.png"))}
    assert all(name in error for name in names)
    assert "--accept-data-change" in error
    assert resume(run, *words, "--accept-data-change") == 0
    (change,) = json.loads((run / "config.json").read_text())["changes"]
    assert all(name in change["images"] for name in names)
    assert resume(run, *words) == 0
