"""Compile or recompute every block of a backbone. Names of parameters, and so checkpoints, stay."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from timm.models.resnet import ResNet
from torch import nn
from torch.utils.checkpoint import checkpoint

from dino_model.models.backbones import choose_training_attention
from dino_model.runtime.errors import SettingError
from dino_model.runtime.precision import ComputePrecision
from training.methods.method import Method
from training.methods.network import Network, StochasticDepth
from training.one_pass import OnePass


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
        if isinstance(network, Network) and one_pass and not isinstance(network.backbone, ResNet):
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
