"""SwAV: predict a view's cluster assignment from another view (M. Caron et al., arXiv:2006.09882).

What differs from the released code: assignments are made in fp32 or better; the queue holds pictures of all
ranks, of which each assigns its share.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from dino_model.backbones import BackboneConfig
from dino_model.errors import SettingError
from dino_model.head import HeadConfig
from training import losses, targets
from training.distributed import gather, share
from training.methods import diagnosis
from training.methods.base import Batch, Loss, Method, MethodConfig
from training.methods.network import Network, create_network
from training.queue import Queue, whole_batches
from training.settings import above, at_least, no_longer_than, two_views

HEAD = HeadConfig(prototypes=3000, layers=2, bottleneck=128, batch_norm=True, activation="relu")
"""The paper's; its prototypes are compared with the bottleneck."""


@dataclass(frozen=True)
class SwAVSchedules:
    """When phases begin and end, in steps."""

    frozen_steps: int
    """How long the prototypes stay as they were drawn."""
    queue_step: int
    """When the queue begins to fill."""


class SwAV(Method):
    """One network; its prototypes cluster every batch online, and views predict each other's clusters."""

    def __init__(self, student: Network, config: "SwAVConfig", schedules: SwAVSchedules) -> None:
        """`student` gives features [..., width]; prototypes [K, width] are drawn here."""
        super().__init__()
        self.student, self.config, self.schedules = student, config, schedules
        self.prototypes = nn.Parameter(losses.unit(torch.randn(config.head.prototypes, config.width)))
        self.queue = Queue(config.queue, 2 * config.width) if config.queue else None  # a row: both views

    def training_loss(self, batch: Batch, step: int) -> Loss:
        """Cross-entropy of every view's codes and all other crops' predictions, the mean over pairs (Eq. 1).

        To log: entropy of the codes and its bound, and their divergence from the predictions.
        """
        features = self.student(*batch.crops, randomness=batch.randomness)
        embeddings = losses.unit(features)  # [2 + locals, batch, width]
        with torch.autocast(embeddings.device.type, enabled=False):
            scores = embeddings @ self.prototypes.T  # [2 + locals, batch, K]
        codes = self.codes(scores[:2])
        loss = losses.multi_crop_cross_entropy(scores, codes, self.config.temperature)
        entropy = losses.entropy(codes)
        logs = {
            "code_entropy": entropy,
            "kl": loss.detach() - entropy,
            "ln_k": torch.tensor(math.log(len(self.prototypes)), device=loss.device),
        }
        return Loss(loss, logs, {"embeddings": embeddings[:2].detach()})

    def codes(self, scores: Tensor) -> Tensor:
        """Balanced assignment of the views' pictures to prototypes: scores -> codes [2, batch, K].

        A full queue's pictures are assigned along with them, with the prototypes as they are now.
        """
        batch = scores.shape[1]
        if self.queue and self.queue.full():
            earlier = share(self.queue.vectors).unflatten(1, (2, -1)).transpose(0, 1)  # [2, length, width]
            with torch.autocast(scores.device.type, enabled=False):
                scores = torch.cat([earlier @ self.prototypes.T, scores], dim=1)
        assigned = targets.sinkhorn_knopp(scores, self.config.epsilon, self.config.sinkhorn_iterations)
        return assigned[:, -batch:]

    def after_backward(self, step: int) -> None:
        """The prototypes stay as they were drawn for the first epochs."""
        if step < self.schedules.frozen_steps:
            self.prototypes.grad = None

    @torch.no_grad()
    def after_step(self, step: int, kept: Sequence[Mapping[str, Tensor]]) -> None:
        """The prototypes go back to length 1; the views' embeddings join the queue."""
        self.prototypes.copy_(losses.unit(self.prototypes))
        if self.queue and step >= self.schedules.queue_step:
            embeddings = torch.cat([part["embeddings"] for part in kept], dim=1)  # [2, batch, width]
            self.queue.put(gather(embeddings.transpose(0, 1).flatten(1)))

    def backbones(self) -> dict[str, nn.Module]:
        """There is only one."""
        return {"student": self.student.backbone}

    @staticmethod
    def diagnose(logs: Mapping[str, float]) -> str | None:
        """Name the collapse and the likely knob."""
        if logs.get("kl", 1.0) >= diagnosis.COLLAPSED_KL:
            return None
        return (
            f"collapse: the codes hardly depend on the picture (entropy {logs['code_entropy']:.3f} of "
            f"{logs['ln_k']:.3f}, KL {logs['kl']:.4f}); lower --epsilon or --lr, or use fewer --prototypes"
        )


@dataclass(frozen=True)
class SwAVConfig(MethodConfig):
    """What is SwAV's own; the defaults are its paper's."""

    name: ClassVar[str] = "swav"
    method: ClassVar[type[Method]] = SwAV

    head: HeadConfig = HEAD
    temperature: float = 0.1
    """That scores are divided by in predictions."""
    epsilon: float = 0.05
    """That scores are divided by in codes: Sinkhorn-Knopp's regularisation."""
    sinkhorn_iterations: int = 3
    """Of balancing the codes over the batch."""
    freeze_last_layer_epochs: int = 1
    """Epochs during which the prototypes do not train."""
    queue: int = 0
    """Earlier pictures that are clustered along with a small batch, a multiple of it; 0 for none."""
    queue_start_epoch: int = 15
    """Epochs before the queue begins to fill."""

    def __post_init__(self) -> None:
        above(self, 0, "temperature", "epsilon")
        at_least(self, sinkhorn_iterations=1, freeze_last_layer_epochs=0, queue=0, queue_start_epoch=0)
        if self.head.bottleneck is None:
            raise SettingError(
                "swav compares prototypes with the l2-normalised bottleneck: pass --bottleneck"
            )

    @property
    def width(self) -> int:
        """Of the features that are compared with prototypes."""
        return self.head.bottleneck or 0

    def schedules(self, epochs: int, steps_per_epoch: int) -> SwAVSchedules:
        """Phases in steps."""
        no_longer_than(epochs, self, "freeze_last_layer_epochs")
        if self.queue and self.queue_start_epoch >= epochs:
            raise SettingError(
                f"--queue-start-epoch is {self.queue_start_epoch}, but training ends after {epochs} epochs: "
                "the queue would never begin; lower it or pass --queue 0"
            )
        return SwAVSchedules(
            self.freeze_last_layer_epochs * steps_per_epoch, self.queue_start_epoch * steps_per_epoch
        )

    def check(self, batch_size: int, *, accumulate: int, views: int, local_crops: int, classes: int) -> None:
        """Two views; codes are balanced over the whole batch; whole batches in the queue."""
        two_views(self.name, views)
        if accumulate > 1:
            raise SettingError(
                f"swav balances its codes over the whole batch at once: leave out --accumulate {accumulate}"
            )
        if self.queue:
            whole_batches(self.queue, batch_size)

    def build(self, backbone: BackboneConfig, schedules: SwAVSchedules, classes: int) -> SwAV:
        """The network up to the bottleneck, prototypes and, where asked for, a queue."""
        features = replace(self.head, prototypes=self.width, bottleneck=None)
        return SwAV(create_network(backbone, features), self, schedules)
