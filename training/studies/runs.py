"""The runs of a study, each in a folder like any other run's: begun, gone on with, several at once, read."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context, parent_process
from multiprocessing.synchronize import Event
from pathlib import Path
from threading import Thread

import torch
from torch import Tensor, nn

from dino_model import files
from dino_model.collections import Images
from dino_model.device import ComputePrecision
from dino_model.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.views import View
from training.evaluation.knn import knn_accuracy
from training.evaluation.rank import rank_me
from training.logging import Diverged
from training.plan import Plan
from training.recipe import Recipe
from training.run import Run, RunError
from training.session import Session
from training.studies.base import NEIGHBOURS
from training.studies.study import Result
from training.train import Callbacks

PROBES = 10
"""Times that a run's networks are probed, the end included."""


@dataclass(frozen=True)
class Cell:
    """One run of a study's grid."""

    variant: str
    seed: int
    recipe: Recipe
    folder: Path
    """Of the run."""

    @property
    def run(self) -> Run:
        """Its folder."""
        return Run(self.folder)

    def ended(self, images: Images) -> bool:
        """Whether it was trained to its end, or as far as its loss was a number."""
        if self.diverged.exists():
            return True
        lines = self.run.lines() if self.run.log.exists() else []
        return bool(lines) and lines[-1]["step"] + 1 == Plan.of(self.recipe, len(images)).steps

    @property
    def diverged(self) -> Path:
        """A file that stands there where the loss was no number any more."""
        return self.folder / "diverged.txt"


@dataclass(frozen=True)
class Where:
    """On which pictures, and where, the runs are computed."""

    images: Images
    device: torch.device
    precision: ComputePrecision


@lru_cache(maxsize=1)
def shown(images: Images, size: int) -> Tensor:
    """The pictures as the probe shows them, uint8 [pictures, 3, size, size]: decoded once."""
    view = View(size, IMAGENET_MEAN, IMAGENET_STD)
    return torch.stack([view.crop(images.read(index)) for index in range(len(images))])


@torch.no_grad()
def look(network: nn.Module, recipe: Recipe, where: Where) -> tuple[float, float]:
    """k-NN top-1 in percent, and rank of the features.

    Every picture is named by the votes of the four fifths that it is not part of. The pictures are those of
    the training, so that it is for comparing runs and nothing else.
    """
    pictures = shown(where.images, recipe.crops.global_size)
    view = View(recipe.crops.global_size, recipe.mean, recipe.std)
    was_training = network.training
    network.eval()
    features = torch.cat([network(view.normalize(part.to(where.device))) for part in pictures.split(100)])
    network.train(was_training)
    labels = torch.tensor(where.images.labels, device=where.device)
    fifth = torch.arange(len(labels), device=where.device) % 5
    right = 0.0
    for number in range(5):
        asked = fifth == number
        found = knn_accuracy(features[~asked], labels[~asked], features[asked], labels[asked], k=NEIGHBOURS)
        right += found.top1 * int(asked.sum())
    return right / len(labels), rank_me(features)


def train_cell(
    cell: Cell, where: Where, interrupted: Callable[[], bool] = lambda: False, probes: int = PROBES
) -> bool:
    """Train one run of the grid, from where it was left; returns whether it is at its end.

    Raises:
        RunError: another process trains it.
    """
    if cell.ended(where.images):
        return True
    with cell.run.held():
        return _train(cell, where, interrupted, probes)


def _train(cell: Cell, where: Where, interrupted: Callable[[], bool], probes: int) -> bool:
    session = Session(
        cell.recipe, where.images, seed=cell.seed, device=where.device, precision=where.precision
    )
    steps = session.plan.steps
    done = session.resume(cell.run) if cell.run.checkpoint.exists() else 0
    if not done:
        first = next(iter(session.method.backbones().values()))
        cell.run.create(session.config() | {"untrained_knn": look(first, cell.recipe, where)[0]})
    every = max(1, steps // probes)

    def probe(step: int) -> dict[str, float]:
        if (step + 1) % every and step + 1 < steps:
            return {}
        found = {}
        for name, network in session.method.backbones().items():
            found[f"knn_{name}"], found[f"rank_{name}"] = look(network, cell.recipe, where)
        return found

    try:
        watch = Callbacks(every, steps, eval_hook=probe, interrupted=interrupted)
        done = session.train(cell.run, done, watch)
    except Diverged as error:
        files.write_text(cell.diverged, f"{error}\n")
        return True
    if done == steps:
        for milestone in cell.folder.glob("step-*.pt"):  # the newest state stays
            milestone.unlink()
    return done == steps


def train_all(
    cells: Sequence[Cell], where: Where, jobs: int, interrupted: Callable[[], bool]
) -> Iterator[Cell]:
    """Train the runs of a grid, `jobs` at a time; each is given when it is at its end."""
    for cell in cells:
        if cell.ended(where.images):
            yield cell
    left = [cell for cell in cells if not cell.ended(where.images)]
    if jobs > 1 and left:
        yield from _side_by_side(left, where, jobs, interrupted)
        return
    for cell in left:
        if interrupted():
            return
        if train_cell(cell, where, interrupted):
            yield cell


_stop: Event | None = None
"""Of a process that trains for another: set when it is to stop."""


def _side_by_side(
    cells: Sequence[Cell], where: Where, jobs: int, interrupted: Callable[[], bool]
) -> Iterator[Cell]:
    context = get_context("spawn")
    stop = context.Event()
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(stop, threads)) as pool:
        running: dict[Future[bool], Cell] = {
            pool.submit(_train_for_another, cell, where): cell for cell in cells
        }
        try:
            while running:
                ended, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                if interrupted():
                    stop.set()
                for future in ended:
                    cell = running.pop(future)
                    if future.result():
                        yield cell
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def _begin(stop: Event, threads: int) -> None:
    global _stop
    _stop = stop
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C reaches every process; the first one decides
        signal.signal(number, signal.SIG_IGN)
    Thread(target=_end_with_the_first, daemon=True).start()
    torch.set_num_threads(threads)


def _end_with_the_first() -> None:
    """Where the process that this one trains for was killed: else it would train on, beside who resumes."""
    first = parent_process()
    assert first is not None
    first.join()
    os._exit(1)


def _train_for_another(cell: Cell, where: Where) -> bool:
    assert _stop is not None
    return not _stop.is_set() and train_cell(cell, where, _stop.is_set)


def result(cell: Cell) -> Result:
    """What a run at its end gave.

    Raises:
        RunError: its log is not whole.
    """
    config = cell.run.config()
    lines = cell.run.lines()
    size = cell.recipe.batch_size
    timed = tuple(line | {"seconds": size / line["images_per_second"]} for line in lines)
    found = Result(cell.variant, cell.seed, timed, config["untrained_knn"], cell.diverged.exists())
    if not found.probes and not found.diverged:
        raise RunError(
            f"{cell.run.log} ends before its first probe: "
            f"delete {cell.folder} and pass --resume to make it anew"
        )
    return found
