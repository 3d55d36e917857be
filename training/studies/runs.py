"""Runs of a study: training with probes, resuming, and reading of results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import torch
from torch import Tensor, nn

from dino_model import files
from dino_model.collections import Images, open_images
from dino_model.device import ComputePrecision
from dino_model.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.views import View
from training.evaluation.knn import knn_accuracy
from training.logging import Diverged
from training.recipe import Plan, Recipe
from training.run import Run
from training.session import Session
from training.train import Callbacks

SAVE_EVERY = 100
"""Steps that an interruption loses at most."""


class StudyError(ValueError):
    """A study that cannot be used. The message is for people."""


@dataclass(frozen=True)
class StudyData:
    """Images that a study trains on, others that it is tested on, and where it is computed."""

    train: Images
    test: Images
    device: torch.device
    precision: ComputePrecision = "fp32"

    def accuracy(self, network: nn.Module, size: int) -> float:
        """Compute the k-NN top-1 accuracy (k = 20) of a network on the test images, in percent.

        Args:
            network: Maps normalized images [batch, 3, size, size] to features; its mode is restored.
            size: Side of the center crop in pixels.
        """
        view = View(size, IMAGENET_MEAN, IMAGENET_STD)
        was_training = network.training
        network.eval()
        with torch.no_grad():
            train, test = (
                torch.cat([network(view.normalize(part.to(self.device))) for part in crops.split(200)]).cpu()
                for crops in (_crops(self.train, size), _crops(self.test, size))
            )
        network.train(was_training)
        labels, truth = (torch.tensor(images.labels) for images in (self.train, self.test))
        return knn_accuracy(train, labels, test, truth, k=min(20, len(train))).top1


def textures(device: str | torch.device = "cpu", precision: ComputePrecision = "fp32") -> StudyData:
    """Return the generated textures of `dino_model.textures`."""
    device = torch.device(device)
    return StudyData(open_images("textures:"), open_images("textures:test"), device, precision)


@cache
def _crops(images: Images, size: int) -> Tensor:
    """Decode all images once: uint8 [images, 3, size, size]."""
    view = View(size, IMAGENET_MEAN, IMAGENET_STD)
    return torch.stack([view.crop(images.read(index)) for index in range(len(images))])


@dataclass(frozen=True)
class Result:
    """Log of one run."""

    lines: tuple[Mapping[str, float], ...]
    """Metrics of every step."""
    untrained: float
    """k-NN top-1 before the first step, in percent."""

    @property
    def probes(self) -> list[Mapping[str, float]]:
        """Lines of the steps at which the networks were evaluated."""
        return [line for line in self.lines if "knn_student" in line]

    def knn(self, network: str = "teacher") -> float:
        """Return the last k-NN top-1 in percent; of a run that diverged before, the untrained network's."""
        return self.probes[-1][f"knn_{network}"] if self.probes else self.untrained

    def second_half(self, network: str) -> float:
        """Return the mean k-NN top-1 of `teacher` or `student` over the second half, in percent."""
        return fmean(line[f"knn_{network}"] for line in self.probes[len(self.probes) // 2 :])

    def late(self, name: str) -> float:
        """Return the mean of a metric over the last tenth of the steps."""
        return fmean(line[name] for line in self.lines[-max(1, len(self.lines) // 10) :])

    def entropy(self) -> float:
        """Return the entropy of the teacher's outputs in units of ln K, mean over the last tenth."""
        return self.late("teacher_entropy") / self.late("ln_k")

    @property
    def seconds(self) -> float:
        """Duration of the steps, without probes."""
        return sum(line["seconds"] for line in self.lines)


def read_result(run: Run, batch_size: int) -> Result:
    """Read the log of a run; raises RunError if there is none."""
    timed = (line | {"seconds": batch_size / line["images_per_second"]} for line in run.lines())
    return Result(tuple(timed), run.config()["untrained_knn"])


def train_run(
    run: Run,
    recipe: Recipe,
    seed: int,
    data: StudyData,
    probes: int = 10,
    after_step: Callable[[int], object] = lambda _: None,
) -> Result:
    """Train a run to its end, from its last checkpoint if there is one; returns its result.

    Args:
        run, recipe, seed, data: The run, and what it is trained on.
        probes: Evenly spaced k-NN evaluations of every network, the last one at the end.
        after_step: Called with the number of steps done.

    Raises:
        RunError: Another process trains the run, or its files are damaged.
    """
    lines, diverged = run.lines() if run.log.exists() else [], run.folder / "diverged.txt"
    if diverged.exists() or (lines and lines[-1]["step"] + 1 == Plan.of(recipe, len(data.train)).steps):
        return read_result(run, recipe.batch_size)
    size = recipe.crops.global_size
    with run.held():
        session = Session(recipe, data.train, seed=seed, device=data.device, precision=data.precision)
        networks, steps = session.method.backbones(), session.plan.steps
        done = session.resume(run) if run.checkpoint.exists() else 0
        if not done:
            run.remove()
            untrained = data.accuracy(next(iter(networks.values())), size)
            run.create(session.config() | {"untrained_knn": untrained})
        every = max(1, steps // probes)

        def evaluate(step: int) -> dict[str, float]:
            after_step(step + 1)
            if (step + 1) % every and step + 1 < steps:
                return {}
            return {f"knn_{name}": data.accuracy(network, size) for name, network in networks.items()}

        try:
            session.train(run, done, Callbacks(SAVE_EVERY, milestone_every=steps, eval_hook=evaluate))
        except Diverged as error:
            files.write_text(diverged, f"{error}\n")
    return read_result(run, recipe.batch_size)


def check_base(results: list[Result], pixels: float) -> None:
    """Raise StudyError unless the base run of each seed beats its untrained network and the pixels."""
    for seed, result in enumerate(results):
        if result.knn() <= max(result.untrained, pixels):
            raise StudyError(
                f"The base run of seed {seed} reaches {result.knn():.1f} % k-NN top-1, its untrained network"
                f" {result.untrained:.1f} %, pixels {pixels:.1f} %: train longer with --epochs."
            )
