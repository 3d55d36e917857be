"""What DINO is compared with: other losses, what either network is shown, terms beside the loss.

With the defaults of its settings none of this changes the algorithm.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dino_model.attention import attention_rows
from dino_model.backbones import patch_grid
from training import losses
from training.methods.network import Network
from training.randomness import Randomness

if TYPE_CHECKING:
    from training.methods.dino.algorithm import DINO
    from training.methods.dino.config import DINOConfig

Logs = dict[str, Tensor]


def mse(dino: "DINO", student: Tensor, teacher: Tensor, shared: int, step: int) -> tuple[Tensor, Logs]:
    """Of l2-normalised outputs, centered but not sharpened (appendix "Relation to MoCo-v2 and BYOL").

    Arguments as in `DINO.cross_entropy`.
    """
    if dino.config.teacher_output == "centering":
        teacher = teacher - dino.center.value
    ours = dino.student.logits(student)
    return losses.multi_crop_mse(ours, teacher, shared), {"spread": losses.spread(teacher)}


def info_nce(dino: "DINO", student: Tensor, teacher: Tensor, shared: int, step: int) -> tuple[Tensor, Logs]:
    """MoCo's loss against a queue, or against the other pictures of the view where there is none.

    Arguments as in `DINO.cross_entropy`.
    """
    negatives = dino.queue.vectors if dino.queue else None
    temperature = dino.config.infonce_temperature
    ours = dino.student.logits(student)
    loss = losses.multi_crop_info_nce(ours, teacher, temperature, negatives, shared)
    return loss, {"spread": losses.spread(teacher)}


Comparison = Callable[["DINO", Tensor, Tensor, int, int], tuple[Tensor, Logs]]
COMPARISONS: dict[str, Comparison] = {"mse": mse, "infonce": info_nce}
"""In place of the cross-entropy."""


def views(config: "DINOConfig", views: Tensor) -> tuple[Tensor, Tensor, int]:
    """Global crops that the teacher sees and that the student does, and how many of these are the same."""
    if config.views == 1:
        return views[:1], views[1:2], 0
    return views, views, len(views)


def kept_patches(
    config: "DINOConfig", teacher: Network, views: Tensor, randomness: Randomness
) -> Tensor | None:
    """Choose the patches of each global crop that the student gets.

    Args:
        config: `kept_tokens`, `masking` and `mask_hint` are used.
        teacher: its attention ranks the patches under `masking="attention"`; one more forward pass.
        views: global crops of the student [views, batch, channels, height, width].
        randomness: of the choice; it depends on the position in the global batch.

    Returns:
        Patch indices, row by row: int64 [views, batch, kept]. None: all patches.
    """
    if config.kept_tokens == 1:
        return None
    rows, columns = patch_grid(teacher.backbone, *views.shape[-2:])
    patches = rows * columns
    kept = max(1, round(config.kept_tokens * patches))
    numbers = randomness.uniform("patches", len(views), patches).transpose(1, 2)
    numbers = numbers.to(views.device, non_blocking=True)
    if config.masking == "random":
        return numbers.argsort()[..., :kept]
    attention = attention_rows(teacher.backbone, views.flatten(0, 1), [0])[:, :, 0, -patches:]
    ranks = attention.mean(1).unflatten(0, views.shape[:2])
    return least_attended(ranks, numbers, kept, config.mask_hint)


def least_attended(attention: Tensor, numbers: Tensor, kept: int, hint: float) -> Tensor:
    """Hide the patches with the highest attention, but for a random hint of them (AttMask-High and -Hint).

    With h patches to hide, the h + s most attended are drawn from, s = `hint` * h: s of these stay visible.

    Args:
        attention: of the teacher's [CLS] token, mean of the heads [..., patches].
        numbers: uniform random numbers [..., patches].
        kept: number of patches that stay visible.
        hint: share of the hidden patches in [0, 1]; 0 hides exactly the most attended.

    Returns:
        Indices of the visible patches, int64 [..., kept].

    Source: I. Kakogeorgiou et al. 2022 (arXiv:2203.12719), section 3.2.
    """
    hidden = attention.shape[-1] - kept
    hints = min(kept, round(hint * hidden))
    ranked = attention.argsort(dim=-1)
    visible, candidates = ranked.tensor_split((kept - hints,), dim=-1)  # candidates: hidden + hints
    drawn = numbers[..., : hidden + hints].argsort()[..., :hints]
    return torch.cat([visible, candidates.take_along_dim(drawn, dim=-1)], dim=-1)


def with_terms(
    config: "DINOConfig", loss: Tensor, logs: Logs, student: Tensor, teacher: Tensor, shared: int
) -> Tensor:
    """The loss with terms on the bottlenecks [crops, batch, d]: spread out, and alike in both networks."""
    if config.spreading:
        rate = losses.coding_rate(student[: len(teacher)]).mean()
        loss, logs["coding_rate"] = loss - config.spreading * rate, rate.detach()
    if config.alignment:
        apart = losses.multi_crop_mse(student, teacher, shared) / 2  # 1 - cosine
        loss, logs["misalignment"] = loss + config.alignment * apart, apart.detach()
    return loss
