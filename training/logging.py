"""What is told of every step: figures on their way from the device, and where they are written."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

Scalar = Tensor | float
Observer = Callable[[int, dict[str, float], Sequence[str]], object]


class Diverged(RuntimeError):
    """Loss or weights are not numbers any more; the newest checkpoint is from before."""


class Logger(Protocol):
    """Where the figures of a run go."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Write the figures of a step."""

    def close(self) -> None:
        """Nothing more comes."""


class JsonLines:
    """A run's log: one line a step, whole whenever the power goes."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a", encoding="utf-8", buffering=1)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Write a line."""
        self.file.write(json.dumps({"step": step, **figures}) + "\n")

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class Metrics:
    """Scalars of a step, fetched from the device in one transfer that nobody waits for."""

    def __init__(self, scalars: Mapping[str, Scalar]) -> None:
        """Tensors of one device, and numbers, by name."""
        self.scalars = dict(scalars)
        tensors = [value.detach() for value in scalars.values() if isinstance(value, Tensor)]
        self.table = torch.stack([value.to(tensors[0].dtype) for value in tensors])
        self.arrival = None
        if self.table.device.type == "cuda":
            # Only into pinned memory is a copy asynchronous.
            pinned = torch.empty_like(self.table, device="cpu", pin_memory=True)
            self.table = pinned.copy_(self.table, non_blocking=True)
            self.arrival = torch.cuda.Event()
            self.arrival.record()

    def arrived(self) -> bool:
        """Whether `read` would not have to wait."""
        return self.arrival is None or self.arrival.query()

    def wait(self) -> None:
        """Until the device has computed them."""
        if self.arrival is not None:
            self.arrival.synchronize()

    def read(self) -> dict[str, float]:
        """The numbers by their names, in the order given; but for NaN and infinity, which are left out.

        Raises:
            Diverged: the loss is one of these.
        """
        self.wait()
        fetched = iter(self.table.tolist())
        values = {
            name: next(fetched) if isinstance(value, Tensor) else value
            for name, value in self.scalars.items()
        }
        if not math.isfinite(values["loss"]):
            raise Diverged(f"the loss is {values['loss']}")
        return {name: value for name, value in values.items() if math.isfinite(value)}


class MetricLogger:
    """Lines of a run's log. On an accelerator each is written while the next step is computed.

    At the end of its `with` block what still waits is written, unless something went wrong.
    """

    def __init__(self, loggers: Sequence[Logger], observe: Observer) -> None:
        self.loggers, self.observe = loggers, observe
        self.waiting: tuple[int, Metrics, Mapping[str, float], Sequence[str]] | None = None

    def __enter__(self) -> "MetricLogger":
        return self

    def wait(self) -> None:
        """Until the step before is computed: the host is never two ahead."""
        if self.waiting is not None:
            self.waiting[1].wait()

    def add(self, step: int, figures: Metrics, more: Mapping[str, float], broken: Sequence[str]) -> None:
        """Take a step's figures, what else is known of it, and what was wrong with unreadable pictures.

        Raises:
            Diverged: the loss of this step, or of the one before, is no number.
        """
        self.flush()
        self.waiting = (step, figures, more, broken)
        if figures.arrived():
            self.flush()

    def flush(self) -> None:
        """Write what still waits.

        Raises:
            Diverged: its loss is no number.
        """
        if self.waiting is None:
            return
        (step, figures, more, broken), self.waiting = self.waiting, None
        try:
            line = {**figures.read(), **more}
        except Diverged as error:
            raise Diverged(
                f"{error} at step {step}, with learning rate {figures.scalars['lr']:.3g}"
            ) from None
        self.observe(step, line, broken)
        for logger in self.loggers:
            logger.log(step, line)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with ExitStack() as stack:
            for logger in self.loggers:
                stack.callback(logger.close)
            if kind is None:
                self.flush()
