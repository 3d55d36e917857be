"""Options of DINO next to Algorithm 1: the ablations of the paper, and additions of this project.

With the default settings every function here returns its input, or nothing.
"""

import torch
from torch import Tensor

from dino_model.attention import attention_rows
from dino_model.backbones import patch_grid
from training import losses
from training.methods.configs import AblationConfig
from training.methods.network import Network, Queue
from training.randomness import Randomness

Logs = dict[str, Tensor]


def other_targets(config: AblationConfig, logits: Tensor, temperature: float) -> Tensor:
    """Targets of logits [views, batch, K] without centering; each view is balanced separately."""
    if config.teacher_output == "none":
        return losses.sharpen(logits, temperature)
    iterations = config.sinkhorn_iterations if config.teacher_output == "sinkhorn-knopp" else 1
    return losses.sinkhorn_knopp(logits, config.sinkhorn_temperature, iterations)


def other_loss(
    config: AblationConfig,
    student_logits: Tensor,
    teacher_logits: Tensor,
    num_shared: int,
    center: Tensor,
    queue: Queue | None,
) -> tuple[Tensor, Logs]:
    """Compare l2-normalized outputs, not sharpened (appendix "Relation to MoCo-v2 and BYOL").

    MSE subtracts the center if `teacher_output` is centering. InfoNCE takes its negatives from the queue, or
    without one from the other images of the view.

    Args:
        config: `loss` is mse or infonce.
        student_logits: [crops, batch, K].
        teacher_logits: [views, batch, K].
        num_shared: Number of views that both networks get.
        center: [1, K].
        queue: Keys of earlier images.
    """
    if config.loss == "mse":
        if config.teacher_output == "centering":
            teacher_logits = teacher_logits - center
        loss = losses.multi_crop_mse(student_logits, teacher_logits, num_shared)
    else:
        negatives = queue.vectors if queue else None
        loss = losses.multi_crop_info_nce(
            student_logits, teacher_logits, config.infonce_temperature, negatives, num_shared
        )
    return loss, {"spread": losses.spread(teacher_logits)}


def add_terms(
    config: AblationConfig, loss: Tensor, logs: Logs, student: Tensor, teacher: Tensor, num_shared: int
) -> Tensor:
    """Add the terms of SimDINO (arXiv:2502.10385) on the bottlenecks [crops, batch, d]; writes to `logs`."""
    if config.spreading:
        rate = losses.coding_rate(student[: len(teacher)]).mean()
        loss, logs["coding_rate"] = loss - config.spreading * rate, rate.detach()
    if config.alignment:
        misalignment = losses.multi_crop_mse(student, teacher, num_shared) / 2  # 1 - cosine
        loss, logs["misalignment"] = loss + config.alignment * misalignment, misalignment.detach()
    return loss


def select_views(config: AblationConfig, views: Tensor) -> tuple[Tensor, Tensor, int]:
    """Global crops of the teacher and of the student, and the number that both get."""
    if config.views == 1:
        return views[:1], views[1:2], 0
    return views, views, len(views)


def visible_patches(
    config: AblationConfig, teacher: Network, views: Tensor, randomness: Randomness
) -> Tensor | None:
    """Choose the patches of each global crop that the student gets; None: all.

    Args:
        config: `kept_tokens`, `masking` and `mask_hint` are used.
        teacher: Its attention ranks the patches under `masking="attention"`; one more forward pass.
        views: Global crops of the student [views, batch, channels, height, width].
        randomness: Of the choice; it depends on the position in the global batch.

    Returns:
        Patch indices, row by row: int64 [views, batch, kept].
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
    mean = attention.mean(1).unflatten(0, views.shape[:2])
    return least_attended(mean, numbers, kept, config.mask_hint)


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
