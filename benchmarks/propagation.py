"""Label propagation for one frame at DAVIS size, against the affinity of all patches with all patches.

python -m benchmarks.propagation [--device cuda] [--json FILE]
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from benchmarks.measure import Computation, extra_memory, measure, report
from segmentation.propagation import DINO, propagate_step

ROWS, COLUMNS, CHANNELS = 60, 104, 384  # 854 × 480 at patch 8, features of a ViT-S
CONTEXTS = 1 + DINO.previous
LABELS = 3  # background and two objects
AGREEMENT = 1e-5  # of soft labels
# Where the k-th and the next similarity are closer than this, fp32 may order them either way.
NEAR_TIE = 1e-6


@dataclass(frozen=True)
class Propagation:
    """Soft labels of one frame from 8 context frames of 60 × 104 patches: tiled against dense."""

    repeats: int = 3
    """Timed turns of each side."""
    device: str = "cpu"
    """cpu, or a GPU that is at hand."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Compare both results, measure, print."""
        result = measure(
            "propagation",
            partial(build, self.device, True),
            partial(build, self.device, False),
            repeats=self.repeats,
            remarks=compare(self.device),
            memory_of=extra_memory if self.device == "cpu" else extra_gpu_memory,
        )
        report(result, self.json)


def frames(device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Draw target [h, w, D], contexts [n, h, w, D] and soft labels [n, C, h, w] of a drifting video.

    A smooth random field that shifts by a patch every other frame, with noise of its own in each.
    """
    generator = torch.Generator().manual_seed(0)
    field = torch.randn(1, CHANNELS, ROWS + 14, COLUMNS + 14, generator=generator)
    field = F.avg_pool2d(field, 5, stride=1, padding=2)[0].permute(1, 2, 0)
    shifted = [field[t // 2 :, t // 2 :][:ROWS, :COLUMNS] for t in range(CONTEXTS + 1)]
    noise = 0.05 * torch.randn(CONTEXTS + 1, ROWS, COLUMNS, CHANNELS, generator=generator)
    labels = torch.rand(CONTEXTS, LABELS, ROWS, COLUMNS, generator=generator)
    *contexts, target = (torch.stack(shifted) + noise).to(device)
    return target, torch.stack(contexts), labels.to(device)


def tiled(target: Tensor, contexts: Tensor, labels: Tensor) -> Tensor:
    """Propagate by tiles inside the window; context features are already normalized."""
    return propagate_step(F.normalize(target, dim=-1), contexts, labels, normalized=True)


def dense(target: Tensor, contexts: Tensor, labels: Tensor, window: Tensor) -> Tensor:
    """The plain way: every patch with every patch of every context, in one matrix.

    Args:
        target: [h, w, D].
        contexts: [n, h, w, D].
        labels: [n, C, h, w].
        window: 1 where a patch may look at another, float [hw, hw].
    """
    sources = F.normalize(contexts.flatten(1, 2), dim=-1)  # [n, hw, D]
    queries = F.normalize(target.flatten(0, 1), dim=-1).T.expand(len(contexts), -1, -1)  # [n, D, hw]
    affinity = torch.bmm(sources, queries).div_(DINO.temperature).exp_() * window
    affinity = affinity.flatten(0, 1)  # [n hw, hw]
    weakest = affinity.topk(DINO.topk, dim=0).values[-1]
    affinity = torch.where(affinity >= weakest, affinity, 0)
    affinity = affinity / affinity.sum(0)
    return (labels.transpose(0, 1).flatten(1) @ affinity).unflatten(-1, labels.shape[2:])


def square_window() -> Tensor:
    """Mark pairs of patches within the radius in rows and columns: float [hw, hw]."""
    near = [(torch.arange(n)[:, None] - torch.arange(n)).abs() <= DINO.radius for n in (ROWS, COLUMNS)]
    return (near[0][:, None, :, None] & near[1][None, :, None, :]).flatten(2).flatten(0, 1).float()


def compare(device: str) -> tuple[str, ...]:
    """Compare both results; describe settings and agreement.

    Raises:
        SystemExit: they differ where no two similarities are too close to call.
    """
    target, contexts, labels = frames(device)
    plain = dense(target, contexts, labels, square_window().to(device))
    difference = (tiled(target, F.normalize(contexts, dim=-1), labels) - plain).abs().amax(0)  # [h, w]
    differing = difference > AGREEMENT
    called_off = near_ties(target[differing].double(), contexts.double(), differing.nonzero())
    if called_off < int(differing.sum()):
        raise SystemExit(
            f"{int(differing.sum())} patches differ by more than {AGREEMENT}, {called_off} by near-ties"
        )
    agreeing = difference[~differing].max()
    return (
        f"{CONTEXTS} contexts of {ROWS} × {COLUMNS} patches, D = {CHANNELS}, fp32 on {device}, "
        f"{torch.get_num_threads()} threads",
        f"soft labels differ by at most {agreeing:.1e} (allowed {AGREEMENT:.0e}), but for {called_off} of "
        f"{ROWS * COLUMNS} patches whose neighbors {DINO.topk} and {DINO.topk + 1} are closer than "
        f"{NEAR_TIE:.0e}",
    )


def near_ties(queries: Tensor, contexts: Tensor, places: Tensor) -> int:
    """Count the queries [q, D], at positions [q, 2], whose neighbors k and k + 1 are too close to order."""
    count = 0
    for query, (row, column) in zip(F.normalize(queries, dim=-1), places.tolist(), strict=True):
        rows, columns = (slice(max(0, at - DINO.radius), at + DINO.radius + 1) for at in (row, column))
        nearby = F.normalize(contexts[:, rows, columns].flatten(0, 2), dim=-1)
        best = (nearby @ query).topk(DINO.topk + 1).values
        count += bool(best[-2] - best[-1] < NEAR_TIE)
    return count


def build(device: str, is_ours: bool) -> Computation:
    """Return our step or the dense one, which ends when the device is done; the window is built once."""
    target, contexts, labels = frames(device)
    if is_ours:
        compute = partial(tiled, target, F.normalize(contexts, dim=-1), labels)
    else:
        compute = partial(dense, target, contexts, labels, square_window().to(device))

    def until_done() -> None:
        compute()
        if device != "cpu":
            torch.cuda.synchronize()

    return until_done


def extra_gpu_memory(build: Callable[[], Computation]) -> int:
    """Peak memory of one computation on the GPU in bytes, above what stands there before it."""
    compute = build()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    compute()
    return torch.cuda.max_memory_allocated() - before


if __name__ == "__main__":
    tyro.cli(Propagation).run()
