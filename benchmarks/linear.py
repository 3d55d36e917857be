"""A grid of linear classifiers in one pass against single runs, and against the backbone's own forward.

python -m benchmarks.linear [--json FILE]
"""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from torch import Tensor, nn

from benchmarks.measure import Result, report
from dino_model.device import autocast, choose_precision
from dino_model.features import FeatureType
from dino_model.weights import load_model
from training.evaluation.linear import FeatureSpec, LinearProtocol, batches, train_grid

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Linear:
    """13 rates × 3 kinds of features on cached features, against 39 runs of torch's own layers."""

    pictures: int = 7_000
    """Training pictures; features are drawn around 100 classes."""
    epochs: int = 3
    """Of each side."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Train both ways, compare their best, print."""
        features, labels, test, truth = drawn(self.pictures)
        protocol = LinearProtocol(epochs=self.epochs)
        precision = choose_precision("auto", CPU)
        started = time.perf_counter()
        heads = train_grid(features, labels, 100, protocol, precision=precision)
        ours = time.perf_counter() - started
        top1 = heads.top1(test, truth)
        started, singles = time.perf_counter(), []
        for spec in protocol.specs:
            for rate in protocol.rates:
                layer = plain(features, labels, spec, rate, protocol)
                singles.append(float((layer(spec.select(test)).argmax(1) == truth).double().mean() * 100))
        reference = time.perf_counter() - started
        forward = self.forward()
        best, theirs = int(top1.argmax()), int(torch.tensor(singles).argmax())
        step = ours / (self.epochs * -(-self.pictures // protocol.batch_size)) / protocol.batch_size
        remarks = (
            f"{self.pictures:,} pictures, {self.epochs} epochs, {precision}, 39 classifiers; best: ours"
            f" {float(top1.max()):.1f} % (number {best}), single runs {max(singles):.1f} % (number {theirs})",
            f"one picture: forward of the embedded model at 112 pixels {1e3 * forward:.2f} ms, the whole grid"
            f" {1e3 * step:.2f} ms: with it a run costs {1 + step / forward:.2f} forwards",
        )
        report(Result("linear", ours, reference, remarks=remarks), self.json)

    def forward(self) -> float:
        """Seconds of the embedded model's forward for one picture of a batch."""
        backbone, images = load_model("embedded").backbone, torch.randn(64, 3, 112, 112)
        kind, precision = FeatureType(4, "average"), choose_precision("auto", CPU)
        seconds = []
        with torch.no_grad(), autocast(precision, CPU):
            for _ in range(3):
                started = time.perf_counter()
                kind.compute(backbone, images)
                seconds.append((time.perf_counter() - started) / len(images))
        return min(seconds)


def plain(
    features: Tensor, labels: Tensor, spec: FeatureSpec, rate: float, protocol: LinearProtocol
) -> nn.Linear:
    """One classifier by torch's own layers, fp32."""
    x = spec.select(features)
    layer = nn.Linear(x.shape[1], 100)
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(layer.parameters(), rate * protocol.batch_size / 256, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, protocol.epochs)
    for epoch in range(protocol.epochs):
        for chosen in batches(len(labels), protocol, epoch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(layer(x[chosen]), labels[chosen]).backward()
            optimizer.step()
        schedule.step()
    return layer


def drawn(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features [pictures, 5, 192] and labels, to learn from and to test on."""
    random = torch.Generator().manual_seed(0)
    centres = torch.randn(100, 5, 192, generator=random)
    parts = []
    for size in (count, 2_000):
        labels = torch.randint(100, (size,), generator=random)
        parts += [centres[labels] + 6 * torch.randn(size, 5, 192, generator=random), labels]
    return parts[0], parts[1], parts[2], parts[3]


if __name__ == "__main__":
    tyro.cli(Linear).run()
