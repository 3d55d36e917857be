"""Interface of a pretraining method: a loss, the updates after a step, and the networks it trains.

The training loop calls a method in this order, once per step:

    batch (in micro-batches) → forward → backward → after_backward → clipping, update → after_step

Teachers, centers, queues and prototypes are state of the method; the loop does not know them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from training.augmentation.crops import Crops
from training.augmentation.randomness import Randomness
from training.methods.config import MethodContext


@dataclass(frozen=True)
class Batch:
    """Input of a method in one step, or in one micro-batch of a step."""

    crops: Crops
    """Normalized fp32 views [views, batch, 3, G, G] and locals [crops, batch, 3, l, l]."""
    labels: Tensor | None
    """Class of each image, int64 [batch]; None for images without labels."""
    randomness: Randomness
    """The only source of random numbers in a loss: stochastic depth, masks, mixing."""
    indices: Tensor | None = None
    """Number of each image in the training images, int64 [batch] on the CPU; None: an artificial batch."""

    @property
    def num_images(self) -> int:
        """Number of images."""
        return self.crops.views.shape[1]

    def split(self, parts: int) -> list["Batch"]:
        """Micro-batches of consecutive images with all their crops; `parts` divides the batch."""
        size = self.num_images // parts
        return [
            self._take(slice(i, i + size), self.randomness.part(i, size))
            for i in range(0, parts * size, size)
        ]

    def every(self, stride: int) -> "Batch":
        """The images whose position in the global batch is a multiple of `stride`, or the last one.

        Micro-batches and ranks keep the images of the undivided batch if `stride` divides their number.
        """
        start = min(-self.randomness.first % stride, self.num_images - 1)
        count = len(range(start, self.num_images, stride))
        chosen = replace(self.randomness.part(start, count), stride=stride)
        return self._take(slice(start, None, stride), chosen)

    def _take(self, images: slice, randomness: Randomness) -> "Batch":
        return Batch(
            Crops(*(group[:, images] for group in self.crops)),
            None if self.labels is None else self.labels[images],
            randomness,
            None if self.indices is None else self.indices[images],
        )


class Loss(NamedTuple):
    """Output of `Method.forward`."""

    value: Tensor
    """Scalar, the mean over the images: the loop divides it by the number of micro-batches."""
    logs: dict[str, Tensor]
    """Scalars to log; the mean over micro-batches is written."""
    carry: dict[str, Tensor]
    """Detached tensors of this micro-batch that `after_step` needs, such as means for a center or keys."""


class Method(nn.Module, ABC):
    """A pretraining method. Its state dict is what a checkpoint holds.

    State other than the weights of its networks (center, queue) is a buffer of the method, or a child module
    without parameters: `--init-from` does not load it.
    """

    networks: ClassVar[tuple[str, ...]] = ("student",)
    """Names of the networks, first the one that the method's paper evaluates."""
    head_only_steps: int = 0
    """Steps at the start in which the backbones do not train (`--head-only-epochs`)."""

    @classmethod
    @abstractmethod
    def from_config(cls, config: Any, context: MethodContext) -> "Method":
        """Build the method of a `MethodConfig` with random weights."""

    def prepare(self, report: Callable[[str], object]) -> None:
        """Compute what the first step needs from the images, and report it; a second call changes nothing."""

    @abstractmethod
    def forward(self, batch: Batch, step: int) -> Loss:
        """Compute the loss of a micro-batch. Changes no state except statistics of batch normalization."""

    def backbones(self) -> dict[str, nn.Module]:
        """Backbones by name, which are probed, saved and loaded later; the first is the default."""
        return {name: getattr(self, name).backbone for name in self.networks}

    def frozen_parameters(self, step: int) -> Iterable[nn.Parameter]:
        """Parameters that the method does not train in this step."""
        return ()

    def graph_numbers(self, step: int) -> tuple[float, ...] | None:
        """Numbers of the host in the loss of this step, which a CUDA graph would repeat.

        None: a graph cannot repeat the loss, because its operations or other numbers change with the step.
        """
        return None

    def after_backward(self, step: int) -> None:
        """Drop gradients of parameters that do not train in this step, before clipping."""
        frozen = list(self.frozen_parameters(step))
        if step < self.head_only_steps:
            frozen += [p for backbone in self.backbones().values() for p in backbone.parameters()]
        for parameter in frozen:
            parameter.grad = None

    def after_step(self, step: int, carry: Sequence[Mapping[str, Tensor]]) -> None:
        """Update the state of the method after the optimizer's step: teacher, center, queue.

        Args:
            step: The step just taken.
            carry: `Loss.carry` of every micro-batch of the step, in the order of the images.
        """
