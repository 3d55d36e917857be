"""The training step and loop. They know steps, rates, gradients and files, and no method by name."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache

import torch
from torch.amp import GradScaler
from torch.optim import Optimizer

from dino_model.device import ComputePrecision, autocast
from training.checkpoint import CheckpointWriter
from training.crops import normalize
from training.data import LoadedBatch
from training.distributed import DataParallelLoss, all_mean, any_rank, barrier, rank, world
from training.logging import Logger, MetricLogger, Metrics, Observer, Scalar, json_lines
from training.methods.method import Batch, Loss, Method
from training.optim import clip_grad_per_tensor, gradient_norms, set_rates
from training.recipe import Plan
from training.run import Run

STOP_POLL_STEPS = 50
"""Steps between two exchanges of stop signals among ranks: each one waits for the slowest rank."""


@dataclass(frozen=True)
class ComputeConfig:
    """Device and precision of a step."""

    device: torch.device
    precision: ComputePrecision
    mean: Sequence[float]
    """Mean of the normalization, by channel."""
    std: Sequence[float]
    accumulate: int = 1
    """Micro-batches of a step."""
    scaler: GradScaler = field(init=False)
    """Loss scaling in fp16; disabled otherwise."""

    def __post_init__(self) -> None:
        scaler = GradScaler(self.device.type, enabled=self.precision == "fp16")
        object.__setattr__(self, "scaler", scaler)  # it has a state, the settings are frozen

    def speed(self, images: int, seconds: float, waited: float) -> dict[str, float]:
        """Images per second over all ranks, share of time waiting for data, and peak memory with CUDA."""
        metrics = {"images_per_second": world() * images / seconds, "data_wait": waited / seconds}
        if self.device.type == "cuda":
            metrics["device_memory"] = torch.cuda.max_memory_allocated(self.device)
        return metrics


@dataclass(frozen=True)
class Callbacks:
    """Checkpointing, logging, evaluation and stopping during training."""

    save_every: int = 200
    """Steps between checkpoints; 0: only by time."""
    save_minutes: float = 0.0
    """Minutes between checkpoints; 0: only by steps."""
    milestone_every: int = 5000
    """Steps between checkpoints that stay."""
    keep: int = 0
    """Number of milestones that stay, the newest; 0: all."""
    loggers: Sequence[Logger] = ()
    """Loggers in addition to the run's log."""
    observe: Observer = lambda *_: None
    """Receives the metrics of a step and messages of unreadable images when the device has computed them."""
    eval_hook: Callable[[int], Mapping[str, float]] = lambda _: {}
    """Is called after every step, and may return metrics of the networks."""
    interrupted: Callable[[], bool] = lambda: False
    """Where it returns true on any rank, training ends with a checkpoint."""

    def is_due(self, done: int, seconds: float) -> bool:
        """Test if a checkpoint is due after `done` steps, `seconds` after the last one."""
        by_steps = self.save_every and done % self.save_every == 0
        return bool(by_steps or (self.save_minutes and seconds >= 60 * self.save_minutes))

    def is_stopped(self, done: int, device: torch.device) -> bool:
        """Test if any rank is interrupted; ranks of CUDA devices exchange it every `STOP_POLL_STEPS`."""
        if device.type == "cuda" and world() > 1 and done % STOP_POLL_STEPS:
            return False
        return any_rank(self.interrupted())


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
) -> Metrics:
    """Compute losses, gradients, clipping and update of one step; never wait for the device.

    Args:
        method: Trained method; its teacher, center and queue follow.
        optimizer: Over the method's parameter groups.
        batch: Normalized crops on the device; it is split into `accumulate` micro-batches.
        step: Index into the plan.
        plan: Rates of the step.
        autocast_to: Context of the losses.
        accumulate: Micro-batches.
        parallel: Loss over all ranks. Default: there is one.
        scaler: Loss scaling in fp16. Where gradients overflow, the update is skipped and the scale lowered.

    Returns:
        Metrics of the step.
    """
    set_rates(optimizer, float(plan.lr[step]), float(plan.weight_decay[step]))
    optimizer.zero_grad(set_to_none=True)
    parallel, parts = parallel or DataParallelLoss(method), batch.split(accumulate)
    scaler = scaler or GradScaler(enabled=False)
    losses = [
        parallel.backward(part, step, scaler, 1 / accumulate, last=part is parts[-1], autocast_to=autocast_to)
        for part in parts
    ]
    method.after_backward(step)
    scaler.unscale_(optimizer)
    metrics = mean_logs(losses) | gradient_norms(optimizer.param_groups)
    if plan.clip_grad:
        clip_grad_per_tensor((p for g in optimizer.param_groups for p in g["params"]), plan.clip_grad)
    scaler.step(optimizer)
    metrics |= update_scale(scaler, batch.crops.views.device)
    method.after_step(step, [loss.carry for loss in losses])
    return Metrics(metrics | plan.at(step))


def train(
    method: Method,
    optimizer: Optimizer,
    batches: Iterable[LoadedBatch],
    plan: Plan,
    compute: ComputeConfig,
    *,
    run: Run,
    first_step: int = 0,
    callbacks: Callbacks | None = None,
) -> int:
    """Train from `first_step` to the end of the plan, with checkpoints and a log in `run` by the first rank.

    Returns:
        Number of steps done.

    Raises:
        Diverged: The loss, or a weight of a checkpoint, is not finite.
        OSError: A checkpoint or the log could not be written; the former checkpoint is intact.
    """
    callbacks = callbacks or Callbacks()
    done, first, state = first_step, rank() == 0, (method, optimizer, compute.scaler)
    parallel = DataParallelLoss(method, accumulate=compute.accumulate)
    with (
        CheckpointWriter(run if first else None, callbacks.keep) as writer,
        MetricLogger([json_lines(run.log), *callbacks.loggers] if first else [], callbacks.observe) as log,
    ):
        if first_step == 0:
            writer.save(0, *state, milestone=True)
            writer.wait()  # a full disk is found before the first step
        saved = start = time.perf_counter()
        for step, loaded in enumerate(batches, first_step):
            waited = time.perf_counter() - start
            batch, context = prefetch(loaded, compute), autocast(compute.precision, compute.device)
            metrics = train_step(
                method, optimizer, batch, step, plan, context, compute.accumulate, parallel, compute.scaler
            )
            log.wait()  # for the step before: the host is at most one step ahead
            speed = compute.speed(batch.pictures, time.perf_counter() - start, waited)
            log.add(step, metrics, {**speed, **callbacks.eval_hook(step)}, loaded.broken)
            done = step + 1
            stop = callbacks.is_stopped(done, compute.device)
            milestone = done % callbacks.milestone_every == 0 or done == plan.steps
            if milestone or stop or callbacks.is_due(done, time.perf_counter() - saved):
                log.flush()
                writer.save(done, *state, milestone=milestone)
                saved = time.perf_counter()
            writer.check()
            if stop:
                break
            start = time.perf_counter()  # callbacks and checkpoints do not count as training
    barrier()  # a rank that ends before the last checkpoint is written may have the first one killed
    return done


def prefetch(loaded: LoadedBatch, compute: ComputeConfig) -> Batch:
    """Prepare a batch, on a CUDA device on a side stream while the step before is computed."""
    device = compute.device
    if device.type != "cuda":
        return prepare_batch(loaded, compute)
    current, side = torch.cuda.current_stream(device), _side_stream(device)
    with torch.cuda.stream(side):
        batch = prepare_batch(loaded, compute)
    current.wait_stream(side)
    for tensor in (*batch.crops, batch.labels):
        if tensor is not None:
            tensor.record_stream(current)  # its memory is free again when the step has used it
    return batch


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def prepare_batch(loaded: LoadedBatch, compute: ComputeConfig) -> Batch:
    """Copy a batch to the device, finish its augmentation there, and normalize it to fp32."""
    assert loaded.randomness is not None
    device = compute.device
    labels = None if loaded.labels is None else loaded.labels.to(device, non_blocking=True)
    crops = loaded.finish(device)
    return Batch(normalize(crops, compute.mean, compute.std, device), labels, loaded.randomness)


def mean_logs(losses: Sequence[Loss]) -> dict[str, Scalar]:
    """Average the loss and the other metrics over micro-batches and ranks, on the device."""
    table = torch.stack([torch.stack([loss.value.detach(), *loss.logs.values()]) for loss in losses])
    return dict(zip(["loss", *losses[0].logs], all_mean(table.mean(dim=0)), strict=True))


def update_scale(scaler: GradScaler, device: torch.device) -> dict[str, Scalar]:
    """Update the scale of the loss; return it as it was, and whether the step was skipped."""
    if not scaler.is_enabled():
        return {}
    one = torch.ones((), device=device)
    before = scaler.scale(one)
    scaler.update()
    return {"loss_scale": before, "skipped": scaler.scale(one) < before}
