"""MoCo-v2: find the other view of an image among many images (X. Chen et al., arXiv:2003.04297, 1911.05722).

Differences from the released code: batch normalization uses the whole batch on all ranks instead of shuffled
parts. Local crops, which MoCo-v2 lacks, are additional queries for the same key.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from training import losses
from training.distributed import gather
from training.methods.config import MethodSchedules
from training.methods.method import Batch, Loss
from training.methods.moco_config import MoCoConfig
from training.methods.network import Network, Queue, StudentTeacher


class MoCo(StudentTeacher):
    """The student encodes queries, the teacher keys; a queue holds the keys of the last batches."""

    networks = ("student", "teacher")

    def __init__(
        self, student: Network, teacher: Network, config: MoCoConfig, schedules: MethodSchedules
    ) -> None:
        """The student is the paper's query encoder, the teacher its momentum encoder."""
        super().__init__(student, teacher, config, schedules)
        self.temperature = config.temperature
        self.queue = Queue(config.queue, config.head.prototypes)

    def forward(self, batch: Batch, step: int) -> Loss:
        """Compute InfoNCE of the first view and the local crops with the second view as key (Algorithm 1)."""
        first, second = batch.crops.views[:1], batch.crops.views[1:]
        with torch.no_grad():
            keys = losses.unit(self.teacher(second)[0])  # [batch, width]
        queries = self.student(first, batch.crops.locals, randomness=batch.randomness)
        # [1 + locals, batch, width] and one key per image
        loss = losses.info_nce(queries, keys, self.temperature, self.queue.vectors)
        return Loss(loss, {"spread": losses.spread(keys)}, {"keys": keys})

    def after_step(self, step: int, carry: Sequence[Mapping[str, Tensor]]) -> None:
        """Put the keys into the queue, which the loss used without them, and update the teacher."""
        self.queue.put(gather(torch.cat([part["keys"] for part in carry])))
        self.ema_update(float(self.schedules.teacher_momentum[step]))
