"""MoCo-v2: find a picture's other view among many pictures (X. Chen et al., arXiv:2003.04297, 1911.05722).

What differs from the released code: where a backbone or head has batch normalisation, its statistics are
those of the whole batch on all ranks, instead of shuffled parts of it; local crops, which it does not know,
are further queries for the same key.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dino_model.backbones import BackboneConfig
from training import losses
from training.distributed import gather
from training.methods import diagnosis
from training.methods.base import Batch, Loss
from training.methods.configs import MoCoConfig, MoCoSchedules
from training.methods.network import Network
from training.methods.pair import StudentAndTeacher, create_pair
from training.queue import Queue


class MoCo(StudentAndTeacher):
    """The student encodes queries, the teacher keys; a queue holds the keys of the last batches."""

    networks = ("student", "teacher")

    def __init__(
        self, student: Network, teacher: Network, config: MoCoConfig, schedules: MoCoSchedules
    ) -> None:
        """The student is the paper's query encoder, the teacher its momentum encoder."""
        super().__init__(student, teacher)
        self.temperature, self.schedules = config.temperature, schedules
        self.queue = Queue(config.queue, config.head.prototypes)

    @classmethod
    def from_config(
        cls, config: MoCoConfig, backbone: BackboneConfig, schedules: MoCoSchedules, classes: int
    ) -> "MoCo":
        """Student, teacher and a queue of random directions."""
        return cls(*create_pair(backbone, config.head), config, schedules)

    def training_loss(self, batch: Batch, step: int) -> Loss:
        """InfoNCE of the first view and the local crops against the second view's key (Algorithm 1).

        To log: how far the keys of different pictures are spread.
        """
        first, second = batch.crops.views[:1], batch.crops.views[1:]
        with torch.no_grad():
            keys = losses.unit(self.teacher(second)[0])  # [batch, width]
        queries = self.student(first, batch.crops.locals, randomness=batch.randomness)
        # [1 + locals, batch, width] and one key for each picture
        loss = losses.info_nce(queries, keys, self.temperature, self.queue.vectors)
        return Loss(loss, {"spread": losses.spread(keys)}, {"keys": keys})

    def after_step(self, step: int, kept: Sequence[Mapping[str, Tensor]]) -> None:
        """The keys join the queue, which the loss saw without them; the teacher follows the student."""
        self.queue.put(gather(torch.cat([part["keys"] for part in kept])))
        self.follow(float(self.schedules.teacher_momentum[step]))

    @staticmethod
    def diagnose(logs: Mapping[str, float]) -> str | None:
        """Name the collapse and the likely knob."""
        return diagnosis.sameness(logs, "lower --lr or raise --teacher-momentum")
