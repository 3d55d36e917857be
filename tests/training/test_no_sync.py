"""A training step never waits for the device.

Without a GPU the step runs while every read of a value is refused, and a lint searches its source for copies
from or to the host. With a GPU it runs under `torch.cuda.set_sync_debug_mode("error")`.
"""

import ast
import inspect
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dino_model import head
from dino_model.backbones import choose_training_attention
from dino_model.configs import HeadConfig
from dino_model.device import autocast
from tests.training.methods.tiny import BACKBONE, random_batch
from training import losses, optim, prototype_loss, train
from training.crop_config import CropConfig
from training.crops import Crops
from training.methods import ablations, byol, dino, moco, network, supervised, swav
from training.methods.configs import BYOLConfig, MoCoConfig, SupervisedConfig, SwAVConfig
from training.methods.dino_config import DINOConfig
from training.methods.method import Batch, Method
from training.optim import create_optimizer
from training.recipe import OptimizerConfig, Plan, Recipe

HEAD = HeadConfig(16, hidden=8, bottleneck=4)
FLAT = HeadConfig(8, layers=2, hidden=8, bottleneck=None, batch_norm=True)
METHODS = {
    "dino": DINOConfig(HEAD),
    "dino-sinkhorn-masks": DINOConfig(HEAD, teacher_output="sinkhorn-knopp", kept_tokens=0.5),
    "dino-mse": DINOConfig(HEAD, loss="mse"),
    "byol": BYOLConfig(FLAT, predictor=8),
    "moco": MoCoConfig(FLAT, queue=8),
    "swav": SwAVConfig(replace(HEAD, prototypes=12), queue=8, queue_start_epoch=0),
    "supervised": SupervisedConfig(),
}


def prepare(name: str):
    """Plan, and the method on a small ViT."""
    config = METHODS[name]
    crops = CropConfig(32, 16)
    recipe = Recipe(BACKBONE, config, crops, OptimizerConfig(warmup_epochs=0), epochs=2, batch_size=4)
    plan = Plan.of(recipe, 4 * 3)
    return plan, config.build(BACKBONE, plan.method, 4)


def run_steps(plan: Plan, method: Method, device: torch.device, steps: int = 3) -> None:
    """Take steps on noise, as the loop does but for reading the metrics."""
    method = method.to(device)
    choose_training_attention(method, device, "bf16")
    optimizer = create_optimizer("adamw", method.parameter_groups(), device)
    for step in range(steps):
        batch = random_batch(step=step)
        crops = Crops(*(group.to(device, non_blocking=True) for group in batch.crops))
        batch = Batch(crops, torch.arange(4, device=device), batch.randomness)
        train.train_step(method, optimizer, batch, step, plan, autocast("bf16", device))


class ValueReadError(AssertionError):
    """The host asked for a value that a device would have to compute first."""


class RefuseReads(TorchDispatchMode):
    """Refuse operations whose result, or its shape, the host can only know from the values of a tensor."""

    operations = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        masks = name in ("index", "index_put", "index_put_", "_index_put_impl_") and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if name in self.operations or masks:
            raise ValueReadError(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", METHODS)
def test_train_step_reads_no_value(name):
    plan, method = prepare(name)
    with RefuseReads():
        run_steps(plan, method, torch.device("cpu"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", METHODS)
def test_train_step_on_cuda_never_synchronizes(name):
    device = torch.device("cuda")
    plan, method = prepare(name)
    run_steps(plan, method, device, steps=1)  # cuBLAS and others initialize themselves
    torch.cuda.set_sync_debug_mode("error")
    try:
        run_steps(plan, method, device)
    finally:
        torch.cuda.set_sync_debug_mode("default")


MODULES = [head, losses, optim, prototype_loss, network, byol, moco, swav, supervised]
MODULES += [dino, ablations, train]
FORBIDDEN = {
    "item",
    "tolist",
    "nonzero",
    "new_tensor",
    "cpu",
    "numpy",
    "masked_select",
    "unique",
    "synchronize",
}
"""Methods that copy between host and device, or wait for a result."""


def synchronizing_calls(module: ModuleType) -> list[str]:
    """Calls in a module's source that may wait for the device, with their lines."""
    found = []
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, name = ast.unparse(node.func.value), node.func.attr
        copies = name == "to" and any(word in ast.unparse(node) for word in ("device", ".index"))
        blocking = copies and "non_blocking=True" not in ast.unparse(node)
        if name in FORBIDDEN or (owner, name) == ("torch", "tensor") or blocking:
            found.append(f"{module.__name__}:{node.lineno} {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_source_of_the_step_has_no_synchronizing_call(module):
    assert synchronizing_calls(module) == []
