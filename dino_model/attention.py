"""Attention rows of chosen queries, from models that run fused attention.

A fused kernel never forms the attention matrix, so there is nothing to hook. The rows are recomputed instead:
the tokens run through the blocks before the asked one with fused attention, and the asked block's own
projections give the queries asked for and all keys. A row costs as much as one token's attention.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from timm.models.vision_transformer import Attention, Block, VisionTransformer
from torch import Tensor, nn


@torch.no_grad()
def attention_rows(vit: nn.Module, images: Tensor, queries: Sequence[int] | None, block: int = -1) -> Tensor:
    """Softmax attention of chosen query tokens over all tokens, for every head of one block.

    The blocks after the asked one do not run. Runs in the precision of the weights, or of a surrounding
    `torch.autocast`; the softmax is always fp32. The model is used as it stands: call `.eval()` first.

    Args:
        vit: a timm VisionTransformer with timm's own attention layers (with or without registers, q and k
            norms, layer scale).
        images: normalised pictures [batch, channels, height, width].
        queries: indices of the query tokens. Token 0 is [CLS], registers follow, and the patch in row r and
            column c is `vit.num_prefix_tokens + r * columns + c`. None asks for all: N x N figures per head.
        block: which block; negative counts from the last.

    Returns:
        float32 [batch, heads, queries, tokens]; every row sums to 1 over all tokens, prefix tokens included.

    Raises:
        ValueError: a model whose attention cannot be read (naming what is unsupported), images of the wrong
            shape, a block or a query that does not exist.
    """
    model = checked_vit(vit)
    index = block_index(model, block)
    tokens = run_blocks(model, embed(model, images), 0, index)
    return rows_from_tokens(model.blocks[index], tokens, queries)


def checked_vit(model: nn.Module) -> VisionTransformer:
    """`model` itself, if its attention can be read as a softmax of q·k in every block.

    Raises:
        ValueError: naming the model or layer that is unsupported.
    """
    if not isinstance(model, VisionTransformer):
        raise ValueError(
            f"attention maps need a timm VisionTransformer, found {type(model).__name__}, "
            "which has no plain [CLS] and patch self-attention: choose a ViT, such as 'dino_vits16'"
        )
    for number, block in enumerate(model.blocks):
        if not isinstance(block, Block) or type(block).forward is not Block.forward:
            raise ValueError(
                f"block {number} is a {type(block).__name__}; only the maps of timm's Block can be read"
            )
        if type(block.attn) is not Attention:
            raise ValueError(
                f"block {number} attends by {type(block.attn).__name__}, whose maps are not supported; "
                "only timm's Attention (softmax of q·k, no rotation, no bias) is"
            )
    return model


def block_index(vit: VisionTransformer, block: int) -> int:
    """Index of a block counted from the front, from one that may count from the back.

    Raises:
        ValueError: no such block.
    """
    depth = len(vit.blocks)
    if not -depth <= block < depth:
        raise ValueError(f"no block {block}: the model has {depth}, so choose {-depth} to {depth - 1}")
    return block % depth


def embed(vit: VisionTransformer, images: Tensor) -> Tensor:
    """Input of the first block: [batch, channels, height, width] -> [batch, tokens, width].

    Raises:
        ValueError: images that are not [batch, channels, height, width] of the model's channels.
    """
    channels = vit.patch_embed.proj.in_channels
    if images.ndim != 4 or images.shape[1] != channels or 0 in images.shape:
        raise ValueError(
            f"images have shape {list(images.shape)}, expected [batch, {channels}, height, width]"
        )
    patches = vit.patch_embed(images.to(vit.patch_embed.proj.weight.dtype))
    tokens: Tensor = vit.norm_pre(vit.patch_drop(vit._pos_embed(patches)))
    return tokens


def run_blocks(vit: VisionTransformer, tokens: Tensor, start: int, stop: int) -> Tensor:
    """Tokens after blocks `start` to `stop - 1`, with fused attention: [batch, tokens, width] -> the same."""
    for block in vit.blocks[start:stop]:
        tokens = block(tokens)
    return tokens


def rows_from_tokens(block: Block, tokens: Tensor, queries: Sequence[int] | None) -> Tensor:
    """Attention rows of one block from the tokens that enter it; arguments and result as in `attention_rows`.

    Args:
        block: a timm Block.
        tokens: its input [batch, tokens, width].
        queries: indices of the query tokens, None for all.

    Raises:
        ValueError: a query that does not exist.
    """
    count = tokens.shape[1]
    wrong = [query for query in queries or () if not 0 <= query < count]
    if wrong:
        raise ValueError(f"no query token {wrong[0]}: the picture has {count} tokens, 0 to {count - 1}")
    query, key = queries_and_keys(block, tokens, queries)
    with torch.autocast(tokens.device.type, enabled=False):  # scores and softmax in fp32
        scores = (query.float() * block.attn.scale) @ key.float().transpose(-2, -1)
    return scores.softmax(dim=-1)  # [batch, heads, queries, tokens]


def queries_and_keys(
    block: Block, tokens: Tensor, queries: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """Queries and keys of one block from the tokens that enter it, after its q and k norms, before the scale.

    Attention is softmax(q · k / sqrt(d)). Values are never computed, nor queries that are not asked for.

    Args:
        block: a timm Block.
        tokens: its input [batch, tokens, width].
        queries: indices of the query tokens, None for all.

    Returns:
        q [batch, heads, queries, d] and k [batch, heads, tokens, d], in the precision of the computation.
    """
    attention = block.attn
    inputs = block.norm1(tokens)
    asked = inputs if queries is None else inputs[:, list(queries)]
    weights = attention.qkv.weight.chunk(3)[:2]
    biases = (None, None) if attention.qkv.bias is None else attention.qkv.bias.chunk(3)[:2]
    query, key = (
        F.linear(source, weight, bias).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
        for source, weight, bias in zip((asked, inputs), weights, biases, strict=True)
    )
    return attention.q_norm(query), attention.k_norm(key)
