"""The training loop. It knows steps, rates, gradients and files, and no method's name."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dino_model.device import ComputePrecision, autocast
from dino_model.images import IMAGENET_MEAN, IMAGENET_STD
from training.checkpoint import Run
from training.crops import Crops, normalise
from training.data import Batch
from training.optim import Optimizer, ParameterGroup, clip_each, set_rates
from training.schedules import Schedule


class Method(Protocol):
    """A way to learn without labels; networks, teacher, center, queue and prototypes are its own."""

    def training_loss(self, crops: Crops, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Scalar loss of normalised crops, and scalars to log."""

    def parameter_groups(self) -> list[ParameterGroup]:
        """What the optimizer trains, see `optim.decay_groups`."""

    def after_step(self, step: int) -> None:
        """What follows the optimizer's step, such as a moving average."""


@dataclass(frozen=True)
class Rates:
    """Per-step values that the loop itself applies."""

    lr: Schedule
    weight_decay: Schedule
    clip_grad: float
    """Largest gradient norm of a tensor; 0 for no clipping."""


class Diverged(RuntimeError):
    """Loss or weights are not numbers any more; the newest checkpoint is from before."""


def train_step(
    method: Method,
    optimizer: Optimizer,
    crops: Crops,
    step: int,
    rates: Rates,
    autocast_to: AbstractContextManager,
) -> dict[str, float]:
    """One step: loss in the context `autocast_to`, gradients, clipping, update; returns what to log.

    Raises:
        Diverged: the loss is NaN or infinite; nothing was updated.
    """
    set_rates(optimizer, float(rates.lr[step]), float(rates.weight_decay[step]))
    with autocast_to:
        loss, logs = method.training_loss(crops, step)
    names, values = ["loss", *logs], torch.stack([loss.detach(), *logs.values()]).tolist()
    if not math.isfinite(values[0]):
        raise Diverged(f"the loss is {values[0]} at step {step}, with learning rate {rates.lr[step]:.3g}")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if rates.clip_grad:
        clip_each((p for group in optimizer.param_groups for p in group["params"]), rates.clip_grad)
    optimizer.step()
    method.after_step(step)
    return dict(zip(names, values, strict=True))


def train(
    method: Any,
    optimizer: Optimizer,
    batches: Iterable[Batch],
    rates: Rates,
    *,
    run: Run,
    first_step: int,
    device: torch.device,
    precision: ComputePrecision,
    save_every: int,
    milestone_every: int,
    observe: Callable[[int, dict[str, float], Sequence[str]], dict[str, float]],
    interrupted: Callable[[], bool] = lambda: False,
) -> int:
    """Train from `first_step` to the end of the rates, with checkpoints and a log in `run`.

    `observe(step, logs, broken)` sees every step, with what was wrong with unreadable pictures, and may add
    to its line in the log. When `interrupted()` says so, training ends after the step at hand, with a
    checkpoint. Returns the number of steps done.

    Raises:
        Diverged: the loss is no number, or the weights that a checkpoint was to hold are none.
    """
    done, steps = first_step, len(rates.lr)
    if first_step == 0:
        run.save(0, method, optimizer, milestone=True)
    with run.log.open("a", encoding="utf-8", buffering=1) as log:
        for step, batch in enumerate(batches, first_step):
            crops = normalise(batch.crops, IMAGENET_MEAN, IMAGENET_STD, device)
            logs = train_step(method, optimizer, crops, step, rates, autocast(precision, device))
            done = step + 1
            line = {"step": step, **logs, "lr": float(rates.lr[step])} | observe(step, logs, batch.broken)
            log.write(json.dumps(line) + "\n")
            milestone, stop = done % milestone_every == 0 or done == steps, interrupted()
            if milestone or stop or done % save_every == 0:
                _check_finite(method, step)
                run.save(done, method, optimizer, milestone=milestone)
            if stop:
                break
    return done


def _check_finite(method: nn.Module, step: int) -> None:
    """A gradient can overflow under a finite loss; the loss would tell only after the checkpoint."""
    broken = [name for name, tensor in method.state_dict().items() if not tensor.isfinite().all()]
    if broken:
        raise Diverged(f"{len(broken)} tensors, such as {broken[0]}, hold NaN or infinity after step {step}")
