"""Losses and clipped gradients of a step as a CUDA graph: recorded once, then launched as one operation.

The host launches an operation in tens of microseconds, and a step has more than a thousand. A graph repeats
operations, memory and numbers as they were recorded, so its inputs are copied to fixed memory before. The
updates after it (optimizer, teacher, center) are launched as without a graph.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from training.augmentation.crops import Crops
from training.augmentation.randomness import Randomness, copy_to_device
from training.methods.method import Batch, Method
from training.run.logging import Scalar

WARM_UP = 3
"""Steps before the first recording, in which libraries and compiled blocks prepare themselves."""


@dataclass(frozen=True, kw_only=True)
class FixedRandomness(Randomness):
    """Random numbers in fixed memory of a device."""

    numbers: dict[tuple[str, tuple[int, ...]], Tensor] = field(default_factory=dict)
    """Numbers by purpose and shape: those that the loss has asked for."""
    device: torch.device

    def uniform(self, purpose: str, *shape: int) -> Tensor:
        """Numbers as those of `Randomness`, on the device."""
        if (purpose, shape) not in self.numbers:
            self.numbers[purpose, shape] = copy_to_device(super().uniform(purpose, *shape), self.device)
        return self.numbers[purpose, shape]

    def fill(self, randomness: Randomness) -> None:
        """Overwrite all numbers by those of another step."""
        for (purpose, shape), numbers in self.numbers.items():
            numbers.copy_(copy_to_device(randomness.uniform(purpose, *shape), self.device))


class Gradients(NamedTuple):
    """What a step has computed when its parameters have their gradients."""

    metrics: dict[str, Scalar]
    """Scalars of the log by name."""
    carries: list[dict[str, Tensor]]
    """For `Method.after_step`, of every micro-batch."""


class StepGraph:
    """Computes the losses and gradients of steps on one CUDA device, where a method allows it.

    The graph is recorded again when crops have another shape, or a number of the method changes.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batch: Batch | None = None
        self.recorded: tuple[object, ...] = ()
        self.found: Gradients | None = None
        self.gradients: list[tuple[Tensor, Tensor]] = []
        """Parameters and the fixed memory of their gradients."""
        self.calls = 0

    def __call__(self, compute: Callable[[Batch], Gradients], batch: Batch, step: int) -> Gradients:
        """Return what `compute` returns; the next call overwrites its tensors.

        Args:
            compute: Gives parameters their gradients, which are None before.
            batch: On the device.
            step: Index into the plan.
        """
        shapes = tuple(group.shape for group in batch.crops)
        if self.batch is None or shapes != tuple(group.shape for group in self.batch.crops):
            self.batch, self.graph, self.calls = fixed_batch(batch), None, 0
        else:
            fill(self.batch, batch)
        self.calls += 1
        if self.calls <= WARM_UP:
            return compute(self.batch)
        numbers = self.method.graph_numbers(step)
        if self.graph is None or numbers != self.recorded:
            self.record(compute, self.batch)
            self.recorded = numbers or ()
        assert self.graph is not None
        assert self.found is not None
        self.graph.replay()
        for parameter, gradient in self.gradients:
            parameter.grad = gradient
        return self.found

    def record(self, compute: Callable[[Batch], Gradients], batch: Batch) -> None:
        """Record the operations without computing them; memory of a former graph is free before."""
        self.graph, self.found, self.gradients = None, None, []
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # loaders and writers go on
            found = compute(batch)
        self.graph, self.found = graph, found
        self.gradients = [(p, p.grad) for p in self.method.parameters() if p.grad is not None]


def fixed_batch(batch: Batch) -> Batch:
    """Copy a batch to memory that `fill` overwrites."""
    randomness = FixedRandomness(**vars(batch.randomness), device=batch.crops.views.device)
    return replace(batch, crops=Crops(*(group.clone() for group in batch.crops)), randomness=randomness)


def fill(fixed: Batch, batch: Batch) -> None:
    """Overwrite the crops and random numbers of `fixed` by those of `batch`."""
    for place, group in zip(fixed.crops, batch.crops, strict=True):
        place.copy_(group)
    assert isinstance(fixed.randomness, FixedRandomness)
    fixed.randomness.fill(batch.randomness)
