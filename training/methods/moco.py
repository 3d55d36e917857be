"""MoCo-v2: find a picture's other view among many pictures (X. Chen et al., arXiv:2003.04297, 1911.05722).

What differs from the released code: where a backbone or head has batch normalisation, its statistics are
those of the whole batch on all ranks, instead of shuffled parts of it; local crops, which it does not know,
are further queries for the same key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from training import losses
from training.distributed import gather
from training.methods import diagnosis
from training.methods.base import Batch, Loss, Method, MethodConfig
from training.methods.network import Network
from training.methods.pair import StudentAndTeacher, create_pair
from training.queue import Queue, whole_batches
from training.schedules import Schedule
from training.settings import above, at_least, between, two_views

HEAD = HeadConfig(prototypes=128, layers=2, bottleneck=None, activation="relu")
"""The paper's, of queries and keys."""


@dataclass(frozen=True)
class MoCoSchedules:
    """Per-step values."""

    teacher_momentum: Schedule


class MoCo(StudentAndTeacher):
    """The student encodes queries, the teacher keys; a queue holds the keys of the last batches."""

    networks = ("student", "teacher")

    def __init__(
        self, student: Network, teacher: Network, config: "MoCoConfig", schedules: MoCoSchedules
    ) -> None:
        """The student is the paper's query encoder, the teacher its momentum encoder."""
        super().__init__(student, teacher)
        self.temperature, self.schedules = config.temperature, schedules
        self.queue = Queue(config.queue, config.head.prototypes)

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


@dataclass(frozen=True)
class MoCoConfig(MethodConfig):
    """What is MoCo-v2's own; the defaults are its paper's."""

    name: ClassVar[str] = "moco-v2"
    method: ClassVar[type[Method]] = MoCo

    head: HeadConfig = HEAD
    temperature: float = 0.2
    """That similarities are divided by."""
    teacher_momentum: float = 0.999
    """Of the teacher's moving average, constant."""
    queue: int = 65536
    """Keys of earlier pictures to tell a picture from; a multiple of the batch."""

    def __post_init__(self) -> None:
        above(self, 0, "temperature")
        between(self, 0, 1, "teacher_momentum")
        at_least(self, queue=1)

    def schedules(self, epochs: int, steps_per_epoch: int) -> MoCoSchedules:
        """Momentum is constant."""
        return MoCoSchedules(np.full(epochs * steps_per_epoch, self.teacher_momentum))

    def check(self, batch_size: int, *, accumulate: int, views: int, local_crops: int, classes: int) -> None:
        """A view for the queries and one for the keys, and whole batches in the queue."""
        two_views(self.name, views)
        whole_batches(self.queue, batch_size)

    def build(self, backbone: BackboneConfig, schedules: MoCoSchedules, classes: int) -> MoCo:
        """Student, teacher and a queue of random directions."""
        return MoCo(*create_pair(backbone, self.head), self, schedules)
