"""What every command promises: wrong inputs, broken files, outputs, interruptions, `--json`, exit codes."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from skimage import data

from dino_model.runtime.dispatch import main
from dino_model.runtime.outputs import OutputFolder
from segmentation.labels import write_mask_png
from tests.commands import PACKAGES
from tests.training.runs import TINY, noise

MODEL = "--model random:vit_tiny/16 --size 32 --device cpu --precision fp32"
WITHOUT_INPUT = {"dino_model list", "dino_model show", "training evaluate throughput"}
OF_PUBLISHED_DATA = {"training evaluate retrieval", "training evaluate copy-detection"}
VOLATILE = {"provenance.json", "progress.jsonl", "log.jsonl"}
"""Files with times."""


@dataclass(frozen=True)
class Case:
    """A command with a tiny input, run in a folder that has the files of `material`."""

    words: str
    wrong: str
    """Input that is replaced by the name of a missing file or folder."""
    broken: str | None = None
    """Input file that is no image of its format; one of several."""
    broken_code: int = 1
    output: str | None = "out"
    """Folder or file that is written."""
    json: bool = True
    other: str | None = None
    """Another setting, with which a run must not be resumed; None if the command cannot be resumed."""
    items: int = 2
    """Item whose recording is interrupted."""
    code: int = 0


CASES = {
    "segmentation attention": Case(
        f"images --output out {MODEL}", "images", "images/cup.png", other="--mass 0.5"
    ),
    "segmentation voc": Case(
        f"--root VOCdevkit --output out {MODEL}",
        "VOCdevkit",
        "VOCdevkit/VOC2012/JPEGImages/cup.jpg",
        other="--mass 0.5",
    ),
    "segmentation davis": Case(
        "--root DAVIS --output out --features color --size 64",
        "DAVIS",
        "DAVIS/JPEGImages/480p/cows/1.jpg",
        other="--preset crw",
    ),
    "segmentation discover": Case(
        f"images --masks masks --output out --methods lost {MODEL}",
        "images",
        "images/cup.png",
        other="--count 2",
    ),
    "segmentation match": Case(
        f"images/cat.png images/cup.png --output out {MODEL}",
        "images/cup.png",
        "images/cup.png",
        other="--ratio 0.5",
        items=1,
    ),
    "segmentation video": Case(
        f"DAVIS/JPEGImages/480p/cows --output out {MODEL}",
        "DAVIS/JPEGImages/480p/cows",
        "DAVIS/JPEGImages/480p/cows/1.jpg",
        other="--mass 0.5",
        items=1,
    ),
    "segmentation score": Case(
        "--ground-truth DAVIS/Annotations/480p --predictions predictions",
        "predictions",
        "predictions/cows/1.png",
        output=None,
    ),
    "segmentation head fit": Case(
        f"--images images --masks masks --output new.safetensors {MODEL}",
        "masks",
        "masks/cup.png",
        output="new.safetensors",
        json=False,
    ),
    "segmentation head apply": Case(
        "images --head head.safetensors --output out --precision fp32",
        "images",
        "images/cup.png",
        other="--precision bf16",
    ),
    "segmentation head score": Case(
        "--images images --masks masks --head head.safetensors",
        "head.safetensors",
        "images/cup.png",
        output=None,
    ),
    "segmentation head curve": Case(
        "--images images --masks masks --list names.txt --test names.txt --models random:vit_tiny/16"
        " --counts 1 --size 32",
        "names.txt",
        "images/cup.png",
        output=None,
    ),
    "dino_model embed": Case(
        f"--data images --output f.npz {MODEL}", "images", "images/cup.png", 0, "f.npz", json=False
    ),
    "dino_model index": Case(
        f"images --output i.safetensors {MODEL}", "images", "images/cup.png", 0, None, json=False
    ),
    "dino_model search": Case(
        "images/cat.png --index index.safetensors",
        "index.safetensors",
        "images/cat.png",
        output=None,
    ),
    "dino_model predict": Case(
        "images --head linear.safetensors --output p.csv",
        "images",
        "images/cup.png",
        0,
        "p.csv",
        json=False,
    ),
    "dino_model export": Case(
        "random:vit_tiny/16 --output m.safetensors",
        "random:vit_tiny/16",
        output="m.safetensors",
        json=False,
    ),
    "dino_model class-map": Case(
        f"--data labeled --output out --iterations 250 {MODEL}",
        "labeled",
        "labeled/class0/0.png",
        0,
        json=False,
    ),
    "training evaluate knn": Case(
        f"--data labeled --k 1 --predict images --output p.csv {MODEL}",
        "labeled",
        "labeled/class0/0.png",
        0,
        "p.csv",
    ),
    "training evaluate linear": Case(
        f"--data labeled --epochs 1 --rates 0.1 --save-head h.safetensors {MODEL}",
        "labeled",
        "labeled/class0/0.png",
        0,
        "h.safetensors",
    ),
    "training evaluate logistic": Case(
        f"--data labeled --shares 2 --seeds 1 {MODEL}", "labeled", "labeled/class0/0.png", 0, None
    ),
    "training evaluate finetune": Case(
        f"--data labeled --epochs 1 --batch 4 --output out {MODEL}",
        "labeled",
        "labeled/class0/0.png",
        0,
        items=1,
    ),
    "training evaluate copy-detection synthetic": Case(
        f"--data labeled --copies 1 {MODEL}", "labeled", "labeled/class0/0.png", 0, None
    ),
    "training pretrain": Case(
        f"--data labeled --output out {' '.join(TINY)}", "labeled", output="out", json=False
    ),
    "training doctor": Case("run", "run", output=None, code=3),
    "training study": Case("emergence --output out", "emergence"),
}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with masks, in the layouts that commands read; fitted heads, an index, a run."""
    folder = tmp_path_factory.mktemp("material")
    voc, davis = folder / "VOCdevkit/VOC2012", folder / "DAVIS"
    labels = np.zeros((96, 128), np.uint8)
    labels[20:80, 10:90] = 1
    for place in (folder / "masks", voc / "SegmentationClass", voc / "SegmentationObject"):
        place.mkdir(parents=True)
    for name, image in {"cat": data.cat(), "cup": data.coffee(), "sky": data.rocket()}.items():
        for place in ("images", "VOCdevkit/VOC2012/JPEGImages"):
            (folder / place).mkdir(parents=True, exist_ok=True)
            suffix = "png" if place == "images" else "jpg"
            Image.fromarray(image[:96, :128]).save(folder / place / f"{name}.{suffix}")
        for mask in (folder / "masks", voc / "SegmentationClass", voc / "SegmentationObject"):
            write_mask_png(mask / f"{name}.png", labels)
    (voc / "ImageSets/Segmentation").mkdir(parents=True)
    (voc / "ImageSets/Segmentation/val.txt").write_text("cat\ncup\nsky\n")
    (folder / "names.txt").write_text("cat\ncup\nsky\n")
    for name in ("bear", "cows"):
        for number in range(3):
            frame = davis / f"JPEGImages/480p/{name}/{number}.jpg"
            frame.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(data.cat()[8 * number :][:96, :128]).save(frame)
            for root in (davis / "Annotations/480p", folder / "predictions"):
                (root / name).mkdir(parents=True, exist_ok=True)
                write_mask_png(root / f"{name}/{number}.png", labels)
    (davis / "ImageSets/2017").mkdir(parents=True)
    (davis / "ImageSets/2017/val.txt").write_text("bear\ncows\n")
    noise(folder / "labeled", 18, 3, 24, 24)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in (
            f"segmentation head fit --images images --masks masks --output head.safetensors {MODEL}",
            f"dino_model index images --output index.safetensors {MODEL}",
            f"training evaluate linear --data labeled --epochs 1 --save-head linear.safetensors {MODEL}",
            f"training pretrain --data labeled --output run --probe-every 0 {' '.join(TINY)}",
        ):
            assert run(words) == 0, words
    return folder


def run(line: str) -> int:
    """Run a command in this process; return its exit code."""
    package, *words = line.split()
    return main(package, PACKAGES[package], words)


def files_of(place: Path, pattern: str = "*") -> dict[str, bytes]:
    """Contents of the results, without files that hold times."""
    files = [place] if place.is_file() else sorted(file for file in place.rglob(pattern) if file.is_file())
    kept = (file for file in files if file.name not in VOLATILE and file.suffix not in (".webm", ".pt"))
    return {str(file.relative_to(place)): file.read_bytes() for file in kept}


@pytest.fixture(scope="module")
def finish(material: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a folder in which a command was run with `--json`; it is run once."""
    folders: dict[str, Path] = {}

    def run_once(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("finished") / "work"
            shutil.copytree(material, folders[name])
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folders[name])
                assert (
                    run(f"{name} {CASES[name].words}{' --json result.json' * CASES[name].json}")
                    == CASES[name].code
                )
        return folders[name]

    return run_once


@pytest.fixture
def work(material: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a copy of the material."""
    shutil.copytree(material, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_contract_has_every_command():
    names = {f"{package} {name}" for package, commands in PACKAGES.items() for name in commands}
    assert names == set(CASES) | WITHOUT_INPUT | OF_PUBLISHED_DATA


@pytest.mark.parametrize("name", CASES)
def test_wrong_input_is_named_in_one_line_and_nothing_is_written(name: str, work: Path, capsys):
    case, before = CASES[name], set(work.rglob("*"))
    words = ["absent" if word == case.wrong else word for word in case.words.split()]
    assert run(" ".join([name, *words])) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("error: ")
    assert "absent" in last
    assert set(work.rglob("*")) == before


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.broken])
def test_broken_file_is_named_and_the_others_are_used(name: str, work: Path, capsys):
    case = CASES[name]
    assert case.broken
    Path(case.broken).write_bytes(b"no image")
    assert run(f"{name} {case.words}") == case.broken_code
    printed = capsys.readouterr()
    assert Path(case.broken).name in printed.out + printed.err
    if case.other and case.broken_code:
        assert "skipped 1 of " in printed.err
        assert bool(files_of(work / "out")) == (case.items > 1)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.output])
def test_existing_output_stays_without_overwrite(name: str, finish, monkeypatch, capsys):
    case, folder = CASES[name], finish(name)
    monkeypatch.chdir(folder)
    before = files_of(folder / str(case.output))
    assert run(f"{name} {case.words}") == 1
    assert "--overwrite" in capsys.readouterr().err
    assert files_of(folder / str(case.output)) == before


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.output])
def test_overwrite_replaces_the_results_and_nothing_else(name: str, finish, work: Path):
    case = CASES[name]
    output = work / str(case.output)
    if (finish(name) / str(case.output)).is_file():
        shutil.copy(finish(name) / str(case.output), output)
    else:
        shutil.copytree(finish(name) / str(case.output), output)
        (output / "notes.txt").write_text("of the user")
    assert run(f"{name} {case.words} --overwrite") == 0
    if output.is_dir():
        assert (output / "notes.txt").read_text() == "of the user"
    assert len(files_of(output)) >= len(files_of(finish(name) / str(case.output)))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.other])
def test_resume_after_interruption_gives_the_same_files(name: str, finish, work: Path, monkeypatch, capsys):
    case, added, add = CASES[name], list[str](), OutputFolder.add

    def interrupt(self: OutputFolder, item: str, *arguments: Any, **more: Any) -> None:
        added.append(item)
        if len(added) == case.items:
            raise KeyboardInterrupt
        add(self, item, *arguments, **more)

    monkeypatch.setattr(OutputFolder, "add", interrupt)
    assert run(f"{name} {case.words}") == 130
    assert "Finished results are kept" in capsys.readouterr().err
    with (work / "out/progress.jsonl").open("a") as log:
        log.write('["cup", [')  # as a killed process leaves it
    resumed = f"{name} {case.words} --resume"
    assert run(f"{resumed} {case.other}") == 1
    assert "was made with other settings" in capsys.readouterr().err
    assert run(f"{resumed} --json result.json") == 0
    assert added.count(added[case.items - 1]) == 2
    assert added.count(added[0]) == 1 + (case.items == 1)
    found, expected = (files_of(folder / "out", "*.[!s]*") for folder in (work, finish(name)))
    assert found == expected
    found, expected = (json.loads((folder / "result.json").read_text()) for folder in (work, finish(name)))
    assert found.get("results", found) == expected.get("results", expected)
    count = len(added)
    assert run(resumed) == 0
    assert len(added) == count, "a finished item was computed again"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.json])
def test_json_has_the_results_without_nan(name: str, finish):
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads((finish(name) / "result.json").read_text(), parse_constant=refuse)


@pytest.mark.parametrize("package", PACKAGES)
def test_unknown_command_lists_the_known_ones(package: str, capsys):
    assert run(f"{package} --help") == 0
    usage = capsys.readouterr().out
    assert all(f"\n  {name} " in usage for name in PACKAGES[package])
    assert run(f"{package} dance --output out") == 2
    assert f"unknown command 'dance'\n\n{usage}" == capsys.readouterr().err
