"""Crops of all sizes in one pass of a ViT: all tokens in one sequence, attention within each crop.

Products, norms and activations are those of one large batch, in half the operations.
Under autocast to bf16 the blocks compute in bf16 alone, with copies of their weights: residuals and norms are
neither stored nor read in fp32. Blocks can be compiled, and computed again in the backward pass.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from timm.layers import GluMlp
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dino_model.models.backbones import Features, MaskedPatches, embed_patches

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # PyTorch 2.9
    varlen_attn = None  # type: ignore[assignment]

Shapes = tuple[tuple[int, int], ...]
"""Images and tokens of each group of crops."""
Weights = dict[str, Tensor]
"""Weights of a block by name."""
Depths = tuple[Tensor | None, Tensor | None]
"""Factors of stochastic depth for every token, [tokens]: of the attention and of the MLP."""


class Packing(NamedTuple):
    """Images whose tokens form one sequence; made by `pack`."""

    shapes: Shapes
    first: Tensor
    """Position of each image's first token, int64 [images]."""
    images: Tensor
    """Image of each token, int64 [tokens]."""
    offsets: Tensor
    """Position of each image's first token, and the number of tokens, int32 [images + 1]."""


class OnePass:
    """Computes the blocks of a ViT on tokens in one sequence.

    Args:
        compile: Compile the block; all blocks of a kind share one function.
        recompute: Keep only the input of every block, and compute the block again in the backward pass.
    """

    def __init__(self, *, compile: bool = False, recompute: bool = False) -> None:
        self.block: Callable[..., Tensor] = _compute
        if compile:
            self.block = torch.compile(_compute, dynamic=False)
        self.recompute = recompute

    def blocks(self, vit: Any, tokens: Tensor, packing: Packing) -> Tensor:
        """[tokens, width] -> the same shape."""
        device = tokens.device.type
        reduced = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.bfloat16
        if reduced:
            tokens = tokens.bfloat16()
        with torch.autocast(device, enabled=torch.is_autocast_enabled(device) and not reduced):
            for block in vit.blocks:
                names, weights = zip(*block.named_parameters(), strict=True)
                if reduced:
                    weights = _ReducedCopies.apply(*weights)
                copies = dict(zip(names, weights, strict=True))
                layout = Layout(block.attn.num_heads, block.norm1.eps, isinstance(block.mlp, GluMlp))
                inputs = (copies, layout, tokens, packing, _depths(block))
                if self.recompute and torch.is_grad_enabled():
                    tokens = checkpoint(self.block, *inputs, use_reentrant=False, preserve_rng_state=False)
                else:
                    tokens = self.block(*inputs)
        return tokens


def features_of_groups(
    one_pass: OnePass,
    vit: Any,
    groups: Sequence[Tensor],
    set_factors: Callable[[Tensor], object],
    visible: Tensor | None = None,
    masked: MaskedPatches | None = None,
    *,
    patches: bool,
) -> list[Features]:
    """Compute the features of groups of crops, as `compute_features` does for each.

    Args:
        one_pass: Computes the blocks.
        vit: The backbone.
        groups: Crops [images, channels, height, width], each group of one size.
        set_factors: Receives the image of every token, int64 [tokens], for stochastic depth.
        visible, masked: Of the first group, as in `compute_features`.
        patches: Whether features of patches are needed; else there are 0 of them.
    """
    first, *others = groups
    embedded = [embed_patches(vit, first, visible, masked), *(embed_patches(vit, group) for group in others)]
    packing = pack(tuple((len(tokens), tokens.shape[1]) for tokens in embedded), first.device)
    set_factors(packing.images)
    tokens = one_pass.blocks(vit, torch.cat([part.flatten(0, 1) for part in embedded]), packing)
    shapes = packing.shapes
    if not patches:
        shapes, tokens = tuple((count, 1) for count, _ in shapes), tokens.index_select(0, packing.first)
    parts = vit.norm(tokens).split([count * length for count, length in shapes])
    separate = [part.view(*shape, -1) for part, shape in zip(parts, shapes, strict=True)]
    return [Features(vit.forward_head(part), part[:, vit.num_prefix_tokens :]) for part in separate]


@cache
def pack(shapes: Shapes, device: torch.device) -> Packing:
    """Positions of images of these shapes in one sequence, on a device; copied there once."""
    lengths = torch.tensor([length for images, length in shapes for _ in range(images)])
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    images = torch.arange(len(lengths)).repeat_interleave(lengths)
    return Packing(shapes, offsets[:-1].to(device), images.to(device), offsets.to(device, torch.int32))


def _depths(block: Any) -> Depths:
    """Factors of stochastic depth that a block has for its next pass; None where nothing is dropped."""
    layers = (block.drop_path1, block.drop_path2)
    first, second = (getattr(layer, "factors", None) if block.training else None for layer in layers)
    return first, second


class Layout(NamedTuple):
    """Settings of a block that its weights do not show."""

    heads: int
    eps: float
    gated: bool
    """The MLP is a SwiGLU."""


def _compute(weights: Weights, layout: Layout, tokens: Tensor, packing: Packing, depths: Depths) -> Tensor:
    """Compute a block of a ViT on tokens [tokens, width], as timm's does for each image."""
    heads = _linear(weights, "attn.qkv", _norm(weights, "norm1", tokens, layout.eps))
    heads = heads.unflatten(-1, (3, layout.heads, -1))
    attended = attend_varlen(heads, packing) if has_varlen(heads) else attend_groups(heads, packing)
    branch = _linear(weights, "attn.proj", attended.flatten(1))
    tokens = _add_branch(tokens, branch, weights.get("ls1.gamma"), depths[0])
    hidden = _linear(weights, "mlp.fc1", _norm(weights, "norm2", tokens, layout.eps))
    if layout.gated:
        gate, hidden = hidden.chunk(2, dim=-1)
        hidden = F.silu(gate) * hidden
    else:
        hidden = F.gelu(hidden)
    branch = _linear(weights, "mlp.fc2", hidden)
    return _add_branch(tokens, branch, weights.get("ls2.gamma"), depths[1])


def _linear(weights: Weights, name: str, inputs: Tensor) -> Tensor:
    return F.linear(inputs, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _norm(weights: Weights, name: str, inputs: Tensor, eps: float) -> Tensor:
    return F.layer_norm(inputs, inputs.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], eps)


def _add_branch(tokens: Tensor, branch: Tensor, gain: Tensor | None, factors: Tensor | None) -> Tensor:
    """Add the branch of a residual block, times the gain of each channel and the factor of each token."""
    branch = branch.to(tokens.dtype)
    if gain is not None:
        branch = branch * gain
    if factors is None:
        return tokens + branch
    return torch.addcmul(tokens, branch, factors.to(tokens.dtype)[:, None])


def has_varlen(heads: Tensor) -> bool:
    """Test if PyTorch has attention within images of several lengths, for this device and type."""
    return varlen_attn is not None and heads.is_cuda and heads.dtype in (torch.float16, torch.bfloat16)


def attend_varlen(heads: Tensor, packing: Packing) -> Tensor:
    """Attention within each image in one call.

    Args:
        heads: Queries, keys and values, [tokens, 3, heads, d].
        packing: Of the tokens.

    Returns:
        [tokens, heads, d].
    """
    query, key, value = heads.unbind(1)
    longest = max(length for _, length in packing.shapes)
    attended: Any = varlen_attn(query, key, value, packing.offsets, packing.offsets, longest, longest)
    result: Tensor = attended
    return result


def attend_groups(heads: Tensor, packing: Packing) -> Tensor:
    """Attention within each image, a call for each size: as `attend_varlen`."""
    parts = heads.split([images * length for images, length in packing.shapes])
    results = []
    for part, shape in zip(parts, packing.shapes, strict=True):
        query, key, value = part.unflatten(0, shape).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value)
        results.append(attended.transpose(1, 2).flatten(0, 1))
    return torch.cat(results)


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
