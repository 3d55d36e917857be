"""Several processes train as one: the same losses, whatever the method."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from dino_model.data.collection import open_images
from dino_model.data.framing import Framing
from dino_model.data.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.inference.features import FeatureExtractor
from dino_model.models.backbones import create_backbone
from dino_model.models.load import LoadedModel
from dino_model.runtime import ranks
from tests.training.ranks import Group
from tests.training.runs import CROPS, METHODS, RECIPE, TINY, noise, out_of_memory_at, resume, values
from training import __main__ as command
from training.methods.head import ProjectionHead
from training.methods.network import Network
from training.one_pass import OnePass
from training.run.folder import Run
from training.session import Session

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
CPU = torch.device("cpu")
CASES = METHODS | {f"{name} in parts": METHODS[name] for name in ("dino", "distill")}
CASES |= {"dino in one pass": METHODS["dino"]}


def train_all(images: Path, folder: Path) -> None:
    """Train every method; the first rank writes the runs, each rank a sum over the final weights."""
    sums = {}
    # At RECIPE's learning rate, SwAV's third loss differs by 5e-5 between one and two threads of one process.
    recipe = replace(RECIPE, optimizer=replace(RECIPE.optimizer, lr=0.25))
    with ranks.process_group(CPU):
        for name, method in CASES.items():
            parts = 2 if name.endswith(" in parts") else 1
            crops = CROPS.get(name.removesuffix(" in parts"), recipe.crops)
            session = Session(
                replace(recipe, method=method, crops=crops), open_images(images), accumulate=parts
            )
            for network in session.method.modules():
                if isinstance(network, Network) and name.endswith(" in one pass"):  # as on a CUDA device
                    network.one_pass = OnePass()
            session.train(Run(folder / name))
            sums[name] = sum(p.double().abs().sum().item() for p in session.method.parameters())
        (folder / f"{ranks.rank()}.json").write_text(json.dumps(sums))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return noise(tmp_path_factory.mktemp("images"), 48, 3, 24, 20)


@pytest.fixture(scope="module")
def trained(images, tmp_path_factory):
    """Folder of the runs of 1 and 4 processes."""
    folder = tmp_path_factory.mktemp("ranks")
    group = Group(folder / "4", *[(train_all, images, folder / "4")] * 4)
    train_all(images, folder / "1")
    assert not any(group.codes()), group.printed(0)
    return folder


@pytest.mark.parametrize("method", CASES)
def test_training_of_several_ranks_equals_that_of_one(trained, method):
    alone = [line["loss"] for line in Run(trained / "1" / method).lines()]
    (total,) = (json.loads(file.read_text())[method] for file in trained.glob("1/*.json"))
    assert len(alone) == 3
    assert alone[0] != pytest.approx(alone[-1], rel=1e-3)  # it moves
    found = [line["loss"] for line in Run(trained / "4" / method).lines()]
    logs = (Run(trained / ranks / method).lines() for ranks in "14")
    spreads = [[line["spread"] for line in lines if "spread" in line] for lines in logs]
    assert spreads[1] == pytest.approx(spreads[0], rel=1e-3)
    sums = [json.loads(file.read_text())[method] for file in trained.glob("4/*.json")]
    assert found == pytest.approx(alone, rel=2e-5, abs=1e-5)
    assert sums == pytest.approx([total] * 4, rel=2e-5)


def test_training_in_one_pass_equals_that_of_a_pass_per_size(trained):
    found, expected = (
        [line["loss"] for line in Run(trained / "4" / name).lines()] for name in ("dino in one pass", "dino")
    )
    assert found == pytest.approx(expected, rel=2e-5)


def extract(images: Path) -> tuple:
    torch.manual_seed(0)
    model = LoadedModel(
        "small", create_backbone(RECIPE.backbone), IMAGENET_MEAN, IMAGENET_STD, "a test", None
    )
    framing = Framing(16, IMAGENET_MEAN, IMAGENET_STD)
    extractor = FeatureExtractor(model, framing, precision="fp32", device="cpu", batch_size=1)
    extracted = extractor.extract(open_images(images))
    return list(extracted.images.names), extracted.broken, extracted.features


def gather(images: Path, file: Path) -> None:
    asked, sent, honest = [], [], ranks.gather_objects

    def squares(numbers):
        asked.append(list(numbers))
        if 9 in numbers:
            raise ValueError("no square of nine")
        return torch.tensor([[n * n] for n in numbers])

    with ranks.process_group(CPU):
        rows = [ranks.gather_rows(squares, range(5)), ranks.gather_rows(squares, range(5, 6))]
        nothing = ranks.gather_rows(lambda numbers: None, range(4))
        with pytest.raises(ValueError, match="no square of nine"):
            ranks.gather_rows(squares, range(6, 10))
        ranks.gather_objects = lambda own: (sent.append(len(pickle.dumps(own))), honest(own))[1]
        large = torch.ones(1024, 384, requires_grad=True)  # a feature is a row of its batch
        ranks.gather_rows(lambda numbers: large[: len(numbers)], range(1024))
        ranks.gather_objects = honest
        torch.save((asked, rows, nothing, sent, extract(images)), file)


def test_gather_rows_gives_all_ranks_the_rows_of_one(tmp_path):
    images = noise(tmp_path / "images", 7, 2, 20, 20)
    (images / "class0" / "0.png").write_bytes(b"broken")
    names, broken, features = extract(images)
    assert len(names) == 6
    files = [tmp_path / "0.pt", tmp_path / "1.pt"]
    group = Group(tmp_path / "group", *((gather, images, file) for file in files))
    assert group.codes() == [0, 0], group.printed(0)
    for file, shares in zip(files, ([[0, 1], [6, 7]], [[2, 3, 4], [5], [8, 9]]), strict=True):
        asked, rows, nothing, sent, found = torch.load(file)
        assert asked == shares
        assert [row[:, 0].tolist() for row in rows] == [[0, 1, 4, 9, 16], [25]]
        assert nothing is None
        assert sent[0] < 10_000  # bytes: rows are sent as they are
        assert found[:2] == (names, broken)
        assert torch.equal(found[2], features)


def pretrain(images: Path, output: Path, *more: str) -> list[str]:
    words = ("--batch-size", "16", "--epochs", "12", "--probe-every", "0")
    return ["pretrain", "--data", str(images), "--output", str(output), *TINY, *words, *more]


def wait_for(run: Path, steps: int) -> None:
    while len(values(run)) < steps:  # the timeout of the test bounds it
        time.sleep(0.02)


def list_on_first(words: list[str]) -> int:
    def open_once(*arguments, **options):
        assert ranks.rank() == 0
        return open_images(*arguments, **options)

    with patch("training.commands.pretrain.open_images", open_once):
        return command.main(words)


def test_signal_to_one_rank_stops_all_and_one_process_resumes(images, tmp_path):
    run, words = tmp_path / "run", pretrain(images, tmp_path / "run")
    group = Group(tmp_path / "group", *[(list_on_first, words)] * 2)
    wait_for(run, 3)
    group.processes[1].terminate()
    assert group.codes() == [75, 75]
    assert 3 <= len(values(run)) < 36
    assert resume(run) == 0
    assert command.main(pretrain(images, tmp_path / "alone")) == 0
    found, alone = ([line["loss"] for line in values(tmp_path / at)] for at in ("run", "alone"))
    assert len(found) == 36
    assert found == pytest.approx(alone, rel=1e-3)


def test_lost_rank_ends_the_run_with_one_sentence(images, tmp_path):
    words = pretrain(images, tmp_path / "run", "--epochs", "100000")
    group = Group(tmp_path / "group", *[(command.main, words)] * 2)
    wait_for(tmp_path / "run", 2)
    group.processes[1].kill()
    assert group.codes() == [1, -signal.SIGKILL]
    assert "Traceback" not in group.printed(0)
    assert "error: another process ended or cannot be reached; --resume continues" in group.printed(0)


def test_torchrun_restart_resumes_the_run(images, tmp_path):
    run, printed = tmp_path / "run", tmp_path / "printed"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = pretrain(images, run, "--epochs", "8", "--save-every", "3", "--resume")
    with printed.open("w") as file:
        process = subprocess.Popen(
            [*torchrun, "--max-restarts", "1", "-m", "training", *words],
            cwd=REPOSITORY,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=file,
            stderr=file,
        )
        wait_for(run, 6)
        os.kill(int((run / ".lock").read_text().split()[1]), signal.SIGKILL)
        assert process.wait(timeout=200) == 0, printed.read_text()
    assert [line["step"] for line in values(run)] == list(range(24))
    assert f"{run}: resumed at step" in printed.read_text()


def test_ranks_with_different_images_or_an_odd_batch_end_with_one_sentence(images, tmp_path):
    fewer = shutil.copytree(images, tmp_path / "fewer")
    next(fewer.rglob("*.png")).unlink()
    run = tmp_path / "run"
    different = "error: the processes have different --data: process 0 "
    odd = "error: --batch-size is 15, no multiple of the 2 processes"
    for name, jobs, sentence in (
        ("different", [pretrain(images, run), pretrain(fewer, run)], different),
        ("odd", [pretrain(images, run, "--batch-size", "15")] * 2, odd),
    ):
        group = Group(tmp_path / name, *((command.main, words) for words in jobs))
        assert group.codes() == [1, 1]
        assert sentence in group.printed(0).splitlines()[-1]
        assert "Traceback" not in group.printed(0)
        assert group.printed(1) == ""


def run_out_of_memory(words: list[str]) -> int:
    honest = ProjectionHead.cross_entropy
    ProjectionHead.cross_entropy = out_of_memory_at(1, honest)
    return command.main(words)


@pytest.mark.parametrize("full", [0, 1])
def test_rank_out_of_memory_ends_all_with_advice(images, tmp_path, full):
    words = pretrain(images, tmp_path / "run", "--epochs", "100000")
    functions = [run_out_of_memory if number == full else command.main for number in (0, 1)]
    group = Group(tmp_path / "group", *((function, words) for function in functions))
    assert group.codes() == [1, 1]
    advice = "cpu is out of memory with 8 images at once: continue with --resume --accumulate 2"
    assert advice in group.printed(full).splitlines()[-1]
    assert "Traceback" not in group.printed(0) + group.printed(1)
