"""What a method of pretraining is to the rest of `training`: a loss, what follows it, and its networks.

The loop goes through these in order, once a step:

    batch (in micro-batches) → training_loss → backward → after_backward → clipping, update → after_step

and never hears of teachers, centers, queues or prototypes: they live in the method.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from dino_model.backbones import BackboneConfig
from training.crops import Crops
from training.optim import ParameterGroup, decay_groups
from training.randomness import Randomness


@dataclass(frozen=True)
class Batch:
    """What a method learns from in one step, or in one of the micro-batches of a step."""

    crops: Crops
    """Normalised fp32 views [views, batch, 3, G, G] and locals [crops, batch, 3, l, l]."""
    labels: Tensor | None
    """Class of each picture, int64 [batch]; None where the pictures have none."""
    randomness: Randomness
    """The only source of chance in a loss: stochastic depth, masks, mixing."""

    @property
    def pictures(self) -> int:
        """How many there are."""
        return self.crops.views.shape[1]

    def split(self, parts: int) -> list["Batch"]:
        """Micro-batches of consecutive pictures with all their crops; `parts` divides the batch."""
        size = self.pictures // parts
        return [
            Batch(
                Crops(*(group[:, i : i + size] for group in self.crops)),
                None if self.labels is None else self.labels[i : i + size],
                self.randomness.part(i, size),
            )
            for i in range(0, parts * size, size)
        ]


class Loss(NamedTuple):
    """What `Method.training_loss` gives."""

    value: Tensor
    """Scalar, the mean over the pictures: the loop divides it by the number of micro-batches."""
    logs: dict[str, Tensor]
    """Scalars to log; the mean over micro-batches is written."""
    kept: dict[str, Tensor]
    """Detached tensors that `after_step` needs of this micro-batch, such as means for a center or keys."""


class Method(nn.Module, ABC):
    """A way to pretrain. `nn.Module` because its state dict is what a checkpoint holds.

    What it remembers beside the weights of its networks (center, queue) is a buffer of its own, or a child
    module without parameters: `--init-from` leaves it behind.
    """

    _frozen: frozenset[nn.Parameter] = frozenset()

    @classmethod
    @abstractmethod
    def from_config(cls, config: Any, backbone: BackboneConfig, schedules: Any, classes: int) -> "Method":
        """Build the method of a `MethodConfig` with fresh weights; `classes` is 0 without labels."""

    @abstractmethod
    def training_loss(self, batch: Batch, step: int) -> Loss:
        """Loss of a micro-batch. Changes no state, but for the statistics of batch normalisation."""

    def frozen_parameters(self, step: int) -> Iterable[nn.Parameter]:
        """Return the parameters that do not train in this step; they need no gradient."""
        return ()

    def freeze(self, step: int) -> bool:
        """Exclude the frozen parameters of this step from gradients; return whether they have changed."""
        frozen = frozenset(self.frozen_parameters(step))
        changed = frozen != self._frozen
        for parameter in self._frozen ^ frozen:
            parameter.requires_grad_(parameter not in frozen)
        self._frozen = frozen
        return changed

    def after_backward(self, step: int) -> None:
        """Between the gradients of the whole step and their clipping, e.g. prototypes held back."""

    @abstractmethod
    def after_step(self, step: int, kept: Sequence[Mapping[str, Tensor]]) -> None:
        """What follows the optimizer's step: teacher, center, queue.

        Args:
            step: the step just taken.
            kept: `Loss.kept` of every micro-batch of the step, in the order of the pictures.
        """

    @abstractmethod
    def backbones(self) -> dict[str, nn.Module]:
        """The networks that are probed, saved by name and loaded later; the first is the default."""

    def parameter_groups(self) -> list[ParameterGroup]:
        """What the optimizer trains: everything that has gradients."""
        return decay_groups(self)

    @staticmethod
    def diagnose(logs: Mapping[str, float]) -> str | None:
        """One sentence on what is wrong and which knob to turn, or None; `logs` is a line of any log."""
        return None
