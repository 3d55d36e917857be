"""What DINO is compared with: other losses, what either network is shown, terms beside the loss.

With the defaults of its settings none of this changes the algorithm.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

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


def kept_patches(share: float, student: Network, views: Tensor, randomness: Randomness) -> Tensor | None:
    """Numbers of the patches the student sees: [views, batch, kept]; None: all."""
    if share == 1:
        return None
    rows, columns = patch_grid(student.backbone, *views.shape[-2:])
    order = randomness.uniform("patches", len(views), rows * columns).transpose(1, 2).argsort()
    return order[..., : max(1, round(share * rows * columns))].to(views.device)


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
