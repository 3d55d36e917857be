"""SwAV: predict a view's cluster assignment from another view (M. Caron et al., arXiv:2006.09882).

Differences from the released code: codes are computed in fp32 or better; the queue holds images of all ranks,
of which each rank assigns its share.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from training import losses
from training.distributed import gather, rank, world
from training.methods.config import MethodContext, MethodSchedules
from training.methods.method import Batch, Loss, Method
from training.methods.network import Network, Queue, create_network
from training.methods.swav_config import SwAVConfig


class SwAV(Method):
    """SwAV: the prototypes of one network cluster every batch; each view predicts the other's clusters."""

    def __init__(self, student: Network, config: SwAVConfig, schedules: MethodSchedules) -> None:
        """`student` computes features [..., width]; prototypes [K, width] are initialized here."""
        super().__init__()
        self.student, self.config, self.schedules = student, config, schedules
        self.prototypes = nn.Parameter(losses.unit(torch.randn(config.head.prototypes, config.width)))
        self.queue = Queue(config.queue, 2 * config.width) if config.queue else None  # a row: both views

    @classmethod
    def from_config(cls, config: SwAVConfig, context: MethodContext) -> "SwAV":
        """The network up to the bottleneck, prototypes and, if `queue` is set, a queue."""
        features = replace(config.head, prototypes=config.width, bottleneck=None)
        return cls(create_network(context.backbone, features), config, context.schedules)

    def forward(self, batch: Batch, step: int) -> Loss:
        """Compute the cross-entropy of each view's codes and all other crops' predictions (Eq. 1)."""
        features = self.student(*batch.crops, randomness=batch.randomness)
        embeddings = losses.unit(features)  # [2 + locals, batch, width]
        with torch.autocast(embeddings.device.type, enabled=False):
            scores = embeddings @ self.prototypes.T  # [2 + locals, batch, K]
        codes = self.codes(scores[:2])
        loss = losses.multi_crop_cross_entropy(scores, codes, self.config.temperature)
        logs = losses.observe_targets(loss, codes, "code_entropy")
        return Loss(loss, logs, {"embeddings": embeddings[:2].detach()})

    def codes(self, scores: Tensor) -> Tensor:
        """Assign the views' images to prototypes, balanced: scores -> codes [2, batch, K].

        The images of a full queue are assigned along with them, with the prototypes of now.
        """
        batch = scores.shape[1]
        if self.queue and self.queue.full():
            own = self.queue.vectors[rank() :: world()]
            rows = own.unflatten(1, (2, -1)).transpose(0, 1)  # [2, length of this rank, width]
            with torch.autocast(scores.device.type, enabled=False):
                scores = torch.cat([rows @ self.prototypes.T, scores], dim=1)
        assigned = losses.sinkhorn_knopp(scores, self.config.epsilon, self.config.sinkhorn_iterations)
        return assigned[:, -batch:]

    def frozen_parameters(self, step: int) -> Iterable[nn.Parameter]:
        """Freeze the prototypes for the first epochs."""
        return [self.prototypes] if step < self.schedules.frozen_steps else []

    @torch.no_grad()
    def after_step(self, step: int, carry: Sequence[Mapping[str, Tensor]]) -> None:
        """Normalize the prototypes to length 1 and put the views' embeddings into the queue."""
        self.prototypes.copy_(losses.unit(self.prototypes))
        if self.queue and step >= self.schedules.queue_step:
            (part,) = carry  # the batch is undivided, see SwAVConfig.whole_batch
            embeddings = part["embeddings"]  # [2, batch, width]
            self.queue.put(gather(embeddings.transpose(0, 1).flatten(1)))
