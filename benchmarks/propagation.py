"""Label propagation for one frame at DAVIS size, against the affinity of all patches with all patches.

python -m benchmarks.propagation [--json FILE]
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from benchmarks.measure import Benchmark, Computation
from segmentation.propagation import DINO, propagate_step

ROWS, COLUMNS, CHANNELS = 60, 104, 384  # 854 × 480 at patch 8, features of a ViT-S
CONTEXTS = 1 + DINO.previous
LABELS = 3  # background and two objects
COMPARED = 2  # contexts: the dense affinity of all takes 5 GB in double precision
AGREEMENT = 1e-9  # of soft labels in double precision


@dataclass(frozen=True, kw_only=True)
class Propagation(Benchmark):
    """Soft labels of one frame from 8 context frames of 60 × 104 patches: tiled against dense."""

    def peers(self) -> dict[str, tuple[Computation, Computation]]:
        """Propagate by tiles, and by the dense affinity; contexts of the first are already normalized."""
        target, contexts, labels = frames()
        units, window = F.normalize(contexts, dim=-1), square_window()
        return {
            "dense affinity": (
                lambda: propagate_step(F.normalize(target, dim=-1), units, labels),
                lambda: dense(target, contexts, labels, window),
            )
        }

    def compare(self) -> tuple[str, ...]:
        """Compare the soft labels in fp64, in which no two similarities are too close to order."""
        target, contexts, labels = (array.double() for array in frames())
        target, contexts = F.normalize(target, dim=-1), F.normalize(contexts[:COMPARED], dim=-1)
        labels = labels[:COMPARED]
        plain = dense(target, contexts, labels, square_window())
        difference = float((propagate_step(target, contexts, labels) - plain).abs().max())
        if difference > AGREEMENT:
            raise SystemExit(f"soft labels differ by {difference:.1e}, expected at most {AGREEMENT:.0e}")
        return (
            f"{CONTEXTS} contexts of {ROWS} × {COLUMNS} patches, D = {CHANNELS}, fp32, "
            f"{torch.get_num_threads()} threads",
            f"soft labels from {COMPARED} contexts in fp64 differ by at most {difference:.1e} "
            f"(allowed {AGREEMENT:.0e})",
        )


def frames() -> tuple[Tensor, Tensor, Tensor]:
    """Draw target [h, w, D], contexts [n, h, w, D] and soft labels [n, C, h, w] of a drifting video.

    A smooth random field that shifts by a patch every other frame, with noise of its own in each.
    """
    generator = torch.Generator().manual_seed(0)
    field = torch.randn(1, CHANNELS, ROWS + 14, COLUMNS + 14, generator=generator)
    field = F.avg_pool2d(field, 5, stride=1, padding=2)[0].permute(1, 2, 0)
    shifted = [field[t // 2 :, t // 2 :][:ROWS, :COLUMNS] for t in range(CONTEXTS + 1)]
    noise = 0.05 * torch.randn(CONTEXTS + 1, ROWS, COLUMNS, CHANNELS, generator=generator)
    labels = torch.rand(CONTEXTS, LABELS, ROWS, COLUMNS, generator=generator)
    *contexts, target = torch.stack(shifted) + noise
    return target, torch.stack(contexts), labels


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


if __name__ == "__main__":
    tyro.cli(Propagation).run()
