"""Loss and gradients of DINO's head alone (K = 65,536, 10 crops, batch 32), against keeping all logits.

python -m benchmarks.head [--json FILE]
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from benchmarks.measure import Computation, measure, report
from dino_model.head import Prototypes
from training import losses
from training.prototype_loss import prototype_cross_entropy

PROTOTYPES, WIDTH, CROPS, BATCH, TEMPERATURE = 65_536, 256, 10, 32, 0.1


@dataclass(frozen=True)
class Head:
    """From the bottleneck to the gradients of the student's bottleneck and prototypes."""

    repeats: int = 5
    """Timed turns of each side."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Compare the losses, measure, print."""
        ours, reference = first_loss(build_ours), first_loss(build_reference)
        if abs(ours - reference) > 1e-5 * reference:
            raise SystemExit(f"the loss is {ours}, expected {reference}")
        remarks = (
            f"K = {PROTOTYPES:,}, width {WIDTH}, {CROPS} crops, batch {BATCH}, fp32, "
            f"{torch.get_num_threads()} threads; loss {ours:.6f}, keeping all logits {reference:.6f}",
            f"of both sides' memory {4 * PROTOTYPES * WIDTH / 1e6:.0f} MB are the prototypes' gradient",
        )
        result = measure("head", build_ours, build_reference, repeats=self.repeats, remarks=remarks)
        report(result, self.json)


def case() -> tuple[torch.Tensor, Prototypes, torch.Tensor]:
    """A student's bottleneck, its prototypes, a teacher's probabilities."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    bottleneck = losses.unit(torch.randn(CROPS, BATCH, WIDTH, generator=generator)).requires_grad_()
    logits = torch.randn(2, BATCH, PROTOTYPES, generator=generator)
    return bottleneck, Prototypes(WIDTH, PROTOTYPES), logits.softmax(-1)


def build_ours() -> Computation:
    """A few pictures' logits at a time."""
    bottleneck, prototypes, targets = case()

    def compute() -> float:
        loss = prototype_cross_entropy(bottleneck, prototypes, targets, TEMPERATURE)
        return differentiate(loss, bottleneck, prototypes)

    return compute


def build_reference() -> Computation:
    """All logits, kept for the gradients."""
    bottleneck, prototypes, targets = case()

    def compute() -> float:
        loss = losses.multi_crop_cross_entropy(prototypes(bottleneck), targets, TEMPERATURE)
        return differentiate(loss, bottleneck, prototypes)

    return compute


def first_loss(build: Callable[[], Computation]) -> float:
    """Of a fresh computation."""
    loss = build()()
    assert isinstance(loss, float)
    return loss


def differentiate(loss: torch.Tensor, bottleneck: torch.Tensor, prototypes: Prototypes) -> float:
    """The loss, with gradients at what trains, as a step leaves them."""
    bottleneck.grad = prototypes.weight_v.grad = None
    loss.backward()
    return loss.item()


if __name__ == "__main__":
    tyro.cli(Head).run()
