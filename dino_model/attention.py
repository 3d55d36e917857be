"""Attention of chosen queries, for every family of ViTs in timm.

A fused kernel never forms the attention matrix. The rows are recomputed instead: tokens run through the
blocks before the chosen one with fused attention, and the chosen block's own projections give the wanted
queries and all keys. A row costs as much as one token's attention.

Each family changes softmax(q · k / sqrt(d)) in its own way: rotated queries and keys (Eva: EVA-02, DINOv3,
Perception Encoder), a bias by relative position (Beit), a pooling query instead of [CLS] (SigLIP), or a class
token that attends only after the last block (CaiT, XCiT). `readable` returns the class of the family.
"""

import copy
import math
import operator
import warnings
from collections.abc import Sequence
from types import MethodType
from typing import Any, Literal

import torch
import torch.nn.functional as F
from timm.layers import (
    AttentionPoolLatent,
    AttentionRope,
    PatchEmbed,
    apply_rot_embed_cat,
    resample_abs_pos_embed,
    to_2tuple,
)
from timm.models import beit, cait, eva, vision_transformer, xcit
from torch import Tensor, nn

Layer = Any  # a layer of timm's: mypy does not know its attributes
Grid = tuple[int, int]
Queries = Sequence[int] | None
Summary = Literal["cls", "pooling", "class-attention"]
"""Query that represents the whole image: a [CLS] token in every block, or a query after the last block."""

_POST_NORM = (vision_transformer.ResPostBlock, eva.EvaBlockPostNorm)


class ReadableViT:
    """Access to the attention of a timm VisionTransformer; the other families are subclasses.

    Attributes:
        vit: The model.
        heads, depth: attention heads of a block, and blocks.
        patch_size: height and width of a patch in pixels.
        channels: Channels of its images.
        prefix_tokens: tokens before the patches in every block: [CLS], registers.
        summary: see `Summary`; None for a model that averages its patches.
    """

    def __init__(self, vit: Layer) -> None:
        self.vit = vit
        self.heads: int = vit.blocks[0].attn.num_heads
        self.depth = len(vit.blocks)
        self.patch_size: Grid = to_2tuple(vit.patch_embed.patch_size)
        self.channels: int = _first_convolution(vit.patch_embed).in_channels
        self.prefix_tokens: int = vit.num_prefix_tokens
        pools = isinstance(getattr(vit, "attn_pool", None), AttentionPoolLatent)
        has_cls = getattr(vit, "cls_token", None) is not None
        self.summary: Summary | None = "cls" if has_cls else "pooling" if pools else None

    def grid(self, images: Tensor) -> Grid:
        """Return the rows and columns of patches of images, padding included."""
        height, width = self.patch_size
        return math.ceil(images.shape[2] / height), math.ceil(images.shape[3] / width)

    def block_index(self, block: int) -> int:
        """Return the index of a block from the front; negative numbers count from the back.

        Raises:
            ValueError: no such block.
        """
        if not -self.depth <= block < self.depth:
            raise ValueError(
                f"no block {block}: the model has {self.depth}, so choose {-self.depth} to {self.depth - 1}"
            )
        return block % self.depth

    def embed(self, images: Tensor) -> Tensor:
        """Compute the input of the first block: [batch, channels, height, width] -> [batch, tokens, width].

        Raises:
            ValueError: Images of another shape or number of channels.
        """
        if images.ndim != 4 or images.shape[1] != self.channels or 0 in images.shape:
            raise ValueError(
                f"images have shape {list(images.shape)}, expected [batch, {self.channels}, height, width]"
            )
        return self._embed(images.to(_first_convolution(self.vit.patch_embed).weight.dtype))

    def run(self, tokens: Tensor, grid: Grid, start: int, stop: int) -> Tensor:
        """Run blocks `start` to `stop - 1` with fused attention: [batch, tokens, width] -> the same."""
        for index in range(start, stop):
            tokens = self._block(index, tokens, grid)
        return tokens

    def norm(self, tokens: Tensor) -> Tensor:
        """Apply the final norm to tokens; the shape stays."""
        normed: Tensor = self.vit.norm(tokens)
        return normed

    def queries_and_keys(
        self, index: int, tokens: Tensor, grid: Grid, queries: Queries = None
    ) -> tuple[Tensor, Tensor]:
        """Compute queries and keys of one block from its input [batch, tokens, width]; `queries` are indices.

        They are normalized and rotated, not scaled: attention is softmax(q · k / sqrt(d) + `bias`).

        Returns:
            q [batch, heads, queries, d] and k [batch, heads, tokens, d], in the precision of the computation.

        Raises:
            ValueError: A model whose patches do not attend by queries and keys.
        """
        block = self.vit.blocks[index]
        attention = block.attn
        inputs = tokens if isinstance(block, _POST_NORM) else block.norm1(tokens)
        selected = inputs if queries is None else inputs[:, list(queries)]
        query, key = (
            F.linear(source, weight, bias).unflatten(-1, (-1, _head_width(attention))).transpose(1, 2)
            for source, (weight, bias) in zip((selected, inputs), _projections(attention), strict=True)
        )
        # A Beit has no such norms.
        norms = (getattr(attention, name, nn.Identity()) for name in ("q_norm", "k_norm"))
        query, key = (norm(part) for norm, part in zip(norms, (query, key), strict=True))
        if key.shape[1] < attention.num_heads:  # heads that share their keys
            key = key.repeat_interleave(attention.num_heads // key.shape[1], dim=1)
        return query, key

    def bias(self, index: int, grid: Grid, queries: Queries = None) -> Tensor | None:
        """Return the bias of one block: [heads, queries, tokens], or None if it has none."""
        return None

    def rows(self, index: int, tokens: Tensor, grid: Grid, queries: Queries) -> Tensor:
        """Compute attention of one block: fp32 [batch, heads, queries, tokens]; see `queries_and_keys`.

        Raises:
            ValueError: a query that does not exist, or as `queries_and_keys`.
        """
        count = tokens.shape[1]
        wrong = [query for query in queries or () if not 0 <= query < count]
        if wrong:
            raise ValueError(f"no query token {wrong[0]}: the image has {count} tokens, 0 to {count - 1}")
        query, key = self.queries_and_keys(index, tokens, grid, queries)
        return _softmax_of(query, key, self.bias(index, grid, queries))

    def summary_rows(self, tokens: Tensor) -> Tensor:
        """Compute the attention of the pooling query or class token after the last block.

        The softmax is over all tokens of that attention; entries of registers and a class token are left out.

        Args:
            tokens: Output of the last block [batch, tokens, width].

        Returns:
            float32 [batch, heads, patches].

        Raises:
            ValueError: The model has no such query.
        """
        if self.summary != "pooling":
            raise ValueError(f"{type(self.vit).__name__} has no pooling query")
        pool, patches = self.vit.attn_pool, tokens.shape[1] - self.prefix_tokens
        tokens = self.norm(tokens)
        if not getattr(self.vit, "pool_include_prefix", True):  # an Eva always pools over all
            tokens = tokens[:, -patches:]
        if pool.pos_embed is not None:
            tokens = tokens + pool.pos_embed.to(tokens.dtype)
        weight, bias = pool.kv.weight.chunk(2)[0], None if pool.kv.bias is None else pool.kv.bias.chunk(2)[0]
        query, key = (
            part.unflatten(-1, (pool.num_heads, -1)).transpose(1, 2)
            for part in (pool.q(pool.latent), F.linear(tokens, weight, bias))
        )
        rows = _softmax_of(pool.q_norm(query), pool.k_norm(key))[..., -patches:]
        return rows.mean(dim=2) if pool.pool == "avg" else rows[:, :, 0]

    def _embed(self, images: Tensor) -> Tensor:
        patches = self.vit.patch_embed(images)
        tokens: Tensor = self.vit.norm_pre(self.vit.patch_drop(self.vit._pos_embed(patches)))
        return tokens

    def _block(self, index: int, tokens: Tensor, grid: Grid) -> Tensor:
        block = self.vit.blocks[index]
        plain = type(block) is vision_transformer.Block and getattr(block.attn, "gate", None) is None
        if not plain or block.training or tokens.device.type != "cpu":
            after: Tensor = block(tokens)
            return after
        tokens = tokens + block.ls1(_attend(block.attn, block.norm1(tokens)))
        return tokens + block.ls2(block.mlp(block.norm2(tokens)))


class RotaryViT(ReadableViT):
    """timm's Eva: queries and keys of the patches are rotated by an angle that depends on the position."""

    def queries_and_keys(
        self, index: int, tokens: Tensor, grid: Grid, queries: Queries = None
    ) -> tuple[Tensor, Tensor]:
        """Compute rotated queries and keys; see `ReadableViT.queries_and_keys`."""
        query, key = super().queries_and_keys(index, tokens, grid, queries)
        rotation = self._rotation(index, grid)
        if rotation is None:
            return query, key
        # Prefix tokens have no position: an angle of 0, sine 0 and cosine 1.
        unrotated = rotation.new_zeros(*rotation.shape[:-2], self.prefix_tokens, rotation.shape[-1])
        unrotated[..., rotation.shape[-1] // 2 :] = 1
        rotation = torch.cat([unrotated, rotation], dim=-2)
        half = self.vit.blocks[index].attn.rotate_half
        selected = rotation if queries is None else rotation[..., list(queries), :]
        return apply_rot_embed_cat(query, selected, half=half), apply_rot_embed_cat(key, rotation, half=half)

    def _rotation(self, index: int, grid: Grid) -> Tensor | None:
        """Sines and cosines for one block: [patches, 2 d], or [heads, patches, 2 d] if they are learned."""
        if self.vit.rope is None:
            return None
        rotation: Tensor = self.vit.rope.get_embed(shape=list(grid))
        return rotation[index] if self.vit.rope_mixed else rotation

    def _embed(self, images: Tensor) -> Tensor:
        tokens, _ = self.vit._pos_embed(self.vit.patch_embed(images))
        normed: Tensor = self.vit.norm_pre(tokens)
        return normed

    def _block(self, index: int, tokens: Tensor, grid: Grid) -> Tensor:
        after: Tensor = self.vit.blocks[index](tokens, rope=self._rotation(index, grid))
        return after


class BiasedViT(ReadableViT):
    """timm's Beit: every pair of tokens has a bias that depends on their relative position.

    timm builds a Beit for one image size. A copy of its layers, whose biases timm resamples, takes another
    grid; the copy shares all other weights with the model, which does not change.
    """

    def __init__(self, vit: Layer) -> None:
        super().__init__(vit)
        self._resized: dict[tuple[Grid, torch.device], Layer] = {}

    def bias(self, index: int, grid: Grid, queries: Queries = None) -> Tensor | None:
        """Return the bias by relative position; see `ReadableViT.bias`."""
        vit = self._at(grid)
        own, shared = vit.blocks[index].attn, vit.rel_pos_bias
        biases = [own._get_rel_pos_bias()[0]] if own.relative_position_bias_table is not None else []
        biases += [] if shared is None else [shared()]
        whole = sum(biases[1:], biases[0]) if biases else None
        return whole if whole is None or queries is None else whole[:, list(queries)]

    def _at(self, grid: Grid) -> Layer:
        """The model for another grid; that of the last grid is kept."""
        if grid == tuple(self.vit.patch_embed.grid_size):
            return self.vit
        key = grid, self.vit.cls_token.device
        if key not in self._resized:
            shared = {id(tensor): tensor for tensor in (*self.vit.parameters(), *self.vit.buffers())}
            resized = copy.deepcopy(self.vit, shared)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of timm, on its own indexing
                resized.set_input_size(tuple(map(operator.mul, grid, self.patch_size)))
            self._resized = {key: resized}
        return self._resized[key]

    def _embed(self, images: Tensor) -> Tensor:
        return _embed_on_any_grid(self.vit, images, prefix=1)

    def _block(self, index: int, tokens: Tensor, grid: Grid) -> Tensor:
        vit = self._at(grid)
        shared = None if vit.rel_pos_bias is None else vit.rel_pos_bias()
        after: Tensor = vit.blocks[index](tokens, shared_rel_pos_bias=shared)
        return after


class ClassAttentionViT(ReadableViT):
    """timm's Cait and Xcit: a class token is added after the last patch block, and only its rows are given.

    Attention among patches is no softmax of q · k there: heads are mixed after the softmax (CaiT), or
    channels attend instead of tokens (XCiT).
    """

    def __init__(self, vit: Layer) -> None:
        super().__init__(vit)
        self.prefix_tokens = 0
        self.summary = "class-attention"

    def queries_and_keys(self, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Raise ValueError: there are no such queries and keys."""
        raise ValueError(
            f"the patches of a {type(self.vit).__name__} do not attend by a softmax of queries and keys: "
            "only the attention of its class token after the last block can be read"
        )

    def summary_rows(self, tokens: Tensor) -> Tensor:
        """Compute the class token's attention to the patches; see `ReadableViT.summary_rows`."""
        tokens = torch.cat([self.vit.cls_token.expand(len(tokens), -1, -1), tokens], dim=1)
        if isinstance(self.vit, xcit.Xcit):
            blocks = self.vit.cls_attn_blocks
            for block in blocks[:-1]:
                tokens = block(tokens)
        else:
            blocks = self.vit.blocks_token_only
            for block in blocks[:-1]:
                cls = block(tokens[:, 1:], tokens[:, :1])
                tokens = torch.cat([cls, tokens[:, 1:]], dim=1)
        inputs, attention = blocks[-1].norm1(tokens), blocks[-1].attn
        query, key = (
            part.unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
            for part in (attention.q(inputs[:, :1]), attention.k(inputs))
        )
        return _softmax_of(query, key)[:, :, 0, 1:]

    def _embed(self, images: Tensor) -> Tensor:
        if isinstance(self.vit, xcit.Xcit):
            tokens, grid = self.vit.patch_embed(_pad(images, self.patch_size))
            if self.vit.pos_embed is not None:
                positions = self.vit.pos_embed(len(images), *grid)
                tokens = tokens + positions.flatten(2).transpose(1, 2)
            return tokens
        return _embed_on_any_grid(self.vit, images, prefix=0)

    def _block(self, index: int, tokens: Tensor, grid: Grid) -> Tensor:
        where = grid if isinstance(self.vit, xcit.Xcit) else ()
        after: Tensor = self.vit.blocks[index](tokens, *where)
        return after


_PLAIN = {vision_transformer.Block, vision_transformer.ResPostBlock}
_ROTARY = {eva.EvaBlock, eva.EvaBlockPostNorm}
_FAMILIES: dict[type[nn.Module], tuple[type[ReadableViT], set[type], set[type]]] = {
    # class of the model: class here, and the supported classes of blocks and attention layers
    vision_transformer.VisionTransformer: (ReadableViT, _PLAIN, {vision_transformer.Attention}),
    eva.Eva: (RotaryViT, _ROTARY, {eva.EvaAttention, AttentionRope}),
    beit.Beit: (BiasedViT, {beit.Block}, {beit.Attention}),
    cait.Cait: (ClassAttentionViT, {cait.LayerScaleBlock}, {cait.TalkingHeadAttn}),
    xcit.Xcit: (ClassAttentionViT, {xcit.XCABlock}, {xcit.XCA}),
}


def readable(model: Layer) -> ReadableViT:
    """Return access to the attention of a model.

    Raises:
        ValueError: naming the model or layer, and why its attention cannot be read.
    """
    family = next((kind for kind in _FAMILIES if isinstance(model, kind)), None)
    if family is None:
        families = ", ".join(kind.__name__ for kind in _FAMILIES)
        raise ValueError(
            f"the attention of a {type(model).__name__} cannot be read: expected one of timm's {families}. "
            "Choose a ViT, such as 'dino_vits16'; `python -m dino_model show NAME` names a model's maps"
        )
    reads, blocks, attentions = _FAMILIES[family]
    embedding = model.patch_embed
    if not isinstance(embedding, PatchEmbed | xcit.ConvPatchEmbed):
        raise ValueError(
            f"the attention of this {type(model).__name__} cannot be read: its patches are not cut from the "
            f"image but from the output of {type(embedding).__name__}. Choose a ViT without such a stem"
        )
    for number, block in enumerate(model.blocks):
        for layer, supported in ((block, blocks), (getattr(block, "attn", None), attentions)):
            if type(layer) not in supported:
                known = " and ".join(sorted(kind.__name__ for kind in supported))
                raise ValueError(
                    f"block {number} has a {type(layer).__name__}, whose attention cannot be read: "
                    f"expected {known}"
                )
    return reads(model)


@torch.no_grad()
def attention_rows(model: nn.Module, images: Tensor, queries: Queries, block: int = -1) -> Tensor:
    """Compute softmax attention of chosen query tokens over all tokens, for every head of one block.

    Later blocks do not run. The precision is that of the weights or of a surrounding `torch.autocast`; the
    softmax is always fp32. Call `.eval()` on the model first.

    Args:
        model: A ViT of timm, of any family that `readable` supports.
        images: Normalized images [batch, channels, height, width].
        queries: Indices of the query tokens. Prefix tokens come first ([CLS], then registers); the patch in
            row r and column c is `prefix tokens + r * columns + c`. None is all: N x N values per head.
        block: Number of the block; negative numbers count from the last.

    Returns:
        float32 [batch, heads, queries, tokens]; every row sums to 1 over all tokens, prefix tokens included.

    Raises:
        ValueError: Unsupported model, images of the wrong shape, or no such block or query.
    """
    vit = readable(model)
    index = vit.block_index(block)
    tokens = vit.embed(images)
    grid = vit.grid(images)
    return vit.rows(index, vit.run(tokens, grid, 0, index), grid, queries)


def accept_any_size(model: beit.Beit) -> None:
    """Let a Beit compute features of images of any size."""
    model.forward_features = MethodType(_normed_tokens, model)


def _normed_tokens(model: Layer, images: Tensor) -> Tensor:
    vit = BiasedViT(model)
    return vit.norm(vit.run(vit.embed(images), vit.grid(images), 0, vit.depth))


def _embed_on_any_grid(model: Layer, images: Tensor, prefix: int) -> Tensor:
    """Input of the first block of a Beit or Cait: [batch, tokens, width]; `prefix` is 1 with [CLS]."""
    patches = model.patch_embed.proj(_pad(images, model.patch_embed.patch_size))
    grid = tuple(patches.shape[2:])
    tokens = model.patch_embed.norm(patches.flatten(2).transpose(1, 2))
    if prefix:
        tokens = torch.cat([model.cls_token.expand(len(tokens), -1, -1), tokens], dim=1)
    if model.pos_embed is None:
        return tokens
    learned = model.patch_embed.grid_size
    return tokens + resample_abs_pos_embed(model.pos_embed, grid, learned, num_prefix_tokens=prefix)


def _pad(images: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """Images with zeros at the bottom and the right, to whole patches."""
    missing = [-side % patch for side, patch in zip(images.shape[2:], patch_size, strict=True)]
    return F.pad(images, (0, missing[1], 0, missing[0])) if any(missing) else images


def _attend(attention: Layer, tokens: Tensor) -> Tensor:
    """Apply timm's attention layer with each head's queries, keys and values contiguous in memory.

    The result is equal. Without AMX, torch's fused kernel for CPUs is 1.2 times faster on this layout.
    """
    qkv = attention.qkv(tokens).unflatten(-1, (3, attention.num_heads, -1))
    query, key, value = qkv.permute(2, 0, 3, 1, 4).contiguous()  # each [batch, heads, tokens, d]
    mixed = F.scaled_dot_product_attention(attention.q_norm(query), attention.k_norm(key), value)
    projected: Tensor = attention.proj(attention.norm(mixed.transpose(1, 2).flatten(2)))
    return projected


def _head_width(attention: Layer) -> int:
    """Return the width of one head's query in any family's attention layer."""
    return round(attention.scale**-2)


def _projections(attention: Layer) -> list[tuple[Tensor, Tensor | None]]:
    """Weight and bias that make queries, and those that make keys."""
    if attention.qkv is None:
        return [(layer.weight, layer.bias) for layer in (attention.q_proj, attention.k_proj)]
    weights = attention.qkv.weight.chunk(3)[:2]
    if attention.qkv.bias is not None:
        biases = attention.qkv.bias.chunk(3)[:2]
    else:  # Eva and Beit keep them apart, and keys have none
        biases = (getattr(attention, "q_bias", None), getattr(attention, "k_bias", None))
    return list(zip(weights, biases, strict=True))


def _softmax_of(query: Tensor, key: Tensor, bias: Tensor | None = None) -> Tensor:
    """softmax(q · k / sqrt(d) + bias) in fp32, whatever a surrounding autocast says."""
    with torch.autocast(key.device.type, enabled=False):
        scores = (query.float() / math.sqrt(query.shape[-1])) @ key.float().transpose(-2, -1)
        return (scores if bias is None else scores + bias.float()).softmax(dim=-1)


def _first_convolution(embedding: Layer) -> nn.Conv2d:
    """The convolution that is applied to the image."""
    return next(layer for layer in embedding.modules() if isinstance(layer, nn.Conv2d))
