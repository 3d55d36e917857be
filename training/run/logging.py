"""StepMetrics of every step: transfer from the device, and where they are written."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dino_model.runtime.errors import SettingError
from training.run.folder import TENSORBOARD, WANDB_ID, Run

Scalar = Tensor | float
Observer = Callable[[int, dict[str, float], Sequence[str]], object]


class Diverged(RuntimeError):
    """Loss or weights are not finite any more; the newest checkpoint is from before."""


Logger = Callable[[int, Mapping[str, float]], object]
"""Writes the metrics of a step."""


@contextmanager
def json_lines(path: Path) -> Iterator[Logger]:
    """Log of a run: one JSON line per step."""
    with path.open("a", encoding="utf-8", buffering=1) as file:
        yield lambda step, metrics: file.write(json.dumps({"step": step, **metrics}) + "\n")


@contextmanager
def tensorboard(run: Run, config: Mapping[str, Any], first_step: int) -> Iterator[Logger]:
    """Event files in RUN/tensorboard; what an interrupted run wrote from `first_step` on is hidden."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(run.folder / TENSORBOARD), purge_step=first_step) as writer:
        yield lambda step, metrics: [writer.add_scalar(name, v, step) for name, v in metrics.items()]


@contextmanager
def weights_and_biases(run: Run, config: Mapping[str, Any], first_step: int) -> Iterator[Logger]:
    """A run of the project "dino": the one whose identifier is in RUN/wandb.txt, or a new one.

    The package's own variables, such as WANDB_MODE, apply.
    """
    wandb = import_module("wandb")
    name = run.folder / WANDB_ID
    known = name.read_text(encoding="utf-8").strip() if first_step and name.exists() else None
    options = {"project": "dino", "name": run.folder.name, "dir": run.folder, "config": dict(config)}
    try:
        begun: Any = wandb.init(id=known, resume="allow", **options)
    except wandb.Error as error:
        raise SettingError(f"--log wandb: {error}; WANDB_MODE=offline needs no account") from None
    name.write_text(f"{begun.id}\n", encoding="utf-8")
    try:
        yield lambda step, metrics: begun.log(dict(metrics), step=step)
    finally:
        begun.finish()


LOGGERS = {"tensorboard": tensorboard, "wandb": weights_and_biases}
"""Services of --log; each takes the run, its configuration and the first step."""


def copy_to_host(
    tensors: Sequence[Tensor], buffers: list[Tensor] | None = None
) -> tuple[list[Tensor], torch.cuda.Event | None]:
    """Copy tensors to the CPU without waiting for their device.

    Args:
        tensors: On any devices.
        buffers: Former copies, which are overwritten if they have the same shapes and types.

    Returns:
        The copies, and a CUDA event after which they are complete; None: they are.
    """
    cuda = any(tensor.is_cuda for tensor in tensors)
    if buffers is None or [(b.shape, b.dtype) for b in buffers] != [(t.shape, t.dtype) for t in tensors]:
        # Only into pinned memory is a copy asynchronous.
        buffers = [torch.empty_like(tensor, device="cpu", pin_memory=cuda) for tensor in tensors]
    for buffer, tensor in zip(buffers, tensors, strict=True):
        buffer.copy_(tensor, non_blocking=True)
    complete = torch.cuda.Event() if cuda else None
    if complete is not None:
        complete.record()
    return buffers, complete


class StepMetrics:
    """Scalars of a step, copied from the device in one transfer without waiting."""

    def __init__(self, scalars: Mapping[str, Scalar]) -> None:
        """Take tensors of one device, and numbers, by name."""
        self.scalars = dict(scalars)
        tensors = [value.detach() for value in scalars.values() if isinstance(value, Tensor)]
        table = torch.stack([value.to(tensors[0].dtype) for value in tensors])
        (self.table,), self.arrival = copy_to_host([table])

    def has_arrived(self) -> bool:
        """Test if `read` would return at once."""
        return self.arrival is None or self.arrival.query()

    def wait(self) -> None:
        """Wait until the device has computed them."""
        if self.arrival is not None:
            self.arrival.synchronize()

    def read(self) -> dict[str, float]:
        """Numbers by name in the order given, except NaN and infinity, which are left out.

        Raises:
            Diverged: The loss is not finite.
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
    """Writes the metrics of each step; on an accelerator while the next step is computed.

    The end of its `with` block writes what still waits, unless an error ended the block. Every method raises
    Diverged if a loss is not finite.
    """

    def __init__(self, loggers: Sequence[AbstractContextManager[Logger]], observe: Observer) -> None:
        """Open the loggers; the end of the `with` block closes them."""
        self.opened = ExitStack()
        self.loggers = [self.opened.enter_context(logger) for logger in loggers]
        self.observe = observe
        self.waiting: tuple[int, StepMetrics, Mapping[str, float], Sequence[str]] | None = None

    def __enter__(self) -> "MetricLogger":
        return self

    def wait(self) -> None:
        """Wait for the step before: the host is at most one step ahead."""
        if self.waiting is not None:
            self.waiting[1].wait()

    def add(self, step: int, metrics: StepMetrics, more: Mapping[str, float], broken: Sequence[str]) -> None:
        """Take the metrics of a step, further numbers, and messages about unreadable images."""
        self.flush()
        self.waiting = (step, metrics, more, broken)
        if metrics.has_arrived():
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self.waiting is None:
            return
        (step, metrics, more, broken), self.waiting = self.waiting, None
        try:
            line = {**metrics.read(), **more}
        except Diverged as error:
            raise Diverged(
                f"{error} at step {step}, with learning rate {metrics.scalars['lr']:.3g}"
            ) from None
        self.observe(step, line, broken)
        for log in self.loggers:
            log(step, line)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self.opened:
            if kind is None:
                self.flush()
