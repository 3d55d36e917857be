"""What can be done to every block of a backbone, one by one: compile it, forget what it computed until asked.

A block keeps its place and its parameters their names: checkpoints know nothing of it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from timm.models.resnet import ResNet
from torch import nn
from torch.utils.checkpoint import checkpoint

from dino_model.errors import SettingError
from training.methods.network import StochasticDepth


def blocks_of(backbone: nn.Module) -> list[Any]:
    """A ViT's blocks, or a ResNet's."""
    if isinstance(backbone, ResNet):
        return [block for stage in range(1, 5) for block in getattr(backbone, f"layer{stage}")]
    return list(backbone.blocks)  # type: ignore[arg-type]


def compile_blocks(backbone: nn.Module, backend: str | Callable[..., Any] = "inductor") -> None:
    """Compile the forward pass of every block for training; similar blocks share one function.

    Shapes are static: every training step has the same crop sizes and batch size. A block in evaluation mode
    runs eagerly, so that a probe with other batch sizes compiles nothing.
    """
    for block in blocks_of(backbone):
        block.forward = _compiled_in_training(
            block, torch.compile(block.forward, backend=backend, dynamic=False)
        )


def _compiled_in_training(block: nn.Module, compiled: Callable[..., Any]) -> Callable[..., Any]:
    eager = block.forward

    def forward(*inputs: Any, **options: Any) -> Any:
        return (compiled if block.training else eager)(*inputs, **options)

    return forward


def recompute_blocks(backbone: nn.Module) -> None:
    """Keep only the input of every block that is trained, and compute it again in the backward pass.

    Losses and gradients stay the same; every block is computed once more than else.

    Raises:
        SettingError: blocks with batch normalisation, whose statistics would move twice.
    """
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in backbone.modules()):
        raise SettingError("--checkpoint-activations is for ViTs: a ResNet's statistics would move twice")
    for block in blocks_of(backbone):
        if any(parameter.requires_grad for parameter in block.parameters()):
            depths = [module for module in block.modules() if isinstance(module, StochasticDepth)]
            block.forward = _recomputed(block.forward, depths)


def _recomputed(forward: Callable[..., Any], depths: Sequence[StochasticDepth]) -> Callable[..., Any]:
    def compute(dealt: Sequence[torch.Tensor | None], *inputs: Any, **more: Any) -> Any:
        for depth, factors in zip(depths, dealt, strict=True):
            depth.factors = factors  # those of this pass: another group of crops has been dealt others since
        return forward(*inputs, **more)

    def recomputed(*inputs: Any, **more: Any) -> Any:
        dealt = [depth.factors for depth in depths]
        if not torch.is_grad_enabled():
            return forward(*inputs, **more)
        return checkpoint(compute, dealt, *inputs, use_reentrant=False, preserve_rng_state=False, **more)

    return recomputed
