"""Ranks of a distributed training; without a process group there is one, and a mean over ranks is itself."""

import torch
import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if _initialised() else 0


def world() -> int:
    """Number of processes."""
    return dist.get_world_size() if _initialised() else 1


def all_mean(tensor: Tensor) -> Tensor:
    """Mean of a tensor over all ranks, equal on each; without gradient."""
    if world() == 1:
        return tensor
    total = tensor.detach().clone()
    dist.all_reduce(total)
    return total / world()


def gather(tensor: Tensor) -> Tensor:
    """Tensors of one shape from all ranks, joined along the first axis in the ranks' order; no gradient."""
    if world() == 1:
        return tensor
    parts = [torch.empty_like(tensor) for _ in range(world())]
    dist.all_gather(parts, tensor.detach().contiguous())
    return torch.cat(parts)


def share(tensor: Tensor) -> Tensor:
    """This rank's rows of a tensor that is the same on all ranks; together the ranks have each row once."""
    return tensor[rank() :: world()]


def _initialised() -> bool:
    return dist.is_available() and dist.is_initialized()
