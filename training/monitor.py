"""Progress, diagnosis in words and a k-NN probe while a run trains."""

import math
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import nn
from tqdm import tqdm

from dino_model.channels import ChannelRange
from dino_model.collections import Images
from dino_model.device import ComputePrecision
from dino_model.features import FeatureExtractor
from dino_model.views import View
from dino_model.weights import LoadedModel
from training.doctor import Facts, findings
from training.evaluation.knn import knn_accuracy
from training.evaluation.metrics import photographs_lift, rank_me
from training.methods.method import Method


@dataclass(frozen=True)
class Probe:
    """k-NN accuracy on labelled training images: every fifth is classified by the votes of the others.

    It is for watching a run and comparing runs; scores to report come from `evaluate knn`.
    """

    images: Images
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    precision: ComputePrecision
    device: torch.device
    channel_range: ChannelRange | None = None
    limit: int = 2500
    """Largest number of images, taken evenly."""

    def evaluate(self, backbone: nn.Module) -> tuple[float, float]:
        """Compute top-1 in percent (k = 20, temperature 0.07) and the rank of the features."""
        step = max(1, math.ceil(len(self.images) / self.limit))
        model = LoadedModel("the run", backbone, self.mean, self.std, "a training", None, self.channel_range)
        view = View(self.size, self.mean, self.std)
        extractor = FeatureExtractor(model, view, precision=self.precision, device=str(self.device))
        extracted = extractor.extract(self.images.subset(range(0, len(self.images), step)))
        features, labels = extracted.features, torch.tensor(extracted.images.labels)
        test = torch.arange(len(labels)) % 5 == 4
        k = min(20, int((~test).sum()))
        votes = knn_accuracy(features[~test], labels[~test], features[test], labels[test], k=k)
        return votes.top1, rank_me(features)


def progress_bar(first_step: int, steps: int) -> "tqdm[None]":
    """Progress bar of a run on stderr; a new state at most every 2 seconds, on a file every minute."""
    interval = 2.0 if sys.stderr.isatty() else 60.0
    return tqdm(total=steps, initial=first_step, unit="step", mininterval=interval, maxinterval=interval)


@dataclass
class Monitor:
    """Watches every step of a run: `evaluate` receives the networks, then `__call__` the logged metrics."""

    progress: "tqdm[None]"
    method: Method
    probe: Probe | None
    probe_every: int
    """Steps between probes."""
    facts: Facts
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
        due = self.probe and (step + 1) % self.probe_every == 0
        return self._probed(self.probe, step) if self.probe and due else {}

    def __call__(self, step: int, metrics: dict[str, float], broken: Sequence[str]) -> None:
        """Show progress, report unreadable images (`broken`) and problems."""
        shown = islice(metrics.items(), 3)  # the loss, and the method's first metrics
        self.progress.set_postfix({name: f"{value:.4g}" for name, value in shown}, refresh=False)
        self.progress.update()
        for message in sorted({*broken} - self.broken):
            report(f"skipped an image: {message}")
        self.broken.update(broken)
        self.recent.append({"step": step} | metrics)
        if self._is_diagnosed(step):
            problems = findings(list(self.recent), self.facts)
            for finding in problems:
                if finding.cause not in self.reported:
                    report(f"warning at step {step + 1}: {finding.sentence}")
            self.reported = {finding.cause for finding in problems}

    def _is_diagnosed(self, step: int) -> bool:
        return (step + 1) % self.diagnose_every == 0 or step + 1 == self.progress.total

    def _probed(self, probe: Probe, step: int) -> dict[str, float]:
        found = {}
        for name, network in self.method.backbones().items():
            found[f"knn_{name}"], found[f"rank_{name}"] = top1, _ = probe.evaluate(network)
            words = f"k-NN top-1 on held-out training images {top1:.1f} %"
            if hasattr(network, "blocks") and not probe.channel_range:
                lift = photographs_lift(
                    network,
                    mean=probe.mean,
                    std=probe.std,
                    precision=probe.precision,
                    device=str(probe.device),
                )
                found[f"lift_{name}"] = lift
                words += f", lift on the photographs {lift:.2f}"
            report(f"step {step + 1}, {name}: {words}")
        return found


def report(sentence: str) -> None:
    """Print a line above the progress bar."""
    tqdm.write(sentence, file=sys.stderr)
