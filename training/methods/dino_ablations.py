"""DINO with options next to Algorithm 1: the ablations of the paper, and additions of this project."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dino_model.models.attention import attention_rows
from dino_model.models.backbones import MaskedPatches, patch_grid
from training import losses
from training.augmentation.randomness import Randomness, copy_to_device
from training.distributed import all_mean, gather
from training.methods.config import MethodSchedules
from training.methods.dino import DINO, mean_output, update_center
from training.methods.dino_ablations_config import AblationsConfig
from training.methods.ibot import masked_cross_entropy, masked_places, random_blocks
from training.methods.method import Batch, Loss
from training.methods.network import Network, Queue, cls_tokens


class DINOAblations(DINO):
    """DINO with the options of `AblationsConfig`. With the defaults it equals DINO.

    Shapes are those of DINO; `num_shared` is the number of views that both networks get.
    """

    config: AblationsConfig
    patch_center: Tensor
    """Running mean of the teacher's logits of patches, [1, K]; with `patch_loss` only."""

    def __init__(
        self, student: Network, teacher: Network, config: AblationsConfig, schedules: MethodSchedules
    ) -> None:
        super().__init__(student, teacher, config, schedules)
        self.queue = Queue(config.queue, config.head.prototypes) if config.queue else None
        if config.patch_loss == "ibot":
            width: Any = student.backbone.num_features
            self.mask_token = nn.Parameter(torch.zeros(width))
            self.register_buffer("patch_center", torch.zeros(1, config.head.prototypes))

    def forward(self, batch: Batch, step: int) -> Loss:
        """Compute the loss of a micro-batch; the first `num_shared` views are crops of both networks."""
        views = batch.crops.views
        teacher_views, student_views, num_shared = views, views, len(views)
        if self.config.views == 1:
            teacher_views, student_views, num_shared = views[:1], views[1:2], 0
        with torch.no_grad():
            teacher_features = self.teacher.features(teacher_views)
            teacher = self.teacher.head.project(cls_tokens(teacher_features))  # [views, batch, d]
            teacher_logits = self.teacher.head.logits(teacher)  # [views, batch, K]
        visible = self.visible_patches(student_views, batch.randomness)
        blocks = self.masked_blocks(student_views, batch.randomness)
        masked = None
        if blocks is not None:
            masked = MaskedPatches(copy_to_device(blocks, student_views.device), self.mask_token)
        student_features = self.student.features(
            student_views, batch.crops.locals, randomness=batch.randomness, visible=visible, masked=masked
        )
        student = self.student.head.project(cls_tokens(student_features))  # [crops, batch, d]
        temperature = float(self.schedules.teacher_temperature[step])
        loss, logs = self.compare(student, teacher_logits, temperature, num_shared)
        carry = {"teacher_mean": mean_output(teacher_logits)}
        if self.config.spreading:  # SimDINO (arXiv:2502.10385), on the bottlenecks
            rate = losses.coding_rate(student[: len(teacher)]).mean()
            loss, logs["coding_rate"] = loss - self.config.spreading * rate, rate.detach()
        if self.config.alignment:
            misalignment = losses.multi_crop_mse(student, teacher, num_shared) / 2  # 1 - cosine
            loss, logs["misalignment"] = loss + self.config.alignment * misalignment, misalignment.detach()
        if self.config.koleo:
            spacing = losses.koleo(student_features[0].cls).sum()
            loss, logs["koleo"] = loss + self.config.koleo * spacing, spacing.detach()
        if blocks is not None:
            patches = (student_features[0].patches, teacher_features[0].patches)
            patch_loss, carry["patch_mean"] = self.patch_loss(*patches, blocks, temperature)
            loss, logs["patch_loss"] = loss + patch_loss, patch_loss.detach()
        if self.queue:
            carry["keys"] = losses.unit(teacher_logits).flatten(0, 1)
        return Loss(loss, logs, carry)

    def compare(
        self, student: Tensor, teacher_logits: Tensor, temperature: float, num_shared: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compare the outputs as `loss` names it; return the loss and its metrics.

        `mse` and `infonce` compare l2-normalized logits, not sharpened (appendix "Relation to MoCo-v2 and
        BYOL"). Negatives of `infonce` are in the queue, or without one the other images of the view.
        """
        head, config = self.student.head, self.config
        match config.loss:
            case "cross-entropy":
                targets = self.targets(teacher_logits, temperature)
                loss = head.cross_entropy(student, targets, config.student_temperature, num_shared)
                return loss, self.observe(loss, targets)
            case "mse":
                if config.teacher_output == "centering":
                    teacher_logits = teacher_logits - self.center
                loss = losses.multi_crop_mse(head.logits(student), teacher_logits, num_shared)
            case "infonce":
                negatives = self.queue.vectors if self.queue else None
                loss = losses.multi_crop_info_nce(
                    head.logits(student), teacher_logits, config.infonce_temperature, negatives, num_shared
                )
        return loss, {"spread": losses.spread(teacher_logits), "center_norm": self.center.norm()}

    def targets(self, logits: Tensor, temperature: float) -> Tensor:
        """Teacher probabilities of logits [views, batch, K], as `teacher_output` names them."""
        match self.config.teacher_output:
            case "centering":
                return super().targets(logits, temperature)
            case "none":
                return losses.sharpen(logits, temperature)
            case "softmax-batch":  # as the next, each view is balanced separately
                return losses.sinkhorn_knopp(logits, self.config.sinkhorn_temperature, 1)
            case "sinkhorn-knopp":
                iterations = self.config.sinkhorn_iterations
                return losses.sinkhorn_knopp(logits, self.config.sinkhorn_temperature, iterations)

    def visible_patches(self, views: Tensor, randomness: Randomness) -> Tensor | None:
        """Choose the patches that the student gets, int64 [views, batch, num_visible]; None: all.

        The choice depends on the position in the global batch. Under `masking="attention"` one more forward
        pass of the teacher ranks the patches.
        """
        if self.config.kept_tokens == 1:
            return None
        rows, columns = patch_grid(self.teacher.backbone, *views.shape[-2:])
        patches = rows * columns
        num_visible = max(1, round(self.config.kept_tokens * patches))
        numbers = randomness.uniform("patches", len(views), patches).transpose(1, 2)
        numbers = copy_to_device(numbers, views.device)
        if self.config.masking == "random":
            return numbers.argsort()[..., :num_visible]
        attention = attention_rows(self.teacher.backbone, views.flatten(0, 1), [0])[:, :, 0, -patches:]
        mean = attention.mean(1).unflatten(0, views.shape[:2])
        return least_attended(mean, numbers, num_visible, self.config.mask_hint)

    def masked_blocks(self, views: Tensor, randomness: Randomness) -> Tensor | None:
        """Choose the patches of the views that the student must predict; None: no patch loss.

        Returns:
            bool [views, batch, patches] on the CPU.
        """
        if self.config.patch_loss == "none":
            return None
        return random_blocks(randomness, len(views), *patch_grid(self.student.backbone, *views.shape[-2:]))

    def patch_loss(
        self, student: Tensor, teacher: Tensor, masked: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Compute iBOT's loss; logits exist for masked patches only.

        Args:
            student, teacher: Features of patches, [views, batch, patches, C].
            masked: bool [views, batch, patches] on the CPU, which knows the number of masked patches.
            temperature: Of the teacher.

        Returns:
            The loss, and the mean of the teacher's logits of all patches, [K].
        """
        places, weights = (copy_to_device(part, student.device) for part in masked_places(masked))
        with torch.no_grad():
            projected = self.teacher.head.project(teacher).flatten(0, -2)
            with torch.autocast(student.device.type, enabled=False):  # the logits are linear
                mean = self.teacher.head.logits(losses.full_precision(projected).mean(0, keepdim=True))[0]
            teacher_logits = self.teacher.head.logits(projected.index_select(0, places))
        targets = losses.sharpen(teacher_logits - self.patch_center, temperature)
        if self.config.head.batch_norm:  # its statistics are those of all patches
            chosen = self.student.head.project(student).flatten(0, -2).index_select(0, places)
        else:
            chosen = self.student.head.project(student.flatten(0, -2).index_select(0, places))
        logits = self.student.head.logits(chosen)
        return masked_cross_entropy(logits, targets, weights, self.config.student_temperature), mean

    def after_backward(self, step: int) -> None:
        """Drop gradients of frozen parameters; update a `previous-iteration` teacher."""
        super().after_backward(step)
        if self.config.teacher == "previous-iteration":
            self.ema_update(0.0)  # the student's weights before this step

    def after_step(self, step: int, carry: Sequence[Mapping[str, Tensor]]) -> None:
        """Update center and teacher as DINO, and fill the queue."""
        super().after_step(step, carry)
        if self.config.patch_loss == "ibot":
            means = all_mean(torch.stack([part["patch_mean"] for part in carry]))
            update_center(self.patch_center, means, self.config.center_momentum)
        if self.queue:
            self.queue.put(gather(torch.cat([part["keys"] for part in carry])))

    def update_teacher(self, step: int) -> None:
        """Move the teacher, unless it was updated before the student."""
        if self.config.teacher != "previous-iteration":
            super().update_teacher(step)


def least_attended(attention: Tensor, numbers: Tensor, num_visible: int, hint: float) -> Tensor:
    """Hide the patches with the highest attention, but for a random hint of them (AttMask-High and -Hint).

    With h patches to hide, the h + s most attended are drawn from, s = `hint` * h: s of these stay visible.

    Args:
        attention: of the teacher's [CLS] token, mean of the heads [..., patches].
        numbers: uniform random numbers [..., patches].
        num_visible: number of patches that stay visible.
        hint: share of the hidden patches in [0, 1]; 0 hides exactly the most attended.

    Returns:
        Indices of the visible patches, int64 [..., num_visible].

    Source: I. Kakogeorgiou et al. 2022 (arXiv:2203.12719), section 3.2.
    """
    hidden = attention.shape[-1] - num_visible
    hints = min(num_visible, round(hint * hidden))
    ranked = attention.argsort(dim=-1)
    visible, candidates = ranked.tensor_split((num_visible - hints,), dim=-1)  # candidates: hidden + hints
    drawn = numbers[..., : hidden + hints].argsort()[..., :hints]
    return torch.cat([visible, candidates.take_along_dim(drawn, dim=-1)], dim=-1)
