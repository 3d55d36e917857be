"""Prepare a training: checks on all ranks, and the method on its device, in its precision, over all ranks.

Blocks that are compiled or recomputed keep the names of their parameters, and so checkpoints.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from timm.models.resnet import ResNet
from torch import nn
from torch.utils.checkpoint import checkpoint

from dino_model.data.collection import Images
from dino_model.models.backbones import choose_training_attention
from dino_model.runtime.device import ComputePrecision, set_tensor_float32
from dino_model.runtime.errors import SettingError
from dino_model.runtime.ranks import gather_objects
from training.distributed import synchronise_batch_norm, world
from training.methods.config import MethodContext
from training.methods.method import Method
from training.methods.network import Network, StochasticDepth
from training.one_pass import OnePass
from training.recipes.recipe import Plan, Recipe


def prepare_model(
    recipe: Recipe,
    plan: Plan,
    images: Images,
    *,
    seed: int,
    device: torch.device,
    precision: ComputePrecision,
    compile: bool = False,
    checkpoint_activations: bool = False,
) -> Method:
    """Build a recipe's method and prepare it for training.

    Args:
        recipe, plan, images: As in `training.session.Session`.
        seed: Of the weights; torch's global generator keeps its state.
        device: Of the networks.
        precision: Of the products outside of the loss.
        compile, checkpoint_activations: As in `prepare_networks`.

    Returns:
        The method on the device, with batch normalization over all ranks.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        context = MethodContext(
            recipe.backbone,
            plan.method,
            num_classes(images),
            images,
            recipe.mean,
            recipe.std,
            size=recipe.crops.global_size,
            device=str(device),
            precision=precision,
        )
        method: Method = recipe.method.build(context)
    method.head_only_steps = round(recipe.head_only_epochs * plan.steps_per_epoch)
    method.to(device)
    if recipe.resnet:
        method.to(memory_format=torch.channels_last)
    set_tensor_float32(precision)
    if world() > 1 and device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(method)
    elif world() > 1:
        synchronise_batch_norm(method)
    prepare_networks(
        method, device, precision, compile=compile, checkpoint_activations=checkpoint_activations
    )
    return method


def num_classes(images: Images) -> int:
    """Count the classes of training images; 0: they have no labels."""
    return 0 if images.labels is None else len(images.classes)


def check_ranks(what: str, own: str) -> None:
    """Raise SettingError where ranks have other images or settings than the first one."""
    first, *others = gather_objects(own)
    for number, other in enumerate(others, 1):
        if other != first:
            raise SettingError(
                f"the processes have different {what}: process 0 {first}, process {number} {other}"
            )


def check_batch(recipe: Recipe, accumulate: int, classes: int) -> None:
    """Raise SettingError for a batch that cannot be split so, or that the method cannot use."""
    own = recipe.batch_size // world()
    if recipe.batch_size % world():
        raise SettingError(f"--batch-size is {recipe.batch_size}, no multiple of the {world()} processes")
    if not 1 <= accumulate <= own or own % accumulate:
        raise SettingError(f"--accumulate is {accumulate}, expected a divisor of {own} images per process")
    recipe.method.check(recipe.crops, recipe.batch_size, accumulate, classes)
    if recipe.batch_norm and accumulate > 1:
        raise SettingError(
            "batch normalization needs the whole batch at once, and a ResNet or --batch-norm has it: "
            f"leave out --accumulate {accumulate}"
        )
    if recipe.batch_norm and recipe.batch_size < 2:
        raise SettingError("batch normalization needs 2 images or more at once: raise --batch-size")


def prepare_networks(
    method: Method,
    device: torch.device,
    precision: ComputePrecision,
    *,
    compile: bool = False,
    checkpoint_activations: bool = False,
) -> bool:
    """Choose how networks compute in a training step.

    Args:
        method: The method, on its device.
        device, precision: Of the step.
        compile: Compile every block.
        checkpoint_activations: Compute every block again in the backward pass.

    Returns:
        True if crops of all sizes share one pass.
    """
    choose_training_attention(method, device, precision)
    one_pass = None
    if device.type == "cuda" and precision != "fp32":  # products in fp32 gain nothing
        one_pass = OnePass(compile=compile, recompute=checkpoint_activations)
    done = set[nn.Module]()
    for network in method.modules():
        if isinstance(network, Network) and not isinstance(network.backbone, ResNet):
            # Crops are multiples of a patch. timm would copy them, even to pad them by nothing.
            embedding: Any = network.backbone.patch_embed
            embedding.dynamic_img_pad = False
            if one_pass:
                network.one_pass = one_pass
                done.add(network.backbone)
    for backbone in method.backbones().values():
        if compile and backbone not in done:
            compile_blocks(backbone)
        if checkpoint_activations and backbone not in done:
            recompute_blocks(backbone)
    return bool(done)


def compile_blocks(backbone: nn.Module, backend: str | Callable[..., Any] = "inductor") -> None:
    """Compile the forward pass of every block for training; similar blocks share one function.

    Shapes are static: every training step has the same crop sizes and batch size. A block in evaluation mode
    runs eagerly, so that a probe with other batch sizes compiles nothing.
    """
    for block in _blocks(backbone):
        compiled = torch.compile(block.forward, backend=backend, dynamic=False)
        block.forward = partial(_in_training, block, block.forward, compiled)


def recompute_blocks(backbone: nn.Module) -> None:
    """Keep only the input of every trained block, and compute the block again in the backward pass.

    Raises:
        SettingError: Blocks with batch normalization, whose statistics would be updated twice.
    """
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in backbone.modules()):
        raise SettingError("--checkpoint-activations is for ViTs: a ResNet's statistics would move twice")
    for block in _blocks(backbone):
        if any(parameter.requires_grad for parameter in block.parameters()):
            depths = [module for module in block.modules() if isinstance(module, StochasticDepth)]
            block.forward = partial(_recompute, block.forward, depths)


def _blocks(backbone: nn.Module) -> list[Any]:
    if isinstance(backbone, ResNet):
        return [block for stage in range(1, 5) for block in getattr(backbone, f"layer{stage}")]
    return list(backbone.blocks)  # type: ignore[arg-type]


def _in_training(
    block: nn.Module, eager: Callable[..., Any], compiled: Callable[..., Any], *inputs: Any, **options: Any
) -> Any:
    return (compiled if block.training else eager)(*inputs, **options)


def _recompute(
    forward: Callable[..., Any], depths: Sequence[StochasticDepth], *inputs: Any, **options: Any
) -> Any:
    factors = [depth.factors for depth in depths]

    def compute(*inputs: Any, **options: Any) -> Any:
        for depth, of_pass in zip(depths, factors, strict=True):
            depth.factors = of_pass  # a later group of crops has set its own
        return forward(*inputs, **options)

    if not torch.is_grad_enabled():
        return forward(*inputs, **options)
    return checkpoint(compute, *inputs, use_reentrant=False, preserve_rng_state=False, **options)
