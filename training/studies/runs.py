"""Runs of a study: training, resuming, and reading of results."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import nn
from tqdm import tqdm

from dino_model.data.collection import Images
from dino_model.data.framing import Framing
from dino_model.data.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.inference.features import FeatureExtractor
from dino_model.models.load import LoadedModel
from dino_model.runtime import files
from dino_model.runtime.device import ComputePrecision
from training.evaluation.knn import knn_accuracy
from training.recipes.recipe import Recipe
from training.run.folder import Run, SaveSchedule
from training.run.logging import Diverged
from training.session import Session
from training.train import Callbacks

SAVE_EVERY = 100
"""Steps that an interruption loses at most."""


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
        statistics, device = (IMAGENET_MEAN, IMAGENET_STD), str(self.device)
        model = LoadedModel("the run", network, *statistics, "a training", None)
        extractor = FeatureExtractor(model, Framing(size, *statistics), precision="fp32", device=device)
        train, test = (extractor.extract(images) for images in (self.train, self.test))
        labels, truth = (torch.tensor(images.labels) for images in (self.train, self.test))
        return knn_accuracy(train.features, labels, test.features, truth, k=min(20, len(labels))).top1


@dataclass(frozen=True)
class Result:
    """Log of one run."""

    lines: tuple[Mapping[str, float], ...]
    """Metrics of every step."""
    untrained: float
    """k-NN top-1 before the first step, in percent."""
    seconds: float = 0.0
    """Duration of the steps."""

    def knn(self) -> float:
        """Return the teacher's k-NN top-1 at the end, in percent; the untrained network's if it diverged."""
        return self.lines[-1].get("knn_teacher", self.untrained) if self.lines else self.untrained

    def entropy(self) -> float:
        """Return the entropy of the teacher's outputs in units of ln K, mean over the last tenth."""
        late = self.lines[-max(1, len(self.lines) // 10) :]
        return fmean(line["teacher_entropy"] for line in late) / fmean(line["ln_k"] for line in late)


def train_run(run: Run, recipe: Recipe, seed: int, data: StudyData) -> Result:
    """Train a run to its end, from its last checkpoint if there is one; returns its result.

    Raises:
        RunError: Another process trains the run, or its files are damaged.
    """
    diverged = run.folder / "diverged.txt"
    if not diverged.exists():
        try:
            with run.lock():
                _train(run, recipe, seed, data)
        except Diverged as error:
            files.write_text(diverged, f"{error}\n")
    lines = run.lines()
    seconds = sum(recipe.batch_size / line["images_per_second"] for line in lines)
    return Result(tuple(lines), run.config()["untrained_knn"], seconds)


def _train(run: Run, recipe: Recipe, seed: int, data: StudyData) -> None:
    size = recipe.crops.global_size
    session = Session(recipe, data.train, seed=seed, device=data.device, precision=data.precision)
    teacher, steps = session.method.backbones()["teacher"], session.plan.steps
    done = session.resume(run) if run.checkpoint.exists() else 0
    if not done:
        run.remove()
        run.create(session.config() | {"untrained_knn": data.accuracy(teacher, size)}, session.named_sizes())

    def evaluate(step: int) -> dict[str, float]:
        bar.update()
        return {"knn_teacher": data.accuracy(teacher, size)} if step + 1 == steps else {}

    checkpoints = SaveSchedule(save_minutes=0, save_every=SAVE_EVERY, milestone_every=steps)
    with tqdm(total=steps, initial=done, desc=run.folder.name, unit="step") as bar:
        session.train(run, done, Callbacks(checkpoints, eval_hook=evaluate))


def check_base(results: list[Result], pixels: float) -> None:
    """Raise ValueError unless the base run of each seed beats its untrained network and the pixels."""
    for seed, result in enumerate(results):
        if result.knn() <= max(result.untrained, pixels):
            raise ValueError(
                f"The base run of seed {seed} reaches {result.knn():.1f} % k-NN top-1, its untrained network"
                f" {result.untrained:.1f} %, pixels {pixels:.1f} %: train longer with --epochs."
            )
