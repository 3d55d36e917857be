"""Ranks of a distributed training; without a process group there is one, and a mean over ranks is itself.

torchrun, or srun with torchrun's variables, starts the processes; PyTorch's DistributedDataParallel carries
the gradients. A rank has its own consecutive share of every global batch.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel

from dino_model.errors import EXPECTED, sentence
from dino_model.ranks import rank, world

if TYPE_CHECKING:
    from training.methods.method import Batch, Loss, Method


class LostRank(RuntimeError):
    """Another process of the training ended, or cannot be reached any more."""


@contextmanager
def joined(device: torch.device) -> Iterator[torch.device]:
    """The process group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT tell of; none without them.

    Yields this process's device: with CUDA that of LOCAL_RANK. What ranks but the first print is dropped.

    Raises:
        LostRank: in place of what torch says when another rank is gone, with what that one gave as reason.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    store, number, processes = next(dist.rendezvous("env://"))
    # What torchrun starts again must not meet the addresses of those that are gone.
    store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    cuda = device.type == "cuda"
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",  # tensors of the host never wait for the device
        store=store,
        rank=number,
        world_size=processes,
        device_id=device if cuda else None,
    )
    try:
        with _silent() if rank() else nullcontext():
            yield device
    except EXPECTED as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise LostRank(_reason(store)) from error
        if rank() and not isinstance(error, LostRank):
            with suppress(RuntimeError):  # where the first process, who is to tell it, is gone already
                store.set("ended", f"process {rank()}: {sentence(error)}")
            raise LostRank(sentence(error)) from error
        raise
    finally:
        dist.destroy_process_group()


def _reason(store: dist.Store) -> str:
    """Why another process ended, as far as it could still say; the first, who speaks, keeps the store."""
    told = rank() == 0 and store.check(["ended"])
    return (
        store.get("ended").decode() if told else "another process of the training ended or cannot be reached"
    )


@contextmanager
def _silent() -> Iterator[None]:
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def all_mean(tensor: Tensor) -> Tensor:
    """Mean of a tensor over all ranks, equal on each; without gradient."""
    if world() == 1:
        return tensor
    total = tensor.detach().clone()
    dist.all_reduce(total)
    return total / world()


def any_rank(flag: bool) -> bool:
    """Return on every rank whether `flag` is true on any; through the host, the device is not waited for."""
    if world() == 1:
        return flag
    return bool(all_mean(torch.tensor(float(flag))) > 0)


def barrier() -> None:
    """Until all ranks are here."""
    if world() > 1:
        dist.barrier()


def gather(tensor: Tensor) -> Tensor:
    """Tensors of one shape from all ranks, joined along the first axis in the ranks' order; no gradient."""
    if world() == 1:
        return tensor
    parts = [torch.empty_like(tensor) for _ in range(world())]
    dist.all_gather(parts, tensor.detach().contiguous())
    return torch.cat(parts)


def texts(text: str) -> list[str]:
    """What each rank says, in their order."""
    if world() == 1:
        return [text]
    found: list[str] = [""] * world()
    dist.all_gather_object(found, text)
    return found


def share(tensor: Tensor) -> Tensor:
    """This rank's rows of a tensor that is the same on all ranks; together the ranks have each row once."""
    return tensor[rank() :: world()]


class MeanOverRanks(torch.autograd.Function):
    """Mean of a tensor over all ranks, through which gradients flow to every rank."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        """The mean, equal on all ranks."""
        return all_mean(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Every rank's loss depends on every rank's tensor."""
        return all_mean(gradient)


class GatherOverRanks(torch.autograd.Function):
    """`gather` through which gradients flow to every rank."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        """The rows of all ranks."""
        ctx.rows = len(tensor)
        return gather(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The sum of what all ranks' losses ask of this rank's rows."""
        start = rank() * ctx.rows
        return all_mean(gradient)[start : start + ctx.rows] * world()


class BatchNormOverRanks(nn.modules.batchnorm._BatchNorm):
    """Batch normalisation by the whole batch of all ranks, on any device.

    torch's SyncBatchNorm does the same on CUDA only. Ranks have batches of one size.
    """

    def forward(self, features: Tensor) -> Tensor:
        """[batch, channels, ...] -> the same shape."""
        if not self.training:
            return super().forward(features)
        axes = [axis for axis in range(features.ndim) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(features.ndim)]
        precise = features.float()
        mean = MeanOverRanks.apply(precise.mean(axes))
        centred = precise - mean.view(shape)
        variance = MeanOverRanks.apply(centred.square().mean(axes))
        self._remember(mean.detach(), variance.detach(), features.numel() // len(mean) * world())
        scale = (variance + self.eps).rsqrt() * self.weight
        return torch.addcmul(self.bias.view(shape), centred, scale.view(shape)).to(features.dtype)

    def _remember(self, mean: Tensor, variance: Tensor, count: int) -> None:
        assert self.momentum is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance * count / (count - 1), self.momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked += 1

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of axes."""


def synchronise_batch_norm(module: nn.Module) -> None:
    """Put batch normalisation over all ranks in the place of every rank's own; the weights stay."""
    for name, child in list(module.named_children()):
        synchronise_batch_norm(child)
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            own = BatchNormOverRanks(child.num_features, child.eps, child.momentum)
            own.load_state_dict(child.state_dict())
            own.requires_grad_(child.weight.requires_grad)  # a teacher's stays without
            setattr(module, name, own.to(child.weight.device).train(child.training))


class DataParallelLoss:
    """A method's loss of this rank's images; its gradients become the mean over all ranks.

    Parameters that the method freezes are not reduced: when they change, the gradient buckets are built anew.
    """

    def __init__(self, method: "Method", accumulate: int = 1) -> None:
        """With `accumulate` above 1 the graph of the first micro-batch is not that of the last."""
        self.method, self.accumulate = method, accumulate
        self.loss = self._wrap()

    def _wrap(self) -> nn.Module:
        loss = _TrainingLoss(self.method)
        if world() == 1:
            return loss
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            # Buffers are the same on all ranks. The setting's new name is younger than torch 2.9.
            return DistributedDataParallel(
                loss,
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


class _TrainingLoss(nn.Module):
    """`Method.forward` as the forward pass that DistributedDataParallel asks for."""

    def __init__(self, method: "Method") -> None:
        super().__init__()
        self.method = method

    def forward(self, batch: "Batch", step: int) -> "Loss":
        return self.method(batch, step)
