"""Several processes train as one: the same losses, whatever the method."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.training import ranks
from tests.training.pictures import noise
from tests.training.runs import TINY, resume
from training import __main__ as command

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]


class Group:
    """Processes that were started together."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        folder.mkdir()
        there = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
        command = [sys.executable, "tests/training/ranks.py", str(folder), str(free_port()), *words]
        self.process = subprocess.Popen(command, cwd=REPOSITORY, env=there)

    def send(self, number: int, signal_number: int) -> None:
        """A signal to one of them."""
        os.kill(int((self.folder / f"{number}.pid").read_text()), signal_number)

    def codes(self) -> list[int]:
        """How they ended."""
        assert self.process.wait(timeout=200) == 0
        found: list[int] = json.loads((self.folder / "codes.json").read_text())
        return found

    def said(self, number: int) -> str:
        """By one of them."""
        return (self.folder / f"{number}.err").read_text()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return noise(tmp_path_factory.mktemp("pictures"), 48, 3, 24, 20)


@pytest.fixture(scope="module")
def trained(pictures, tmp_path_factory):
    """By number of processes and rank: what each of them saw."""
    folder = tmp_path_factory.mktemp("ranks")
    groups = {n: Group(folder / str(n), "methods", str(pictures), str(n)) for n in (2, 4)}
    found = {1: [ranks.train(str(pictures), folder / "1")]}
    for world, group in groups.items():
        assert group.codes() == [0] * world, group.said(0)
        found[world] = [json.loads((group.folder / f"{n}.json").read_text()) for n in range(world)]
    return found


@pytest.mark.parametrize("method", ranks.METHODS)
def test_losses_of_several_ranks_equal_those_of_one(trained, method):
    alone = trained[1][0][method]
    assert len(alone["losses"]) == 3
    assert alone["losses"][0] != pytest.approx(alone["losses"][-1], rel=1e-3)  # it moves
    for world in (2, 4):
        for found in trained[world]:
            assert found[method]["losses"] == pytest.approx(alone["losses"], rel=2e-5, abs=1e-5)
            assert found[method]["weights"] == pytest.approx(alone["weights"], rel=2e-5)


OPTIONS = ("--batch-size", "16", "--epochs", "12", "--probe-every", "0")


def pretrain(pictures: Path, output: Path, *more: str) -> list[str]:
    return ["pretrain", "--data", str(pictures), "--output", str(output), *TINY, *OPTIONS, *more]


def lines(run: Path) -> list[str]:
    log = run / "log.jsonl"
    return log.read_text().splitlines() if log.exists() else []


def wait_for(run: Path, steps: int) -> None:
    deadline = time.monotonic() + 120
    while len(lines(run)) < steps:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_signal_to_one_rank_stops_all_and_one_process_resumes(pictures, tmp_path):
    run, words = tmp_path / "run", json.dumps(pretrain(pictures, tmp_path / "run"))
    group = Group(tmp_path / "group", words, words)
    wait_for(run, 3)
    group.send(1, signal.SIGTERM)
    assert group.codes() == [75, 75]
    stopped = len(lines(run))
    assert 3 <= stopped < 36
    assert resume(run) == 0
    assert command.main(pretrain(pictures, tmp_path / "alone")) == 0
    found, alone = ([json.loads(line)["loss"] for line in lines(tmp_path / at)] for at in ("run", "alone"))
    assert len(found) == 36
    assert found == pytest.approx(alone, rel=1e-3)


def test_lost_rank_ends_the_run_with_one_sentence(pictures, tmp_path):
    run = tmp_path / "run"
    words = json.dumps(pretrain(pictures, run, "--epochs", "100000"))
    group = Group(tmp_path / "group", words, words)
    wait_for(run, 2)
    group.send(1, signal.SIGKILL)
    assert group.codes() == [1, -signal.SIGKILL]
    said = group.said(0)
    assert "Traceback" not in said
    assert "error: another process ended or cannot be reached; --resume continues" in said


def test_torchrun_restart_resumes_the_run(pictures, tmp_path):
    run, said = tmp_path / "run", tmp_path / "said"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = pretrain(pictures, run, "--epochs", "40", "--save-every", "5")
    words.append("--resume")
    with said.open("w") as file:
        process = subprocess.Popen(
            [*torchrun, "--max-restarts", "1", "-m", "training", *words],
            cwd=REPOSITORY,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=file,
            stderr=file,
        )
        wait_for(run, 12)
        os.kill(int((run / ".lock").read_text().split()[1]), signal.SIGKILL)
        assert process.wait(timeout=200) == 0, said.read_text()
    assert [json.loads(line)["step"] for line in lines(run)] == list(range(120))
    assert f"{run}: resumed at step" in said.read_text()


def test_ranks_with_different_images_end_with_one_sentence(pictures, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(pictures, other)
    next(other.rglob("*.png")).unlink()
    commands = (pretrain(folder, tmp_path / "run") for folder in (pictures, other))
    differing = Group(tmp_path / "a", *map(json.dumps, commands))
    words = json.dumps(pretrain(pictures, tmp_path / "run", "--batch-size", "15"))
    odd = Group(tmp_path / "b", words, words)
    for group, sentence in (
        (differing, "error: the processes have different images: process 0 48 of fingerprint"),
        (odd, "error: --batch-size is 15, no multiple of the 2 processes"),
    ):
        assert group.codes() == [1, 1]
        assert sentence in group.said(0).splitlines()[-1]
        assert "Traceback" not in group.said(0)
        assert group.said(1) == ""


@pytest.mark.parametrize("full", [0, 1])
def test_rank_out_of_memory_ends_all_with_advice(pictures, tmp_path, full):
    run = tmp_path / "run"
    words = pretrain(pictures, run, "--epochs", "100000")
    commands = [["full", *words] if number == full else words for number in (0, 1)]
    group = Group(tmp_path / "group", *map(json.dumps, commands))
    assert group.codes() == [1, 1]
    advice = "cpu is out of memory with 8 images at once: continue with --resume --accumulate 2"
    assert advice in group.said(full).splitlines()[-1]
    assert "Traceback" not in group.said(0) + group.said(1)
