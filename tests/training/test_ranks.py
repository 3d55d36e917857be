"""Several processes train as one: the same losses, whatever the method."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.training import ranks

REPOSITORY = Path(__file__).parents[2]


def environment(number: int, world: int, port: int) -> dict[str, str]:
    own = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": world, "MASTER_PORT": port}
    fixed = {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    return {**os.environ, **fixed, **{name: str(value) for name, value in own.items()}}


def start(world: int, *command: str) -> list[subprocess.Popen[str]]:
    """The processes of a group."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=REPOSITORY,
            env=environment(number, world, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(world)
    ]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(0)
    for i in range(36):
        target = folder / f"class{i % 3}" / f"{i}.png"
        target.parent.mkdir(exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (24, 20, 3), np.uint8)).save(target)
    return folder


@pytest.fixture(scope="module")
def trained(pictures, tmp_path_factory):
    """By number of processes and rank: what each of them saw."""
    found = {1: [ranks.train(str(pictures), tmp_path_factory.mktemp("alone"))]}
    for world in (2, 4):
        folder = tmp_path_factory.mktemp(f"ranks{world}")
        started = start(world, "tests/training/ranks.py", str(pictures), str(folder))
        said = [process.communicate(timeout=300)[1] for process in started]
        assert [process.returncode for process in started] == [0] * world, said[0]
        found[world] = [json.loads((folder / f"{number}.json").read_text()) for number in range(world)]
    return found


@pytest.mark.parametrize("method", ranks.METHODS)
def test_losses_are_those_of_one_process(trained, method):
    alone = trained[1][0][method]
    assert len(alone["losses"]) == 4
    assert alone["losses"][0] != pytest.approx(alone["losses"][-1], rel=1e-3)  # it moves
    for world in (2, 4):
        for found in trained[world]:
            assert found[method]["losses"] == pytest.approx(alone["losses"], rel=2e-5)
            assert found[method]["weights"] == pytest.approx(alone["weights"], rel=2e-5)
