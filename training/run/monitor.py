"""Progress, diagnosis in words and a k-NN probe while a run trains."""

import math
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean

import torch
from torch import nn
from tqdm import tqdm

from dino_model.data.collection import Images
from dino_model.data.framing import Framing
from dino_model.inference.features import FeatureExtractor
from dino_model.models.load import LoadedModel
from dino_model.runtime.device import ComputePrecision
from training.evaluation.knn import knn_accuracy
from training.evaluation.metrics import photograph_lifts, rank_me
from training.methods.method import Method
from training.recipes.recipe import Recipe
from training.run.doctor import RunSettings, findings


@dataclass(frozen=True)
class Probe:
    """Evaluation of a network during training, on labeled training images.

    It is for watching a run and comparing runs; scores to report come from `evaluate knn`.
    """

    images: Images
    recipe: Recipe
    precision: ComputePrecision
    device: torch.device
    limit: int = 2500
    """Largest number of images, taken evenly."""

    def evaluate(self, backbone: nn.Module) -> dict[str, float]:
        """Compute metrics of a backbone; its mode is restored.

        Returns:
            `knn`: top-1 in percent of every fifth image by the votes of the others (k = 20, temperature
            0.07); `rank`: RankMe; of a ViT of RGB `lift`: the lift of its attention on the package images.
        """
        recipe, step = self.recipe, max(1, math.ceil(len(self.images) / self.limit))
        statistics, channels = (recipe.mean, recipe.std), recipe.channel_range
        model = LoadedModel("the run", backbone, *statistics, "a training", None, channels)
        framing, device = Framing(recipe.crops.global_size, *statistics), str(self.device)
        extractor = FeatureExtractor(model, framing, precision=self.precision, device=device)
        extracted = extractor.extract(self.images.subset(range(0, len(self.images), step)))
        features, labels = extracted.features, torch.tensor(extracted.images.labels)
        test = torch.arange(len(labels)) % 5 == 4
        k = min(20, int((~test).sum()))
        votes = knn_accuracy(features[~test], labels[~test], features[test], labels[test], k=k)
        found = {"knn": votes.top1, "rank": rank_me(features)}
        if hasattr(backbone, "blocks") and not channels:
            found["lift"] = fmean(photograph_lifts(model, precision=self.precision, device=device))
        return found


@dataclass
class Monitor:
    """Watches every step of a run: `evaluate` receives the networks, then `__call__` the logged metrics."""

    progress: "tqdm[None]"
    method: Method
    probe: Probe | None
    probe_every: int
    """Steps between probes."""
    settings: RunSettings
    """Settings of the run that the diagnosis needs."""
    diagnose_every: int = 100
    """Steps between diagnoses; the last step has one, too."""
    recent: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=1000))
    """Last lines of the log."""
    reported: set[str] = field(default_factory=set)
    """Causes that the last diagnosis found: each is reported once, until it is gone."""
    broken: set[str] = field(default_factory=set)
    """Messages of unreadable images so far."""

    def evaluate(self, step: int) -> dict[str, float]:
        """Return metrics of the networks after a step, every `probe_every` steps."""
        if not self.probe or (step + 1) % self.probe_every:
            return {}
        metrics: dict[str, float] = {}
        for name, network in self.method.backbones().items():
            found = self.probe.evaluate(network)
            lift = f", lift on the package images {found['lift']:.2f}" if "lift" in found else ""
            top1 = f"k-NN top-1 on held-out training images {found['knn']:.1f} %"
            report(f"step {step + 1}, {name}: {top1}{lift}")
            metrics |= {f"{metric}_{name}": value for metric, value in found.items()}
        return metrics

    def __call__(self, step: int, metrics: dict[str, float], broken: Sequence[str]) -> None:
        """Show progress, report unreadable images (`broken`) and problems."""
        shown = islice(metrics.items(), 3)  # the loss, and the method's first metrics
        self.progress.set_postfix({name: f"{value:.4g}" for name, value in shown}, refresh=False)
        self.progress.update()
        for message in sorted({*broken} - self.broken):
            report(f"skipped an image: {message}")
        self.broken.update(broken)
        self.recent.append({"step": step} | metrics)
        if (step + 1) % self.diagnose_every == 0 or step + 1 == self.progress.total:
            problems = findings(list(self.recent), self.settings)
            for cause, sentence in problems.items():
                if cause not in self.reported:
                    report(f"warning at step {step + 1}: {sentence}")
            self.reported = set(problems)


def report(sentence: str) -> None:
    """Print a line above the progress bar."""
    tqdm.write(sentence, file=sys.stderr)
