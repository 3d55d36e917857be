"""Ranks of a distributed training; without a process group there is one.

torchrun, or srun with torchrun's variables, starts the processes. DistributedDataParallel averages the
gradients. A rank has its own consecutive part of every global batch.
"""

import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel

from dino_model.ranks import rank, world

if TYPE_CHECKING:
    from training.methods.method import Batch, Loss, Method


def all_mean(tensor: Tensor) -> Tensor:
    """Mean of a tensor over all ranks, equal on each; without gradient."""
    if world() == 1:
        return tensor
    total = tensor.detach().clone()
    dist.all_reduce(total)
    return total / world()


def any_rank(flag: bool) -> bool:
    """Return on every rank whether `flag` is true on any; the host does not wait for the device."""
    return flag if world() == 1 else bool(all_mean(torch.tensor(float(flag))) > 0)


def barrier() -> None:
    """Wait for all ranks."""
    if world() > 1:
        dist.barrier()


def gather(tensor: Tensor) -> Tensor:
    """Concatenate tensors of one shape along the first axis in the order of the ranks; no gradient."""
    if world() == 1:
        return tensor
    parts = [torch.empty_like(tensor) for _ in range(world())]
    dist.all_gather(parts, tensor.detach().contiguous())
    return torch.cat(parts)


def share(tensor: Tensor) -> Tensor:
    """This rank's rows of a tensor that is equal on all ranks; together the ranks have each row once."""
    return tensor[rank() :: world()]


class GatherOverRanks(torch.autograd.Function):
    """`gather` with gradients for the rows of every rank."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        """Gather the rows of all ranks."""
        ctx.rows = len(tensor)
        return gather(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Sum the gradients of all ranks' losses for this rank's rows."""
        start = rank() * ctx.rows
        return all_mean(gradient)[start : start + ctx.rows] * world()


class BatchNormOverRanks(nn.modules.batchnorm._BatchNorm):
    """Batch normalization over the whole batch of all ranks, on any device.

    torch's SyncBatchNorm does the same on CUDA only. Ranks have batches of one size.
    """

    def forward(self, features: Tensor) -> Tensor:
        """[batch, channels, ...] -> the same shape."""
        if not self.training:
            return super().forward(features)
        axes = [axis for axis in range(features.ndim) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(features.ndim)]
        precise = features.float()
        mean = _mean_with_gradient(precise.mean(axes))
        centered = precise - mean.view(shape)
        variance = _mean_with_gradient(centered.square().mean(axes))
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        count = features.numel() // len(mean) * world()
        self.running_mean.lerp_(mean.detach(), self.momentum or 0.0)
        self.running_var.lerp_(variance.detach() * count / (count - 1), self.momentum or 0.0)
        self.num_batches_tracked += 1
        scale = (variance + self.eps).rsqrt() * self.weight
        return torch.addcmul(self.bias.view(shape), centered, scale.view(shape)).to(features.dtype)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of axes."""


def _mean_with_gradient(tensor: Tensor) -> Tensor:
    """Mean over all ranks through which gradients flow to every rank."""
    gathered: Tensor = GatherOverRanks.apply(tensor[None])
    return gathered.mean(0)


def synchronise_batch_norm(module: nn.Module) -> None:
    """Replace batch normalization by `BatchNormOverRanks`; the weights stay."""
    for name, child in list(module.named_children()):
        synchronise_batch_norm(child)
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            norm = BatchNormOverRanks(child.num_features, child.eps, child.momentum)
            norm.load_state_dict(child.state_dict())
            norm.requires_grad_(child.weight.requires_grad)
            setattr(module, name, norm.to(child.weight.device).train(child.training))


class DataParallelLoss:
    """A method's loss of this rank's images; its gradients become the mean over all ranks.

    Parameters that the method freezes are not reduced: when they change, the gradient buckets are rebuilt.
    """

    def __init__(self, method: "Method", accumulate: int = 1) -> None:
        """With `accumulate` above 1 the graph of the first micro-batch is not that of the last."""
        self.method, self.accumulate = method, accumulate
        self.loss = self._wrap()

    def _wrap(self) -> nn.Module:
        if world() == 1:
            return self.method
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            # Buffers are equal on all ranks. The setting's new name is younger than torch 2.9.
            return DistributedDataParallel(
                self.method,
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
                static_graph=self.accumulate == 1,
            )

    def backward(
        self, batch: "Batch", step: int, scaler: GradScaler, share: float, *, last: bool, autocast_to: Any
    ) -> "Loss":
        """Add the gradients of a micro-batch, scaled by `share`; the `last` reduces them over ranks."""
        if self.method.freeze(step):
            self.loss = self._wrap()
        alone = self.loss.no_sync() if isinstance(self.loss, DistributedDataParallel) and not last else None
        with alone or nullcontext():
            with autocast_to:
                loss: Loss = self.loss(batch, step)
            (scaler.scale(loss.value) * share).backward()
        return loss
