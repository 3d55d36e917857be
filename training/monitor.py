"""What tells, while it trains, whether a run learns: progress, what is wrong in words, and a k-NN probe."""

import math
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from itertools import islice

import torch
from torch import nn

from dino_model.collections import Images
from dino_model.device import ComputePrecision
from dino_model.features import FeatureExtractor
from dino_model.images import ImageError
from dino_model.views import View
from dino_model.weights import LoadedModel
from training.doctor import Facts, findings
from training.evaluation.knn import knn_accuracy
from training.evaluation.lift import photographs_lift
from training.evaluation.rank import rank_me
from training.methods.method import Method


@dataclass(frozen=True)
class Probe:
    """k-NN accuracy on labelled training pictures: every fifth is named by the votes of the others.

    This is for watching a run and choosing between runs; figures to report come from `evaluate knn`.
    """

    images: Images
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    precision: ComputePrecision
    device: torch.device
    limit: int = 2500
    """At most so many pictures, taken evenly."""

    @cached_property
    def readable(self) -> Images:
        """The pictures that are compared; a broken one must not end a run."""
        step = max(1, math.ceil(len(self.images) / self.limit))
        return self.images.subset(i for i in range(0, len(self.images), step) if _can_be_read(self.images, i))

    def look(self, backbone: nn.Module) -> tuple[float, float]:
        """Top-1 in percent, k = 20 and temperature 0.07; and rank of the features."""
        if self.images.labels is None:
            raise ValueError("the probe needs labelled pictures: one folder for each class")
        images = self.readable
        labels = torch.tensor(images.labels)
        model = LoadedModel("the run", backbone, self.mean, self.std, "a training", None)
        view = View(self.size, self.mean, self.std)
        extractor = FeatureExtractor(model, view, precision=self.precision, device=str(self.device))
        features = extractor.extract(images).features
        asked = torch.arange(len(images)) % 5 == 4
        k = min(20, int((~asked).sum()))
        votes = knn_accuracy(features[~asked], labels[~asked], features[asked], labels[asked], k=k)
        return votes.top1, rank_me(features)

    def lift(self, vit: nn.Module) -> float:
        """Of the last block's attention, on the package's photographs."""
        return photographs_lift(
            vit, mean=self.mean, std=self.std, precision=self.precision, device=str(self.device)
        )


def _can_be_read(images: Images, index: int) -> bool:
    try:
        images.read(index)
    except ImageError:
        return False
    return True


class Progress:
    """One line on stderr: step, loss, images per second and time left."""

    def __init__(self, first_step: int, steps: int, batch_size: int) -> None:
        self.first_step, self.steps, self.batch_size = first_step, steps, batch_size
        self.start = self.shown = time.monotonic()

    def show(self, step: int, line: dict[str, float], *, every: float = 2.0) -> None:
        """Rewrite the line, at most once in `every` seconds (on a file: a new line each minute)."""
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if now - self.shown < (every if terminal else 60) and step + 1 < self.steps:
            return
        self.shown = now
        pace = (step + 1 - self.first_step) / max(now - self.start, 1e-9)  # steps per second
        left = timedelta(seconds=round((self.steps - step - 1) / pace))
        values = "  ".join(f"{name} {value:.4g}" for name, value in line.items())
        text = f"{step + 1}/{self.steps}  {values}  {pace * self.batch_size:.0f} images/s  {left} left"
        print(
            f"\r\033[K{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True
        )

    def end(self) -> None:
        """Leave the line, so that what is printed next stands below it."""
        if sys.stderr.isatty():
            print(file=sys.stderr, flush=True)


@dataclass
class Monitor:
    """Watches every step of a run: `evaluate` receives the networks, then `__call__` the logged metrics."""

    progress: Progress
    method: Method
    probe: Probe | None
    probe_every: int
    """Steps between probes."""
    facts: Facts
    """What the figures are judged by."""
    diagnose_every: int = 100
    """Steps between looks at the figures; the last step is looked at, too."""
    recent: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=1000))
    """The last lines of the log."""
    told: set[str] = field(default_factory=set)
    """Causes that were found by the last look: each is told once, until it is gone."""
    broken: set[str] = field(default_factory=set)
    """What was wrong with each unreadable picture so far."""

    def evaluate(self, step: int) -> dict[str, float]:
        """Return metrics of the networks after a step, every `diagnose_every` and `probe_every` steps."""
        found = teacher_distance(self.method) if self._looks(step) else {}
        if self.probe and (step + 1) % self.probe_every == 0:
            found |= self.probed(self.probe, step)
        return found

    def __call__(self, step: int, figures: dict[str, float], broken: Sequence[str]) -> None:
        """Tell how far it is, which pictures cannot be read (`broken`), and what is wrong."""
        self.progress.show(
            step, dict(islice(figures.items(), 3))
        )  # the loss, and what the method names first
        for message in sorted({*broken} - self.broken):
            say(f"skipped a picture: {message}")
        self.broken.update(broken)
        self.recent.append({"step": step} | figures)
        if self._looks(step):
            self.warn(step)

    def _looks(self, step: int) -> bool:
        return (step + 1) % self.diagnose_every == 0 or step + 1 == self.progress.steps

    def warn(self, step: int) -> None:
        """Say what is wrong, once for each cause."""
        wrong = findings(list(self.recent), self.method.diagnose, self.facts)
        for finding in wrong:
            if finding.cause not in self.told:
                say(f"warning at step {step + 1}: {finding.sentence}")
        self.told = {finding.cause for finding in wrong}

    def probed(self, probe: Probe, step: int) -> dict[str, float]:
        """Figures of every network, also told in words."""
        found = {}
        for name, network in self.method.backbones().items():
            found[f"knn_{name}"], found[f"rank_{name}"] = top1, _ = probe.look(network)
            words = f"k-NN top-1 on held-out training pictures {top1:.1f} %"
            if hasattr(network, "blocks"):
                found[f"lift_{name}"] = lift = probe.lift(network)
                words += f", lift on the photographs {lift:.2f}"
            say(f"step {step + 1}, {name}: {words}")
        return found


@torch.no_grad()
def teacher_distance(method: Method) -> dict[str, float]:
    """How far the teacher's weights are from the student's, relative to these; nothing without both."""
    networks = method.backbones()
    if not {"teacher", "student"} <= networks.keys():
        return {}
    teacher, student = (list(networks[name].parameters()) for name in ("teacher", "student"))
    apart = sum(float((a - b).square().sum()) for a, b in zip(teacher, student, strict=True))
    length = sum(float(b.square().sum()) for b in student)
    return {"teacher_distance": math.sqrt(apart / max(length, 1e-12))}


def say(sentence: str) -> None:
    """A line of its own, below the progress line."""
    print(f"\n{sentence}", file=sys.stderr, flush=True)
