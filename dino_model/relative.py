"""BEiT and CaiT on any grid: position embeddings and biases by relative position, resampled.

timm builds these models for one size of picture. Its own resampling brings them to another, here for the grid
at hand and without touching the model's weights.
"""

import warnings
from collections.abc import Sequence
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import resample_abs_pos_embed, resize_rel_pos_bias_table
from timm.models.beit import Beit
from torch import Tensor

Layer = Any  # a layer of timm's: mypy does not know its attributes
QUERIES_AT_ONCE = 1024  # their biases with all tokens are written out


def install(model: Layer) -> None:
    """Let a Beit take pictures of any size: its features come through the functions below."""
    model.forward_features = MethodType(_forward_features, model)


def embed(model: Layer, images: Tensor) -> Tensor:
    """Input of the first block, with [CLS] where the blocks have one: -> [batch, tokens, width].

    Args:
        model: a Beit or Cait.
        images: [batch, channels, height, width], padded to whole patches with zeros.
    """
    patches = model.patch_embed.proj(padded(images, model.patch_embed.patch_size))
    grid = tuple(patches.shape[2:])
    tokens = model.patch_embed.norm(patches.flatten(2).transpose(1, 2))
    prefix = int(isinstance(model, Beit))
    if prefix:
        tokens = torch.cat([model.cls_token.expand(len(tokens), -1, -1), tokens], dim=1)
    if model.pos_embed is None:
        return tokens
    learned = model.patch_embed.grid_size
    return tokens + resample_abs_pos_embed(model.pos_embed, grid, learned, num_prefix_tokens=prefix)


def padded(images: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """Images with zeros at the bottom and the right, to whole patches."""
    missing = [-side % patch for side, patch in zip(images.shape[2:], patch_size, strict=True)]
    return F.pad(images, (0, missing[1], 0, missing[0])) if any(missing) else images


class Tables:
    """The learned biases of a Beit's blocks, for the grid asked for last: [relative places, heads] each."""

    def __init__(self, model: Layer) -> None:
        self._model = model
        self._grid: tuple[int, int] | None = None
        self._resized: dict[int, Tensor | None] = {}

    def of(self, index: int, grid: tuple[int, int]) -> Tensor | None:
        """One block's biases, its own and those that all blocks share; None where there are none."""
        if grid != self._grid:
            self._grid, self._resized = grid, {}
        if index not in self._resized:
            owners = (self._model.blocks[index].attn, self._model.rel_pos_bias)
            tables = [
                _resized(owner.relative_position_bias_table, owner.window_size, grid)
                for owner in owners
                if owner is not None and owner.relative_position_bias_table is not None
            ]
            self._resized[index] = sum(tables[1:], tables[0]) if tables else None
        return self._resized[index]


def bias(table: Tensor, grid: tuple[int, int], queries: Sequence[int] | None = None) -> Tensor:
    """The bias of query tokens with all tokens: [heads, queries, tokens].

    Args:
        table: (2 rows - 1) * (2 columns - 1) biases by how far a patch lies below and to the right of
            another, then [CLS] to patch, patch to [CLS], [CLS] to itself: [relative places, heads].
        grid: rows and columns of patches.
        queries: indices of the tokens that ask, 0 is [CLS]; None for all.
    """
    rows, columns = grid
    tokens = torch.arange(1 + rows * columns, device=table.device)
    asked = tokens if queries is None else torch.as_tensor(list(queries), device=table.device)
    patch, other = (asked - 1).clamp(min=0)[:, None], (tokens - 1).clamp(min=0)[None]
    down = patch // columns - other // columns + rows - 1
    right = patch % columns - other % columns + columns - 1
    place = down * (2 * columns - 1) + right  # [queries, tokens]
    place[asked == 0] = len(table) - 3
    place[:, 0] = torch.where(asked == 0, len(table) - 1, len(table) - 2)
    return table[place].permute(2, 0, 1)


def run_block(block: Layer, tokens: Tensor, table: Tensor | None, grid: tuple[int, int]) -> Tensor:
    """One block of a Beit with the biases of this grid: [batch, tokens, width] -> the same."""
    attention = block.attn
    biases = (
        None
        if attention.q_bias is None
        else torch.cat((attention.q_bias, attention.k_bias, attention.v_bias))
    )
    qkv = F.linear(block.norm1(tokens), attention.qkv.weight, biases)
    query, key, value = qkv.unflatten(-1, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    parts = [
        F.scaled_dot_product_attention(
            query[:, :, asked], key, value, attn_mask=None if table is None else bias(table, grid, asked)
        )
        for asked in torch.arange(tokens.shape[1]).split(QUERIES_AT_ONCE)
    ]
    mixed = attention.proj(torch.cat(parts, dim=2).transpose(1, 2).flatten(2))
    tokens = tokens + (mixed if block.gamma_1 is None else block.gamma_1 * mixed)
    changed = block.mlp(block.norm2(tokens))
    after: Tensor = tokens + (changed if block.gamma_2 is None else block.gamma_2 * changed)
    return after


def _resized(table: Tensor, learned: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    if grid == tuple(learned):
        return table.detach()
    shape = ((2 * grid[0] - 1) * (2 * grid[1] - 1) + 3, table.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of timm, on its own indexing
        resized: Tensor = resize_rel_pos_bias_table(
            table.detach(), new_window_size=grid, new_bias_shape=shape, old_window_size=learned
        )
    return resized


def _forward_features(model: Layer, images: Tensor) -> Tensor:
    """All tokens after the final norm: [batch, tokens, width]."""
    tables = Tables(model)
    height, width = model.patch_embed.patch_size
    grid = -(-images.shape[2] // height), -(-images.shape[3] // width)
    tokens = embed(model, images)
    for index, block in enumerate(model.blocks):
        tokens = run_block(block, tokens, tables.of(index, grid), grid)
    normed: Tensor = model.norm(tokens)
    return normed
