"""What every command promises: wrong inputs, broken files, outputs, interruptions, `--json`, exit codes."""

import json
import pkgutil
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
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


@dataclass(frozen=True)
class Case:
    """A row of `TABLE`: a command with a tiny input, run in a folder that has the files of `material`."""

    options: str
    wrong: str
    broken: str = ""
    other: str = ""

    @property
    def output(self) -> str:
        """Folder or file that is written, if that needs --overwrite."""
        found = re.search(r"(?:--output|--save-head) (\S+)", self.options)
        return found[1] if found and found[1] != "i.safetensors" else ""


WITHOUT_INPUT = {"dino_model list", "dino_model show", "training evaluate throughput"}
OF_PUBLISHED_DATA = {"training evaluate retrieval", "training evaluate copy-detection"}
WITHOUT_JSON = {"segmentation head fit", "training pretrain"}
WITHOUT_JSON |= {f"dino_model {name}" for name in ("embed", "index", "predict", "export", "class-map")}
OF_ONE_ITEM = {"segmentation match", "segmentation video", "training evaluate finetune"}
LEAVE_OUT = re.compile("dino_model (?!search)|training")
"""Commands that leave a broken image out, and end with 0."""
VOLATILE = {"provenance.json", "progress.jsonl", "log.jsonl"}
"""Files with times."""
JPEG, FRAMES, LABELED = "voc/VOC2012/JPEGImages", "D/JPEGImages/480p/cows", "labeled/class0/0.png"
MODEL = "--model random:vit_tiny/16 --size 32 --device cpu --precision fp32"
CURVE = "--models random:vit_tiny/16 --counts 1 --size 32"
TABLE = f"""
segmentation attention | in --output out {MODEL} | in | in/cup.png | --mass 0.5
segmentation voc | --root voc --output out {MODEL} | voc | {JPEG}/cup.jpg | --mass 0.5
segmentation davis | --root D --output out --features color --size 64 | D | {FRAMES}/1.jpg | --preset crw
segmentation discover | in --output out --methods lost {MODEL} | in | in/cup.png | --count 2
segmentation match | in/cat.png in/cup.png --output out {MODEL} | in/cup.png | in/cup.png | --ratio 0.5
segmentation video | {FRAMES} --output out {MODEL} | {FRAMES} | {FRAMES}/1.jpg | --mass 0.5
segmentation score | --ground-truth truth --predictions guess | guess | guess/cows/1.png
segmentation head fit | --images in --masks masks --output new.safetensors {MODEL} | masks | masks/cup.png
segmentation head apply | in --head head.safetensors --output out | in | in/cup.png | --precision fp16
segmentation head score | --images in --masks masks --head head.safetensors | head.safetensors | in/cup.png
segmentation head curve | --images in --masks masks --list list --test list {CURVE} | list | in/cup.png
dino_model embed | --data in --output f.npz {MODEL} | in | in/cup.png
dino_model index | in --output i.safetensors {MODEL} | in | in/cup.png
dino_model search | in/cat.png --index index.safetensors | index.safetensors | in/cat.png
dino_model predict | in --head linear.safetensors --output p.csv | in | in/cup.png
dino_model export | random:vit_tiny/16 --output m.safetensors | random:vit_tiny/16
dino_model class-map | --data labeled --output out --iterations 250 {MODEL} | labeled | {LABELED}
training evaluate knn | --data labeled --k 1 --predict in --output p.csv {MODEL} | labeled | {LABELED}
training evaluate linear | --data labeled --epochs 1 --save-head h.safetensors {MODEL} | labeled | {LABELED}
training evaluate logistic | --data labeled --shares 2 --seeds 1 {MODEL} | labeled | {LABELED}
training evaluate finetune | --data labeled --epochs 1 --output out {MODEL} | labeled | {LABELED} | --rate 0.5
training evaluate copy-detection synthetic | --data labeled --copies 1 {MODEL} | labeled | {LABELED}
training pretrain | --data labeled --output out {" ".join(TINY)} | labeled
training doctor | run | run
training study | emergence --output out | emergence
"""
"""Command | options | input to misname | file to damage | another setting, which must not be resumed."""
CASES = {
    cells[0]: Case(*cells[1:]) for cells in (re.split(r" *\| *", row) for row in TABLE.split("\n")[1:-1])
}


def mark_slow(names: Iterable[str]) -> list[Any]:
    """Mark the commands that take seconds to finish."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name == "training study")) for name in names]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with masks, in the layouts that commands read; fitted heads, an index, a run."""
    folder = tmp_path_factory.mktemp("material")
    voc, davis = folder / "voc/VOC2012", folder / "D"
    labels = np.zeros((96, 128), np.uint8)
    labels[20:80, 10:90] = 1
    mask_folders = folder / "masks", voc / "SegmentationClass", voc / "SegmentationObject"
    for place in (*mask_folders, folder / "in", folder / JPEG, voc / "ImageSets/Segmentation"):
        place.mkdir(parents=True)
    for name, image in {"cat": data.cat(), "cup": data.coffee(), "sky": data.rocket()}.items():
        for file in (f"in/{name}.png", f"{JPEG}/{name}.jpg"):
            Image.fromarray(image[:96, :128]).save(folder / file)
        for place in mask_folders:
            write_mask_png(place / f"{name}.png", labels)
    (voc / "ImageSets/Segmentation/val.txt").write_text("cat\ncup\nsky\n")
    (folder / "list").write_text("cat\ncup\nsky\n")
    for name in ("bear", "cows"):
        for number in range(3):
            frame = davis / f"JPEGImages/480p/{name}/{number}.jpg"
            frame.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(data.cat()[8 * number :][:96, :128]).save(frame)
            for root in (davis / "Annotations/480p", folder / "truth", folder / "guess"):
                (root / name).mkdir(parents=True, exist_ok=True)
                write_mask_png(root / f"{name}/{number}.png", labels)
    (davis / "ImageSets/2017").mkdir(parents=True)
    (davis / "ImageSets/2017/val.txt").write_text("bear\ncows\n")
    noise(folder / "labeled", 18, 3, 24, 24)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in (
            f"segmentation head fit --images in --masks masks --output head.safetensors {MODEL}",
            f"dino_model index in --output index.safetensors {MODEL}",
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
                line = f"{name} {CASES[name].options}" + " --json result.json" * (name not in WITHOUT_JSON)
                assert run(line) == (3 if name == "training doctor" else 0)
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


DEFAULTS = """
dino_model embed | batch_size=64 layers=1 size=224
dino_model index | batch_size=64 size=224
dino_model search | count=9
dino_model predict | batch_size=64
dino_model class-map | batch_size=64 iterations=5000 size=224
segmentation attention | block=-1 mass=0.6 max_megapixels=100.0 overlap=0.25 size=480
segmentation voc | block=-1 mass=0.6 size=480
segmentation davis | size=480
segmentation video | fps=24.0 mass=0.6 size=480
segmentation match | ratio=1.0 size=480
segmentation discover | count=3 head=4 min_confidence=-1.0 size=480
segmentation head fit | layers=1 max_megapixels=100.0 overlap=0.25
segmentation head apply | max_megapixels=100.0 overlap=0.25
segmentation head score | max_megapixels=100.0 overlap=0.25
segmentation head curve | counts=(1,5,10) layers=1
training evaluate knn | batch_size=64 k=(20,) size=112 temperature=0.07
training evaluate linear | batch=256 batch_size=64 epochs=100 size=112
training evaluate logistic | batch_size=64 l2=0.1 seeds=5 size=112
training evaluate retrieval | batch_size=64 size=224
training evaluate copy-detection | batch_size=64 size=224
training evaluate copy-detection synthetic | batch_size=64 size=112
training evaluate finetune | batch_size=64 size=112
training evaluate throughput | batch=128 size=224
"""
"""Command | numbers other than 0 that its options have by default."""


def test_numeric_options_have_their_defaults():
    rows = []
    for package, commands in PACKAGES.items():
        for name, place in commands.items():
            command: Any = pkgutil.resolve_name(place)
            options = fields(command) if isinstance(command, type) else ()
            defaults = sorted(f"{option.name}={option.default}" for option in options if option.default)
            numbers = [
                text.replace(" ", "") for text in defaults if re.fullmatch(r"\w+=[-\d.,() ]{1,12}", text)
            ]
            rows += [f"{package} {name} | {' '.join(numbers)}"] if numbers else []
    assert rows == DEFAULTS.strip().splitlines()


@pytest.mark.parametrize("name", CASES)
def test_wrong_input_is_named_in_one_line_and_nothing_is_written(name: str, work: Path, capsys):
    case, before = CASES[name], set(work.rglob("*"))
    words = ["absent" if word == case.wrong else word for word in case.options.split()]
    assert run(" ".join([name, *words])) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("error: ")
    assert "absent" in last
    assert set(work.rglob("*")) == before


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.broken])
def test_broken_file_is_named_and_the_others_are_used(name: str, work: Path, capsys):
    case = CASES[name]
    Path(case.broken).write_bytes(b"no image")
    assert run(f"{name} {case.options}") == (not LEAVE_OUT.match(name))
    printed = capsys.readouterr()
    assert Path(case.broken).name in printed.out + printed.err
    if case.other and not LEAVE_OUT.match(name):
        assert "skipped 1 of " in printed.err
        assert bool(files_of(work / "out")) == (name not in OF_ONE_ITEM)


@pytest.mark.parametrize("name", mark_slow(name for name, case in CASES.items() if case.output))
def test_existing_output_is_replaced_with_overwrite_only(name: str, finish, work: Path, capsys):
    line, first = f"{name} {CASES[name].options}", finish(name) / CASES[name].output
    output = work / CASES[name].output
    if first.is_file():
        shutil.copy(first, output)
    else:
        shutil.copytree(first, output)
        (output / "notes.txt").write_text("of the user")
    before = files_of(output)
    assert run(line) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert files_of(output) == before
    assert run(f"{line} --overwrite") == 0
    assert files_of(output).keys() == before.keys()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.other])
def test_resume_after_interruption_gives_the_same_files(name: str, finish, work: Path, monkeypatch, capsys):
    case, added, add = CASES[name], list[str](), OutputFolder.add
    item = 1 if name in OF_ONE_ITEM else 2

    def interrupt(self: OutputFolder, key: str, *arguments: Any, **more: Any) -> None:
        added.append(key)
        if len(added) == item:
            raise KeyboardInterrupt
        add(self, key, *arguments, **more)

    monkeypatch.setattr(OutputFolder, "add", interrupt)
    assert run(f"{name} {case.options}") == 130
    assert "Finished results are kept" in capsys.readouterr().err
    with (work / "out/progress.jsonl").open("a") as log:
        log.write('["cup", [')  # as a killed process leaves it
    resumed = f"{name} {case.options} --resume"
    assert run(f"{resumed} {case.other}") == 1
    assert "was made with other settings" in capsys.readouterr().err
    assert run(f"{resumed} --json result.json") == 0
    assert added.count(added[item - 1]) == 2
    assert added.count(added[0]) == 1 + (item == 1)
    found, expected = (files_of(folder / "out", "*.[!s]*") for folder in (work, finish(name)))
    assert found == expected
    found, expected = (json.loads((folder / "result.json").read_text()) for folder in (work, finish(name)))
    assert found.get("results", found) == expected.get("results", expected)
    count = len(added)
    assert run(resumed) == 0
    assert len(added) == count, "a finished item was computed again"


@pytest.mark.parametrize("name", mark_slow(sorted(CASES.keys() - WITHOUT_JSON)))
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
