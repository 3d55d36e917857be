"""The training loop. It knows steps, rates, gradients and files, and no method's name."""

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from dino_model.device import ComputePrecision, autocast
from training.checkpoint import Run, Saver
from training.crops import Crops, MultiCrop, normalise
from training.data import Loaded
from training.distributed import DataParallelLoss, all_mean, any_rank, barrier, rank, world
from training.methods.base import Batch, Loss, Method
from training.optim import Optimizer, clip_each, set_rates
from training.plan import Plan


class Diverged(RuntimeError):
    """Loss or weights are not numbers any more; the newest checkpoint is from before."""


@dataclass(frozen=True)
class Arithmetic:
    """Where and how a step is computed."""

    device: torch.device
    precision: ComputePrecision
    mean: Sequence[float]
    """Of the normalisation, by channel."""
    std: Sequence[float]
    accumulate: int = 1
    """Micro-batches of a step."""

    cutter: MultiCrop | None = None
    """Who knows what flips and photometry are left to the device."""

    def normalised(self, loaded: Loaded) -> Batch:
        """A batch of uint8 crops, as a method takes it: on the device, with its photometry, fp32."""
        batch, crops = loaded.batch, loaded.batch.crops
        labels = None if batch.labels is None else batch.labels.to(self.device, non_blocking=True)
        if loaded.chances is not None and self.cutter is not None:
            groups = (crops, loaded.chances)
            crops = self.cutter.finish(
                *(Crops(*(part.to(self.device, non_blocking=True) for part in group)) for group in groups)
            )
        return Batch(normalise(crops, self.mean, self.std, self.device), labels, batch.randomness)


def train_step(
    method: Method,
    optimizer: Optimizer,
    batch: Batch,
    step: int,
    plan: Plan,
    autocast_to: AbstractContextManager,
    accumulate: int = 1,
    parallel: DataParallelLoss | None = None,
) -> dict[str, float]:
    """One step: losses in the context `autocast_to`, gradients, clipping, update; returns what to log.

    `parallel` computes the method's loss over all ranks; left out: there is one.

    Raises:
        Diverged: the loss is NaN or infinite; nothing was updated.
    """
    set_rates(optimizer, float(plan.lr[step]), float(plan.weight_decay[step]))
    optimizer.zero_grad(set_to_none=True)
    parallel, parts = parallel or DataParallelLoss(method), batch.split(accumulate)
    losses = [
        parallel.backward(part, step, 1 / accumulate, last=part is parts[-1], autocast_to=autocast_to)
        for part in parts
    ]
    logs = mean_logs(losses)
    if not math.isfinite(logs["loss"]):
        raise Diverged(f"the loss is {logs['loss']} at step {step}, with learning rate {plan.lr[step]:.3g}")
    method.after_backward(step)
    if plan.clip_grad:
        clip_each((p for group in optimizer.param_groups for p in group["params"]), plan.clip_grad)
    optimizer.step()
    method.after_step(step, [loss.kept for loss in losses])
    return logs | plan.at(step)


def train(
    method: Method,
    optimizer: Optimizer,
    batches: Iterable[Loaded],
    plan: Plan,
    arithmetic: Arithmetic,
    *,
    run: Run,
    first_step: int = 0,
    save_every: int = 200,
    milestone_every: int = 5000,
    keep: int = 0,
    observe: Callable[[int, dict[str, float], Sequence[str]], dict[str, float]] = lambda *_: {},
    interrupted: Callable[[], bool] = lambda: False,
) -> int:
    """Train from `first_step` to the end of the plan, with checkpoints and a log in `run`.

    `observe(step, logs, broken)` sees every step, with what was wrong with unreadable pictures, and may add
    to its line in the log. When `interrupted()` says so on any rank, training ends after the step at hand,
    with a checkpoint. Checkpoints are written while training goes on, by the first rank, which also writes
    the log; the newest `keep` milestones stay, 0 for all. Returns the number of steps done.

    Raises:
        Diverged: the loss is no number, or the weights that a checkpoint was to hold are none.
        OSError: a checkpoint or the log could not be written; the former checkpoint is whole.
    """
    done, first = first_step, rank() == 0
    parallel = DataParallelLoss(method)
    path = run.log if first else Path(os.devnull)
    with Saver(run if first else None, keep) as saver:
        if first_step == 0:
            saver.save(0, method, optimizer, milestone=True)
            saver.wait()  # a disk without room is known before the first step
        with path.open("a", encoding="utf-8", buffering=1) as log:
            begun = time.perf_counter()
            for step, loaded in enumerate(batches, first_step):
                context = autocast(arithmetic.precision, arithmetic.device)
                batch = arithmetic.normalised(loaded)
                logs = train_step(
                    method, optimizer, batch, step, plan, context, arithmetic.accumulate, parallel
                )
                logs["images_per_second"] = world() * batch.pictures / (time.perf_counter() - begun)
                done = step + 1
                log.write(json.dumps({"step": step} | logs | observe(step, logs, loaded.broken)) + "\n")
                milestone = done % milestone_every == 0 or done == plan.steps
                stop = any_rank(interrupted(), arithmetic.device)
                if milestone or stop or done % save_every == 0:
                    _check_finite(method, step)
                    saver.save(done, method, optimizer, milestone=milestone)
                saver.check()
                if stop:
                    break
                # What waits for the next batch counts as training, what watched and saved does not.
                begun = time.perf_counter()
    barrier()  # a rank that ends before the last checkpoint is written may have the first one killed
    return done


def mean_logs(losses: Sequence[Loss]) -> dict[str, float]:
    """The loss and what else is logged, over micro-batches and ranks: one transfer from the device."""
    table = torch.stack([torch.stack([loss.value.detach(), *loss.logs.values()]) for loss in losses])
    return dict(zip(["loss", *losses[0].logs], all_mean(table.mean(dim=0)).tolist(), strict=True))


def _check_finite(method: nn.Module, step: int) -> None:
    """A gradient can overflow under a finite loss; the loss would tell only after the checkpoint."""
    broken = [name for name, tensor in method.state_dict().items() if not tensor.isfinite().all()]
    if broken:
        raise Diverged(f"{len(broken)} tensors, such as {broken[0]}, hold NaN or infinity after step {step}")
