"""A training step never waits for the device.

Without a GPU the step runs while every read of a value is refused. With a GPU it runs under
`torch.cuda.set_sync_debug_mode("error")`. `tests/cuda` counts copies on a fake device.
"""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dino_model.models.backbones import choose_training_attention
from dino_model.runtime.device import autocast
from tests.training.methods.tiny import BACKBONE, random_batch
from tests.training.runs import METHODS, RECIPE
from training import train
from training.augmentation.crops import Crops
from training.methods.config import MethodContext
from training.methods.method import Batch
from training.optim import create_optimizer, decay_groups
from training.recipes.recipe import OptimizerConfig, Plan


def run_steps(name: str, device: torch.device):
    """Take six steps on noise, as the loop does but for reading the metrics; pause before each."""
    method = METHODS[name]
    if name == "distill":  # tables for a size of views are copied to the device once, which waits
        method = replace(method, view_scales=(1.0,), aligned=0.0)
    recipe = replace(RECIPE, method=method, optimizer=OptimizerConfig(warmup_epochs=0), batch_size=4)
    plan = Plan.of(recipe, 4 * 6)
    method = recipe.method.build(
        MethodContext(BACKBONE, plan.method, 4, device=str(device), precision="bf16")
    ).to(device)
    choose_training_attention(method, device, "bf16")
    optimizer = create_optimizer("adamw", decay_groups(method), device)
    for step in range(plan.steps):
        yield
        batch = random_batch(step=step)
        crops = Crops(*(group.to(device, non_blocking=True) for group in batch.crops))
        batch = Batch(crops, torch.arange(4, device=device), batch.randomness)
        train.train_step(method, optimizer, batch, step, plan, autocast("bf16", device))


class RefuseReads(TorchDispatchMode):
    """Refuse operations whose result, or its shape, the host can only know from the values of a tensor."""

    operations = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        masks = name in ("index", "index_put", "index_put_", "_index_put_impl_") and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if name in self.operations or masks:
            raise AssertionError(f"the host reads a value: {func}")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", METHODS)
def test_train_step_reads_no_value(name):
    steps = run_steps(name, torch.device("cpu"))
    next(steps)
    with RefuseReads():
        list(steps)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", METHODS)
def test_train_step_on_cuda_never_synchronizes(name):
    steps = run_steps(name, torch.device("cuda"))
    next(steps)
    next(steps)  # in the first step cuBLAS and others initialize themselves
    torch.cuda.set_sync_debug_mode("error")
    try:
        list(steps)
    finally:
        torch.cuda.set_sync_debug_mode("default")
