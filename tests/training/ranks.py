"""Processes that train, forked from one that has imported everything: each begins at once."""

import os
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import torch

from tests.ports import free_port

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["training.commands.arguments", "training.commands.pretrain"])


class Group:
    """Start a process for each job, a function and its arguments. Each prints to FOLDER/RANK.txt.

    A daemon ends with the tests, and starts no processes of its own.
    """

    def __init__(self, folder: Path, *jobs: tuple, daemon: bool = True) -> None:
        folder.mkdir()
        self.folder, port = folder, str(free_port())
        self.processes = [
            FORKS.Process(target=_work, args=(folder, number, len(jobs), port, *job), daemon=daemon)
            for number, job in enumerate(jobs)
        ]
        for process in self.processes:
            process.start()

    def codes(self) -> list[int | None]:
        """Wait for the exit codes; a signal is negative, None is a process that hangs."""
        for process in self.processes:
            process.join(200)
        return [process.exitcode for process in self.processes]

    def printed(self, number: int) -> str:
        return (self.folder / f"{number}.txt").read_text()


def _work(
    folder: Path, number: int, world: int, port: str, function: Callable[..., object], *arguments: object
) -> None:
    os.setsid()
    os.environ.update(RANK=f"{number}", LOCAL_RANK=f"{number}", WORLD_SIZE=f"{world}")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    with (folder / f"{number}.txt").open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    sys.exit(function(*arguments))
