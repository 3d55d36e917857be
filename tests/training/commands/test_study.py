"""`study` from pictures to picture, table and words; stopped, gone on with, refused."""

import json
import shutil
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dino_model.collections import Images
from tests.training.pictures import noise
from training import __main__ as command
from training.commands import study as module
from training.run import Run
from training.studies import base, grids


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """In a tar: what its index holds is no tuple, unlike a folder's names."""
    folder = noise(tmp_path_factory.mktemp("pictures"), 66, 2, 20, 20)
    return Path(shutil.make_archive(str(folder), "tar", folder))


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """A base setting of one block, so that a run takes a second."""
    whole = base.recipe

    def recipe(epochs):
        small = replace(whole(epochs).backbone, width=24, depth=1, image_size=16)
        crops = replace(whole(epochs).crops, global_size=16, local_size=8, local_crops=1)
        return replace(whole(epochs), backbone=small, crops=crops)

    monkeypatch.setattr(grids.base, "recipe", recipe)


def study(pictures, output, *more, name="collapse"):
    words = ["study", name, "--data", str(pictures), "--output", str(output), "--epochs", "2"]
    return command.main([*words, "--precision", "fp32", "--device", "cpu", *map(str, more)])


class AfterSteps(list):
    """What asks to stop once it was asked so often."""

    def __init__(self, steps):
        self.left = steps

    def __bool__(self):
        self.left -= 1
        return self.left < 0


def test_a_study_leaves_picture_table_log_and_words_and_goes_on_where_it_was_stopped(
    pictures, tmp_path, capsys, monkeypatch
):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert study(pictures, whole, "--json", tmp_path / "figures.json") == 0
    said = capsys.readouterr().out
    assert "| no centering |" in said
    assert "The paper's conclusion" in said
    assert (whole / "collapse.png").read_bytes()[:4] == b"\x89PNG"
    words = (whole / "collapse.md").read_text()
    assert "KL to 0, entropy to ln K" in words
    assert "python -m training study collapse" in words
    raw = [json.loads(line) for line in (whole / "collapse.jsonl").read_text().splitlines()]
    assert {line["variant"] for line in raw} == {"both", "no-centering", "no-sharpening", "neither"}
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [run["variant"] for run in figures["runs"]] == ["both", "no-centering", "no-sharpening", "neither"]

    with monkeypatch.context() as patch:
        patch.setattr(module, "stop_signal", lambda: nullcontext(AfterSteps(8)))
        assert study(pictures, parts) == 75
    assert "--resume goes on" in capsys.readouterr().out
    assert study(pictures, parts) == 1
    assert "--resume goes on" in capsys.readouterr().err
    # What a kill leaves: a run whose last line is cut short, and one that has not begun.
    begun = sorted((parts / "runs").iterdir())
    assert 0 < len(begun) < 4
    assert study(pictures, parts, "--resume", "--jobs", 2) == 0
    assert knn(parts) == knn(whole)


def test_who_trains_for_a_study_ends_when_it_is_killed(pictures, tmp_path):
    output = tmp_path / "study"
    words = ["study", "collapse", "--data", str(pictures), "--output", str(output), "--jobs", "2"]
    first = subprocess.Popen(
        [sys.executable, "-m", "training", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    while not list(output.glob("runs/*/log.jsonl")):
        assert first.poll() is None
        time.sleep(0.1)
    first.kill()
    first.communicate(timeout=60)  # until nobody holds the pipe


def knn(folder):
    raw = [json.loads(line) for line in (folder / "collapse.jsonl").read_text().splitlines()]
    return {(line["variant"], line["step"]): line["loss"] for line in raw}


def test_a_run_killed_while_it_wrote_goes_on(pictures, tmp_path):
    output = tmp_path / "study"
    assert study(pictures, output) == 0
    before = knn(output)
    run = Run(output / "runs" / "neither-0")
    lines = run.log.read_text().splitlines()
    run.log.write_text("\n".join(lines[:2]) + "\n" + lines[2][:20])  # the checkpoint is ahead: a lost log
    shutil.rmtree(output / "runs" / "both-0")  # and one that was never begun
    (run.folder / "checkpoint.pt").unlink()
    assert study(pictures, output, "--resume") == 0
    assert knn(output) == before


def test_a_run_that_diverged_before_its_first_probe_stands_in_the_table(pictures, tmp_path):
    folder = tmp_path / "study"
    assert study(pictures, folder) == 0
    run = folder / "runs" / "neither-0"
    first = {name: value for name, value in Run(run).lines()[0].items() if "knn_" not in name}
    Run(run).log.write_text(json.dumps(first) + "\n")
    untrained = Run(run).config()["untrained_knn"]
    (run / "diverged.txt").write_text("the loss is nan at step 1\n")
    assert study(pictures, folder, "--resume") == 0
    assert f"| neither | {untrained:.1f} (diverged) |" in (folder / "collapse.md").read_text()


def test_another_study_s_folder_is_refused(pictures, tmp_path, capsys):
    (tmp_path / "study.json").write_text(json.dumps({"study": "teacher"}))
    assert study(pictures, tmp_path, "--resume") == 1
    assert "holds the study 'teacher': pass another --output for 'collapse'" in capsys.readouterr().err


def test_a_folder_with_something_else_is_refused(pictures, tmp_path, capsys):
    (tmp_path / "letter.txt").write_text("dear")
    assert study(pictures, tmp_path) == 1
    assert "is not empty and holds no study" in capsys.readouterr().err


def test_other_settings_are_refused(pictures, tmp_path, capsys):
    plan = {"study": "collapse", "seeds": 1, "epochs": 9, "data": "x", "precision": "fp32"}
    (tmp_path / "study.json").write_text(json.dumps(plan))
    assert study(pictures, tmp_path, "--resume") == 1
    assert "--epochs was 9, now 2" in capsys.readouterr().err


def test_a_damaged_study_is_told_in_a_sentence(pictures, tmp_path, capsys):
    (tmp_path / "study.json").write_text('{"study": "coll')
    assert study(pictures, tmp_path, "--resume") == 1
    assert "study.json is damaged" in capsys.readouterr().err


def test_an_unknown_study_is_told_the_names(pictures, tmp_path, capsys):
    assert study(pictures, tmp_path / "new", name="colapse") == 1
    assert "no study 'colapse': choose collapse, teacher" in capsys.readouterr().err


def test_pictures_without_classes_are_refused(tmp_path, capsys):
    Image.fromarray(np.zeros((20, 20, 3), np.uint8)).save(tmp_path / "one.png")
    assert study(tmp_path, tmp_path / "new") == 1
    assert "labelled pictures" in capsys.readouterr().err


def test_few_pictures_are_refused(tmp_path, capsys):
    for name in "ab":
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((20, 20, 3), np.uint8)).save(tmp_path / "data" / name / "one.png")
    assert study(tmp_path / "data", tmp_path / "new") == 1
    assert "2 pictures in 2 classes are too few" in capsys.readouterr().err


def test_the_largest_classes_are_chosen_evenly():
    labels = [0] * 300 + [1] * 50 + [2] * 7
    names = tuple(str(i) for i in range(len(labels)))
    chosen = base.choose(Images(names, tuple(labels), ("a", "BACKGROUND_Google", "c"), Path()))
    assert [chosen.labels.count(label) for label in range(3)] == [100, 0, 7]
    assert chosen.names[:3] == ("0", "3", "6")


def test_variants_of_one_recipe_are_trained_once_for_each_seed(tmp_path):
    variants = list(grids.STUDIES["head"].make(2))
    folders = {cell.variant: cell.folder.name for cell in module.grid(tmp_path, variants, 1)}
    alike = {name for name, folder in folders.items() if folder == "bottleneck-3-0"}
    assert alike == {variant.name for variant in variants if variant.recipe == base.recipe(2)}
    assert len(alike) == 4
    assert len({cell.folder for cell in module.grid(tmp_path, variants, 3)}) == 3 * (len(variants) - 3)
