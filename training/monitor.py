"""What tells, while it trains, whether a run learns: progress, collapse in words, and a k-NN probe.

The theory is the paper's collapse study (section 5.3): with H the entropy of the teacher's output and KL its
divergence from the student's, a KL of zero means an output that no longer depends on the picture; H then
tells which of the two collapses it is, one prototype for all (H = 0) or all prototypes alike (H = ln K).
"""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property

import torch
from torch import nn

from dino_model.device import ComputePrecision
from dino_model.features import cls_features
from dino_model.images import IMAGENET_MEAN, IMAGENET_STD, ImageError, Images
from training.evaluation.knn import knn_accuracy

COLLAPSED_KL = 0.01
"""nats; far below any KL that a learning run shows."""


def collapse_warning(entropy: float, kl: float, prototypes: int) -> str | None:
    """One sentence that names the collapse and the likely knob, or None.

    Args:
        entropy: of the teacher's output, in nats.
        kl: divergence of the student's output from the teacher's, in nats.
        prototypes: K.
    """
    uniform = math.log(prototypes)
    if entropy < 0.05 * uniform and kl < COLLAPSED_KL:
        return (
            f"collapse to one prototype: teacher entropy {entropy:.3f} is near 0 and KL {kl:.4f}; the center "
            "does not hold it back: lower --center-momentum or raise --teacher-temperature"
        )
    if entropy > 0.99 * uniform and kl < COLLAPSED_KL:
        return (
            f"collapse to the uniform output: teacher entropy {entropy:.3f} is ln K = {uniform:.3f}, "
            f"KL {kl:.4f}; sharpen the teacher: lower --teacher-temperature, or warm it up over more epochs"
        )
    if kl < COLLAPSED_KL:
        return (
            f"KL {kl:.4f} is near 0: the teacher's output hardly depends on the picture; "
            "lower --teacher-temperature or the learning rate"
        )
    return None


@dataclass(frozen=True)
class Probe:
    """k-NN accuracy on labelled training pictures: every fifth is named by the votes of the others.

    This is for watching a run and choosing between runs; figures to report come from `evaluate knn`.
    """

    images: Images
    size: int
    precision: ComputePrecision
    device: torch.device
    limit: int = 2500
    """At most so many pictures, taken evenly."""

    @cached_property
    def readable(self) -> Images:
        """The pictures that are compared; a broken one must not end a run."""
        step = max(1, math.ceil(len(self.images) / self.limit))
        return self.images.subset(i for i in range(0, len(self.images), step) if _can_be_read(self.images, i))

    def top1(self, backbone: nn.Module) -> float:
        """Top-1 in percent, k = 20 and temperature 0.07."""
        if self.images.labels is None:
            raise ValueError("the probe needs labelled pictures: one folder for each class")
        images = self.readable
        labels = torch.tensor(images.labels)
        features = cls_features(
            backbone,
            images,
            size=self.size,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            precision=self.precision,
            device=self.device,
        )
        asked = torch.arange(len(images)) % 5 == 4
        k = min(20, int((~asked).sum()))
        return knn_accuracy(features[~asked], labels[~asked], features[asked], labels[asked], k=k).top1


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
        self.start = self.shown = self.stepped = time.monotonic()

    def throughput(self) -> float:
        """Pictures a second since this was asked last, or since the start."""
        before, self.stepped = self.stepped, time.monotonic()
        return self.batch_size / max(self.stepped - before, 1e-9)

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
    """Watches every step of a run; called with step, logs and what was wrong with unreadable pictures."""

    progress: Progress
    prototypes: int
    """K: ln K is logged beside the entropy."""
    networks: Mapping[str, nn.Module]
    """Backbones to probe, by the name they have in the log."""
    probe: Probe | None
    probe_every: int
    """Steps between probes."""
    broken: set[str] = field(default_factory=set)
    """What was wrong with each unreadable picture so far."""

    def __call__(self, step: int, logs: dict[str, float], broken: Sequence[str]) -> dict[str, float]:
        """Values to add to the step's line in the log."""
        self.progress.show(step, logs)
        for message in sorted({*broken} - self.broken):
            say(f"skipped a picture: {message}")
        self.broken.update(broken)
        if (step + 1) % 100 == 0 or step + 1 == self.progress.steps:
            warning = collapse_warning(logs["teacher_entropy"], logs["kl"], self.prototypes)
            if warning:
                say(f"warning at step {step + 1}: {warning}")
        more = {"ln_k": math.log(self.prototypes), "images_per_second": self.progress.throughput()}
        if self.probe and (step + 1) % self.probe_every == 0:
            found = {name: self.probe.top1(network) for name, network in self.networks.items()}
            figures = ", ".join(f"{name} {top1:.1f} %" for name, top1 in found.items())
            say(f"step {step + 1}: k-NN top-1 on held-out training pictures: {figures}")
            more |= {f"knn_{name}": top1 for name, top1 in found.items()}
        return more


def say(sentence: str) -> None:
    """A line of its own, below the progress line."""
    print(f"\n{sentence}", file=sys.stderr, flush=True)
