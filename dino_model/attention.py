"""Attention rows of chosen queries, from models that run fused attention.

A fused kernel never forms the attention matrix, so there is nothing to hook. The rows are recomputed instead:
the tokens run through the blocks before the asked one with fused attention, and the asked block's own
projections give the queries asked for and all keys. A row costs as much as one token's attention. What
differs between the families of ViTs stands in `dino_model.readable`.
"""

import torch
from torch import Tensor, nn

from dino_model.readable import Queries, readable


@torch.no_grad()
def attention_rows(model: nn.Module, images: Tensor, queries: Queries, block: int = -1) -> Tensor:
    """Softmax attention of chosen query tokens over all tokens, for every head of one block.

    The blocks after the asked one do not run. Runs in the precision of the weights, or of a surrounding
    `torch.autocast`; the softmax is always fp32. The model is used as it stands: call `.eval()` first.

    Args:
        model: a ViT of timm's, of any family that `dino_model.readable` reads.
        images: normalised pictures [batch, channels, height, width].
        queries: indices of the query tokens. The prefix tokens come first ([CLS], if there is one, then
            registers), and the patch in row r and column c is `prefix tokens + r * columns + c`. None asks
            for all: N x N figures per head.
        block: which block; negative counts from the last.

    Returns:
        float32 [batch, heads, queries, tokens]; every row sums to 1 over all tokens, prefix tokens included.

    Raises:
        ValueError: a model whose attention cannot be read (naming what is unsupported), images of the wrong
            shape, a block or a query that does not exist.
    """
    vit = readable(model)
    index = vit.block_index(block)
    tokens = vit.embed(images)
    grid = vit.grid(images)
    return vit.rows(index, vit.run(tokens, grid, 0, index), grid, queries)


@torch.no_grad()
def summary_rows(model: nn.Module, images: Tensor) -> Tensor:
    """Where the query looks that sums a picture up after the last block: a pooling query, or a class token.

    Args:
        model: a ViT with such a query, such as SigLIP, CaiT or XCiT. One whose [CLS] passes through the
            blocks is asked by `attention_rows(model, images, [0])`.
        images: normalised pictures [batch, channels, height, width].

    Returns:
        float32 [batch, heads, patches]; a head sums to 1, or less where the query sees more than patches.

    Raises:
        ValueError: as `attention_rows`, or a model without such a query.
    """
    vit = readable(model)
    tokens = vit.run(vit.embed(images), vit.grid(images), 0, vit.depth)
    return vit.summary_rows(tokens)
