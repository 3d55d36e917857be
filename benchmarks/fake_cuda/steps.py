"""Cost of a training step, counted on the fake device. `count_step` runs in `fake_cuda.process`."""

from typing import NamedTuple
from unittest import mock

from torch.utils.flop_counter import FlopCounterMode

from benchmarks import data
from benchmarks.fake_cuda.device import FakeDevice
from dino_model.runtime.device import ComputePrecision, autocast
from training import one_pass
from training.recipes.recipe import Recipe
from training.session import Session
from training.train import train_step

PRODUCTS = (
    *("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"),
    *("_scaled_dot_product", "_varlen_attn"),
)
"""Beginnings of the names of matrix products, convolutions and attention."""


class StepCost(NamedTuple):
    """Cost of a step with its augmentation."""

    flops: int
    """Floating-point operations of products; a product and a sum are two."""
    traffic: int
    """Bytes that all other operations read and write."""
    operations: int
    """Operations of PyTorch's dispatcher that launch kernels; one of a list of tensors counts once."""
    memory: int
    """Peak in bytes."""
    all_traffic: int
    """Bytes of products, too."""


def count_step(recipe: Recipe, precision: ComputePrecision, **options: bool) -> StepCost:
    """Count the last two steps of a training on one device, with `recipe.batch_size` images.

    `options` are those of `Session`.

    The first one gives the operations of products. It attends to crops of one size at a time: in a call for
    several sizes, the counter takes every crop for the longest.
    """
    with FakeDevice() as device:
        images = data.images(2 * recipe.batch_size)
        session = Session(recipe, images, device="cuda:0", precision=precision, **options)
        last = session.plan.steps - 2  # late steps also train what is frozen at the start
        for step, loaded in enumerate(session.batches(last), last):
            device.reset()
            batch, context = session.prefetch(loaded), autocast(precision, session.device)
            rest = (step, session.plan, context, 1, None, session.scaler)
            if step == last:
                with (
                    FlopCounterMode(display=False) as counter,
                    mock.patch.object(one_pass, "varlen_attn", None),
                ):
                    train_step(session.method, session.optimizer, batch, *rest)
            else:
                train_step(session.method, session.optimizer, batch, *rest)
    traffic = sum(size for name, size in device.traffic.items() if not name.startswith(PRODUCTS))
    counts = device.operations.total(), device.peak, device.traffic.total()
    return StepCost(counter.get_total_flops(), traffic, *counts)
