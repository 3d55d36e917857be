"""Ranks of a distributed training; without a process group there is one.

torchrun, or srun with torchrun's variables, starts the processes. DistributedDataParallel averages the
gradients. A rank has its own consecutive part of every global batch.
"""

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from dino_model.runtime.ranks import rank, world


class _SumOverRanks(torch.autograd.Function):
    """Sum of a tensor over all ranks; its gradient is the sum of the gradients of all ranks."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        total = tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return sum_with_gradient(gradients[0])


def sum_with_gradient(tensor: Tensor) -> Tensor:
    """Sum of a tensor over all ranks; gradients flow to every rank."""
    total: Tensor = _SumOverRanks.apply(tensor)
    return total


def all_mean(tensor: Tensor) -> Tensor:
    """Mean of a tensor over all ranks, equal on each; without gradient."""
    return tensor if world() == 1 else mean_with_gradient(tensor.detach())


def mean_with_gradient(tensor: Tensor) -> Tensor:
    """Mean of a tensor over all ranks; gradients flow to every rank."""
    return sum_with_gradient(tensor) / world()


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


def gather_with_gradient(tensor: Tensor) -> Tensor:
    """`gather` whose gradients, summed over the losses of all ranks, flow to the rows of every rank."""
    if world() == 1:
        return tensor
    zeros = torch.zeros_like(tensor)
    return sum_with_gradient(torch.cat([tensor if i == rank() else zeros for i in range(world())]))


class BatchNormOverRanks(_BatchNorm):
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
        mean = mean_with_gradient(precise.mean(axes))
        centered = precise - mean.view(shape)
        variance = mean_with_gradient(centered.square().mean(axes))
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


def synchronise_batch_norm(module: nn.Module) -> None:
    """Replace batch normalization by `BatchNormOverRanks`; the weights stay."""
    for child in module.modules():
        if isinstance(child, _BatchNorm):
            child.__class__ = BatchNormOverRanks


def data_parallel(method: nn.Module, accumulate: int = 1) -> nn.Module:
    """Return the loss of this rank's images, whose gradients become the mean over all ranks.

    With `accumulate` above 1 the graph of the first micro-batch is not that of the last.
    """
    if world() == 1:
        return method
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        # Buffers are equal on all ranks. The setting's new name is younger than torch 2.9.
        return DistributedDataParallel(
            method, broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=accumulate == 1
        )
