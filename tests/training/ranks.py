"""Groups of processes for `test_ranks.py`, forked from one that has imported all: each begins at once.

ranks.py FOLDER PORT methods PICTURES WORLD    every method, trained by WORLD processes; losses to FOLDER
ranks.py FOLDER PORT COMMAND COMMAND …         `python -m training COMMAND` by each of them, words in JSON;
                                               one that begins with "full" has no memory for its second loss

Each process writes its number to FOLDER/RANK.pid, what it says to FOLDER/RANK.err; last comes codes.json.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from dino_model.backbones import BackboneConfig
from dino_model.collections import open_images
from dino_model.head import HeadConfig
from dino_model.ranks import joined, rank
from training import __main__ as command
from training.commands import arguments  # noqa: F401 (before the fork)
from training.crop_config import CropConfig
from training.methods import dino as dino_module
from training.methods.configs import BYOLConfig, MoCoConfig, SupervisedConfig, SwAVConfig
from training.methods.dino_config import DINOConfig
from training.recipe import OptimizerConfig, Recipe
from training.run import Run
from training.session import Session
from training.train import Callbacks

VIT = BackboneConfig("vit_tiny", 8, 16, width=12, depth=2, heads=2, drop_path=0.2)
HEAD = HeadConfig(16, hidden=8, layers=2, bottleneck=4)
NORMED = HeadConfig(8, hidden=8, layers=2, bottleneck=None, batch_norm=True, activation="relu")
RECIPE = Recipe(
    VIT,
    DINOConfig(HEAD, freeze_last_layer_epochs=0),
    CropConfig(global_size=16, local_size=8, local_crops=2),
    OptimizerConfig("sgd", lr=1.0, warmup_epochs=0),
    epochs=1,
    batch_size=16,
)
FREE = {"freeze_last_layer_epochs": 0}
METHODS = {
    "dino": RECIPE.method,
    "dino with a norm": DINOConfig(replace(HEAD, batch_norm=True), **FREE),
    "dino in parts": DINOConfig(HEAD, **FREE),
    "sinkhorn-knopp": DINOConfig(HEAD, teacher_output="sinkhorn-knopp", **FREE),
    "infonce": DINOConfig(HEAD, teacher_output="none", loss="infonce", **FREE),
    "infonce with a queue": DINOConfig(HEAD, teacher_output="none", loss="infonce", queue=64, **FREE),
    "spreading": DINOConfig(HEAD, spreading=0.3, **FREE),
    "byol": BYOLConfig(NORMED, predictor=8),
    "moco-v2": MoCoConfig(NORMED, queue=32),
    "swav": SwAVConfig(replace(HEAD, batch_norm=True), queue=32, queue_start_epoch=0, **FREE),
    "supervised": SupervisedConfig(),
}
"""All methods, and what of DINO looks at the whole batch."""


def train(pictures: str, folder: Path) -> dict[str, Any]:
    """Losses of every method, and a sum over its weights at the end."""
    found: dict[str, Any] = {}
    for name, method in METHODS.items():
        parts = 2 if name == "dino in parts" else 1
        session = Session(replace(RECIPE, method=method), open_images(pictures), accumulate=parts)
        losses: list[float] = []
        watch = Callbacks(observe=lambda _, logs, __, kept=losses: kept.append(logs["loss"]) or {})
        session.train(Run(folder / name), callbacks=watch)
        weights = sum(parameter.double().abs().sum().item() for parameter in session.method.parameters())
        found[name] = {"losses": losses, "weights": weights}
    return found


def child(folder: Path, number: int, work: Callable[[], int]) -> NoReturn:
    """Be a rank: do the work, say nothing but to its own file."""
    said = (folder / f"{number}.err").open("w")
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    code = 70
    try:
        code = work()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def of_all_methods(pictures: str, folder: Path) -> int:
    """Train all, write the losses down."""
    with joined(torch.device("cpu")):
        result = train(pictures, folder)
        (folder / f"{rank()}.json").write_text(json.dumps(result))
    return 0


def of_command(words: list[str]) -> int:
    """Run a command."""
    if words[0] != "full":
        return command.main(words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            dino_module, "prototype_cross_entropy", out_of_memory_at(1, dino_module.prototype_cross_entropy)
        )
        return command.main(words[1:])


def out_of_memory_at(call: int, honest: Callable[..., Any]) -> Callable[..., Any]:
    """A function that finds the device full when it is called for the given time, from 0."""
    calls = count()

    def fails(*given: Any) -> Any:
        if next(calls) == call:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return honest(*given)

    return fails


def main(folder: Path, port: str, *words: str) -> None:
    """Fork, wait for all."""
    if words[0] == "methods":
        jobs = [partial(of_all_methods, words[1], folder)] * int(words[2])
    else:
        jobs = [partial(of_command, json.loads(word)) for word in words]
    torch.set_num_threads(1)
    pids = []
    for number, job in enumerate(jobs):
        own = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": len(jobs), "MASTER_PORT": port}
        os.environ.update({"MASTER_ADDR": "127.0.0.1"} | {name: str(value) for name, value in own.items()})
        pid = os.fork()
        if not pid:
            child(folder, number, job)
        (folder / f"{number}.pid").write_text(str(pid))
        pids.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    (folder / "codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
