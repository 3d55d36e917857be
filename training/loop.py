"""The training loop. It knows steps, rates, gradients and files, and no method's name."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import torch
from torch import nn
from torch.amp import GradScaler

from dino_model.device import ComputePrecision, autocast
from training.checkpoint import Saver
from training.crops import Crops, normalise
from training.data import Loaded
from training.distributed import DataParallelLoss, all_mean, any_rank, barrier, rank, world
from training.logs import Diverged, Figures, Journal, JsonLines, Logger, Observer, Scalar
from training.methods.base import Batch, Loss, Method
from training.optim import Optimizer, clip_each, gradient_norms, set_rates
from training.plan import Plan
from training.run import Run


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
    picture_share: float = 0.0
    """Of the device's peak arithmetic, what one picture a second takes; 0: not known."""
    scaler: GradScaler = field(init=False)
    """Of the loss in fp16; else it does nothing."""

    def __post_init__(self) -> None:
        scaler = GradScaler(self.device.type, enabled=self.precision == "fp16")
        object.__setattr__(self, "scaler", scaler)  # it has a state, the settings are frozen

    def clock(self, pictures: int, seconds: float, waited: float) -> dict[str, float]:
        """What a step of this rank that took so long tells of all, and of this rank's device."""
        pace = world() * pictures / seconds
        told = {"images_per_second": pace, "data_wait": waited / seconds}
        if self.device.type == "cuda":
            told["device_memory"] = torch.cuda.max_memory_allocated(self.device)
        if self.picture_share:
            told["utilisation"] = self.picture_share * pace / world()
        return told

    def fetched(self, loaded: Loaded) -> Batch:
        """`normalised`, on a CUDA device beside the step that is being computed."""
        if self.device.type != "cuda":
            return self.normalised(loaded)
        here, beside = torch.cuda.current_stream(self.device), _fetching_stream(self.device)
        with torch.cuda.stream(beside):
            batch = self.normalised(loaded)
        here.wait_stream(beside)
        for tensor in (*batch.crops, batch.labels):
            if tensor is not None:
                tensor.record_stream(here)  # its memory is free again when the step is done with it
        return batch

    def normalised(self, loaded: Loaded) -> Batch:
        """A batch of uint8 crops, as a method takes it: on the device, with its photometry, fp32."""
        batch, crops = loaded.batch, loaded.batch.crops
        labels = None if batch.labels is None else batch.labels.to(self.device, non_blocking=True)
        if loaded.chances is not None and loaded.multi_crop is not None:
            groups = (crops, loaded.chances)
            crops = loaded.multi_crop.finish(
                *(Crops(*(part.to(self.device, non_blocking=True) for part in group)) for group in groups)
            )
        return Batch(normalise(crops, self.mean, self.std, self.device), labels, batch.randomness)


@dataclass(frozen=True)
class Watch:
    """What is saved of a training while it goes on, where it is told, who looks at it, and what ends it."""

    save_every: int = 200
    """Steps between two checkpoints, which are written while training goes on."""
    milestone_every: int = 5000
    """Steps between two checkpoints that stay beside the newest one."""
    keep: int = 0
    """Of these, so many stay, the newest; 0: all."""
    loggers: Sequence[Logger] = ()
    """Where the figures go, beside the run's log."""
    observe: Observer = lambda *_: None
    """Sees what is logged of a step, and what was wrong with unreadable pictures, as soon as the device has
    it: on an accelerator while the next step is computed."""
    look: Callable[[int], Mapping[str, float]] = lambda _: {}
    """Sees the networks after every step, and may give figures of them."""
    interrupted: Callable[[], bool] = lambda: False
    """Where it says so on any rank, training ends after the step at hand, with a checkpoint."""


UNWATCHED = Watch()
"""Checkpoints at the usual steps, and nobody looks."""


def train_step(
    method: Method,
    optimizer: Optimizer,
    batch: Batch,
    step: int,
    plan: Plan,
    autocast_to: AbstractContextManager,
    accumulate: int = 1,
    parallel: DataParallelLoss | None = None,
    scaler: GradScaler | None = None,
) -> Figures:
    """One step: losses in the context `autocast_to`, gradients, clipping, update; returns what to log.

    `parallel` computes the method's loss over all ranks; left out: there is one. With a `scaler` the loss is
    scaled so that fp16 holds its gradients; where it does not, the update is skipped and the scale lowered.
    """
    set_rates(optimizer, float(plan.lr[step]), float(plan.weight_decay[step]))
    optimizer.zero_grad(set_to_none=True)
    parallel, parts = parallel or DataParallelLoss(method), batch.split(accumulate)
    scaler, stepper = scaler or GradScaler(enabled=False), cast(Any, optimizer)
    losses = [
        parallel.backward(part, step, scaler, 1 / accumulate, last=part is parts[-1], autocast_to=autocast_to)
        for part in parts
    ]
    method.after_backward(step)
    scaler.unscale_(stepper)
    logs = mean_logs(losses) | gradient_norms(optimizer.param_groups)
    if plan.clip_grad:
        clip_each((p for group in optimizer.param_groups for p in group["params"]), plan.clip_grad)
    scaler.step(stepper)
    logs |= updated_scale(scaler, batch.crops.views.device)
    method.after_step(step, [loss.kept for loss in losses])
    return Figures(logs | plan.at(step))


def train(
    method: Method,
    optimizer: Optimizer,
    batches: Iterable[Loaded],
    plan: Plan,
    arithmetic: Arithmetic,
    *,
    run: Run,
    first_step: int = 0,
    watch: Watch = UNWATCHED,
) -> int:
    """Train from `first_step` to the end of the plan, with checkpoints and a log in `run`.

    The first rank writes both. Returns the number of steps done.

    Raises:
        Diverged: the loss is no number, or the weights that a checkpoint was to hold are none.
        OSError: a checkpoint or the log could not be written; the former checkpoint is whole.
    """
    done, first, state = first_step, rank() == 0, (method, optimizer, arithmetic.scaler)
    parallel = DataParallelLoss(method)
    with (
        Saver(run if first else None, watch.keep) as saver,
        Journal([JsonLines(run.log), *watch.loggers] if first else [], watch.observe) as journal,
    ):
        if first_step == 0:
            saver.save(0, *state, milestone=True)
            saver.wait()  # a disk without room is known before the first step
        begun = time.perf_counter()
        for step, loaded in enumerate(batches, first_step):
            waited = time.perf_counter() - begun
            batch, context = arithmetic.fetched(loaded), autocast(arithmetic.precision, arithmetic.device)
            figures = train_step(
                method,
                optimizer,
                batch,
                step,
                plan,
                context,
                arithmetic.accumulate,
                parallel,
                arithmetic.scaler,
            )
            journal.wait()
            clock = arithmetic.clock(batch.pictures, time.perf_counter() - begun, waited)
            journal.add(step, figures, {**clock, **watch.look(step)}, loaded.broken)
            done = step + 1
            milestone = done % watch.milestone_every == 0 or done == plan.steps
            stop = any_rank(watch.interrupted(), arithmetic.device)
            if milestone or stop or done % watch.save_every == 0:
                journal.flush()
                _check_finite(method, step)
                saver.save(done, *state, milestone=milestone)
            saver.check()
            if stop:
                break
            # What waits for the next batch counts as training, what watched and saved does not.
            begun = time.perf_counter()
    barrier()  # a rank that ends before the last checkpoint is written may have the first one killed
    return done


def mean_logs(losses: Sequence[Loss]) -> dict[str, Scalar]:
    """The loss and what else is logged, over micro-batches and ranks; still on the device."""
    table = torch.stack([torch.stack([loss.value.detach(), *loss.logs.values()]) for loss in losses])
    return dict(zip(["loss", *losses[0].logs], all_mean(table.mean(dim=0)), strict=True))


def updated_scale(scaler: GradScaler, device: torch.device) -> dict[str, Scalar]:
    """The scale of the loss in this step, and whether the step was skipped, before it changes; or nothing."""
    if not scaler.is_enabled():
        return {}
    one = torch.ones((), device=device)
    before = scaler.scale(one)
    scaler.update()
    return {"loss_scale": before, "skipped": scaler.scale(one) < before}


@cache
def _fetching_stream(device: torch.device) -> torch.cuda.Stream:
    """Where batches are fetched to a device."""
    return torch.cuda.Stream(device)


def _check_finite(method: nn.Module, step: int) -> None:
    """A gradient can overflow under a finite loss; the loss would tell only after the checkpoint."""
    broken = [name for name, tensor in method.state_dict().items() if not tensor.isfinite().all()]
    if broken:
        raise Diverged(f"{len(broken)} tensors, such as {broken[0]}, hold NaN or infinity after step {step}")
