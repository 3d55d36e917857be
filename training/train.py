"""The training step, and what a loop calls. They know steps, rates and gradients, and no method by name."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dino_model.runtime.errors import SettingError
from training.distributed import all_mean, any_rank, data_parallel, world
from training.methods.method import Batch, Loss, Method
from training.optim import clip_gradients, set_rates
from training.recipes.recipe import Plan
from training.run.folder import SaveSchedule
from training.run.log import LOOP_METRICS
from training.run.logging import Logger, Observer, Scalar, StepMetrics
from training.step_graph import Gradients, StepGraph

STOP_POLL_STEPS = 50
"""Steps between two exchanges of stop signals among ranks: each one waits for the slowest rank."""


@dataclass(frozen=True)
class Callbacks:
    """Checkpointing, logging, evaluation and stopping during training."""

    checkpoints: SaveSchedule = field(default_factory=SaveSchedule)
    loggers: Sequence[AbstractContextManager[Logger]] = ()
    """Loggers in addition to the run's log."""
    observe: Observer = lambda *_: None
    """Receives the metrics of a step and messages of unreadable images when the device has computed them."""
    eval_hook: Callable[[int], Mapping[str, float]] = lambda _: {}
    """Is called after every step, and may return metrics of the networks."""
    interrupted: Callable[[], bool] = lambda: False
    """If it returns true on any rank, training ends with a checkpoint."""

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
    parallel: nn.Module | None = None,
    scaler: GradScaler | None = None,
    graph: StepGraph | None = None,
) -> StepMetrics:
    """Compute losses, gradients, clipping and update of one step; never wait for the device.

    Args:
        method: Trained method; its teacher, center and queue follow.
        optimizer: Over the method's parameter groups.
        batch: Normalized crops on the device; it is split into `accumulate` micro-batches.
        step: Index into the plan.
        plan: Rates of the step.
        autocast_to: Context of the losses.
        accumulate: Micro-batches.
        parallel: `data_parallel(method, accumulate)`; made for this step by default.
        scaler: Loss scaling in fp16. Where gradients overflow, the update is skipped and the scale lowered.
        graph: Repeats losses and gradients as a CUDA graph; for one micro-batch on one rank.

    Returns:
        StepMetrics of the step.
    """
    set_rates(optimizer, float(plan.lr[step]), float(plan.weight_decay[step]))
    optimizer.zero_grad(set_to_none=True)
    parallel = parallel or data_parallel(method, accumulate)
    scaler = scaler or GradScaler(enabled=False)

    def differentiate(batch: Batch) -> Gradients:
        losses = list[Loss]()
        for number, part in enumerate(batch.split(accumulate), 1):
            exchange: AbstractContextManager = nullcontext()
            if isinstance(parallel, DistributedDataParallel) and number < accumulate:
                exchange = parallel.no_sync()  # ranks exchange the gradients of the last one
            with exchange:
                with autocast_to:
                    losses.append(_check_loss(parallel(part, step), method))
                (scaler.scale(losses[-1].value) * (1 / accumulate)).backward()
        method.after_backward(step)
        scaler.unscale_(optimizer)
        metrics = _mean_logs(losses) | clip_gradients(optimizer.param_groups, plan.clip_grad)
        return Gradients(metrics, [loss.carry for loss in losses])

    metrics, carries = differentiate(batch) if graph is None else graph(differentiate, batch, step)
    scaler.step(optimizer)
    metrics = metrics | _update_scale(scaler, batch.crops.views.device)
    method.after_step(step, carries)
    return StepMetrics(metrics | plan.at(step))


def _check_loss(loss: Loss, method: Method) -> Loss:
    """Raise SettingError for a loss in reduced precision, and for a metric with a name of the loop."""
    if loss.value.dtype in (torch.bfloat16, torch.float16):
        raise SettingError(
            f"the loss of {type(method).__name__} is {loss.value.dtype}, expected torch.float32: compute it "
            "from `losses.full_precision` within torch.autocast(…, enabled=False)"
        )
    if taken := [name for name in loss.logs if LOOP_METRICS.fullmatch(name)]:
        raise SettingError(f"{type(method).__name__} logs {taken[0]!r}, which the loop logs, too: rename it")
    return loss


@torch.no_grad()
def _mean_logs(losses: Sequence[Loss]) -> dict[str, Scalar]:
    """Average the loss and the other metrics over micro-batches and ranks, on the device."""
    table = torch.stack([torch.stack([loss.value, *loss.logs.values()]) for loss in losses])
    return dict(zip(["loss", *losses[0].logs], all_mean(table.mean(dim=0)), strict=True))


def _update_scale(scaler: GradScaler, device: torch.device) -> dict[str, Scalar]:
    """Update the scale of the loss; return it as it was, and whether the step was skipped."""
    if not scaler.is_enabled():
        return {}
    one = torch.ones((), device=device)
    before = scaler.scale(one)
    scaler.update()
    return {"loss_scale": before, "skipped": scaler.scale(one) < before}
