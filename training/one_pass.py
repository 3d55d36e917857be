"""Crops of all sizes in one pass of a ViT: all tokens in one sequence, attention within each crop.

Products, norms and activations are those of one large batch, with half the launches of a pass for each size.
Under autocast to bf16 the blocks compute in bf16 alone, with copies of their weights: residuals and norms are
neither stored nor read in fp32.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from dino_model.models.backbones import Features, MaskedPatches, embed_patches

Shapes = tuple[tuple[int, int], ...]
"""Images and tokens of each group of crops."""


def features_of_groups(
    vit: Any,
    groups: Sequence[Tensor],
    set_factors: Callable[[Tensor], object],
    visible: Tensor | None = None,
    masked: MaskedPatches | None = None,
    *,
    patches: bool = True,
) -> list[Features]:
    """Compute the features of groups of crops, as `compute_features` does for each.

    Args:
        vit: The backbone.
        groups: Crops [images, channels, height, width], each group of one size.
        set_factors: Receives the image of every token, int64 [tokens], for stochastic depth.
        visible, masked: Of the first group, as in `compute_features`.
        patches: Whether features of patches are needed; else there are 0 of them.
    """
    first, *others = groups
    embedded = [embed_patches(vit, first, visible, masked), *(embed_patches(vit, group) for group in others)]
    shapes = tuple((len(tokens), tokens.shape[1]) for tokens in embedded)
    starts, images = _positions(shapes, first.device)
    set_factors(images)
    tokens = torch.cat([part.flatten(0, 1) for part in embedded])
    device = tokens.device.type
    reduced = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.bfloat16
    for block in vit.blocks:
        if not reduced:
            tokens = _compute(block, tokens, shapes)
            continue
        names, weights = zip(*block.named_parameters(prefix="block"), strict=True)
        copies = dict(zip(names, _ReducedCopies.apply(*weights), strict=True))
        with torch.autocast(device, enabled=False):
            tokens = functional_call(_Block(block), copies, (tokens.bfloat16(), shapes))
    if not patches:
        shapes, tokens = tuple((count, 1) for count, _ in shapes), tokens.index_select(0, starts)
    parts = vit.norm(tokens).split([count * length for count, length in shapes])
    separate = [part.view(*shape, -1) for part, shape in zip(parts, shapes, strict=True)]
    return [Features(vit.forward_head(part), part[:, vit.num_prefix_tokens :]) for part in separate]


class _Block(nn.Module):
    """A block of a ViT on tokens in one sequence, for `functional_call`."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, tokens: Tensor, shapes: Shapes) -> Tensor:
        """[tokens, width] -> the same shape."""
        return _compute(self.block, tokens, shapes)


def _compute(block: Any, tokens: Tensor, shapes: Shapes) -> Tensor:
    """Compute a block, as its `forward` does, on tokens [tokens, width] of groups of images."""
    attended = _attend(block.attn, block.norm1(tokens), shapes)
    tokens = tokens + block.drop_path1(block.ls1(attended))
    hidden: Tensor = tokens + block.drop_path2(block.ls2(block.mlp(block.norm2(tokens))))
    return hidden


def _attend(attention: Any, tokens: Tensor, shapes: Shapes) -> Tensor:
    """Self-attention within each image, [tokens, width] -> the same shape."""
    parts = attention.qkv(tokens).split([images * length for images, length in shapes])
    results = []
    for part, (images, length) in zip(parts, shapes, strict=True):
        separate = part.view(images, length, 3, attention.num_heads, attention.head_dim)
        attended = F.scaled_dot_product_attention(*separate.permute(2, 0, 3, 1, 4))
        results.append(attended.transpose(1, 2).reshape(images * length, -1))
    projected: Tensor = attention.proj(torch.cat(results))
    return projected


class _ReducedCopies(torch.autograd.Function):
    """Copies of weights in bf16, made in one launch; their gradients come back in the weights' type."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.dtypes = [weight.dtype for weight in weights]
        return _convert(weights, [torch.bfloat16] * len(weights))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return _convert(gradients, ctx.dtypes)


def _convert(tensors: Sequence[Tensor], dtypes: Sequence[torch.dtype]) -> tuple[Tensor, ...]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor, dtype in zip(tensors, dtypes, strict=True)]
    torch._foreach_copy_(copies, list(tensors))
    return tuple(copies)


@cache
def _positions(shapes: Shapes, device: torch.device) -> tuple[Tensor, Tensor]:
    """Position of each image's first token, [images], and the image of each token, [tokens]."""
    lengths = torch.tensor([length for images, length in shapes for _ in range(images)])
    first = lengths.cumsum(0) - lengths
    images = torch.arange(len(lengths)).repeat_interleave(lengths)
    return first.to(device), images.to(device)
