"""Attention of chosen queries, for every family of ViTs in timm and for modules of `protocol.ViT`.

torch's fused attention never forms the matrix softmax(q · k / sqrt(d) + bias). Its call is intercepted
instead: it receives queries, keys and bias as the family computes them, with norms, rotation by position and
bias by relative position. The wanted rows follow from these.
"""

import copy
import math
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from types import MethodType
from typing import Any, Literal

import torch
import torch.nn.functional as F
from timm.layers import AttentionPoolLatent, PatchEmbed, resample_abs_pos_embed, to_2tuple
from timm.models import beit, xcit
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dino_model.models import position
from dino_model.models.backbones import patch_grid
from dino_model.models.families import FAMILIES, Family, family_of, position_mode
from dino_model.models.protocol import as_protocol, missing_names

Layer = Any  # a layer of timm's: mypy does not know its attributes
Queries = Sequence[int] | None
Summary = Literal["cls", "pooling", "class-attention"]
"""Query that represents the whole image: a [CLS] token in every block, or a query after the last block."""
MAPS: dict[Summary | None, str] = {
    "cls": "maps of [CLS] and of points",
    "pooling": "maps of a pooling query after the last block, and of points",
    "class-attention": "maps of a class token after the last block",
    None: "maps of points; no [CLS]",
}
"""Attention maps that can be read, in words."""
BlockCall = partial[Tensor]
"""A block with its arguments for some images, of which the first are the tokens [batch, tokens, width]."""
FusedCall = tuple[Tensor, Tensor, Tensor | None]
"""Queries and keys [batch, heads, tokens, d], normalized and rotated, and the bias added to their scores."""

_FUSED_FLAGS = threading.RLock()


class ReadableViT:
    """Access to the tokens and the attention of a ViT of timm; see `open_vit` and `readable`.

    Attributes:
        vit: The model.
        heads, depth: attention heads of a block, and blocks.
        patch_size: height and width of a patch in pixels.
        channels: Channels of its images; None: any number.
        prefix_tokens: tokens before the patches in every block: [CLS], registers.
        summary: see `Summary`; None for a model that averages its patches.
        output_title: The feature that the model outputs for an image, in words.
        has_cls: Whether this feature is made of the [CLS] token, which every block has.
    """

    def __init__(self, vit: Layer, family: Family) -> None:
        self.vit, self.title, self._family = vit, family.title, family
        if not len(vit.blocks):
            raise ValueError(f"this {type(vit).__name__} has no blocks")
        self.heads: int = getattr(getattr(vit.blocks[0], "attn", None), "num_heads", 0)
        self.depth = len(vit.blocks)
        self.patch_size: tuple[int, int] = to_2tuple(vit.patch_embed.patch_size)
        self._first: Layer = next(
            layer for layer in vit.patch_embed.modules() if isinstance(layer, nn.Conv2d)
        )
        self.channels: int | None = self._first.in_channels
        self.prefix_tokens: int = vit.num_prefix_tokens
        self.summary: Summary | None = None
        if family.late_class:
            self.prefix_tokens, self.summary = 0, "class-attention"
        elif getattr(vit, "cls_token", None) is not None:
            self.summary = "cls"
        elif isinstance(getattr(vit, "attn_pool", None), AttentionPoolLatent):
            self.summary = "pooling"
        self.has_cls = self.summary == "cls" and vit.global_pool == "token"
        self.output_title = self._describe_output()

    def _describe_output(self) -> str:
        vit = self.vit
        if self.summary == "class-attention":
            return "the class token after the final norm"
        if hasattr(vit, "dist_token"):
            return "the mean of [CLS] and the distillation token after the final norm"
        pools = {"token": "[CLS]", "avg": "the mean of the patches", "map": "the attention-pooled patches"}
        pool = pools.get(vit.global_pool, f"the patches, pooled by {vit.global_pool!r}")
        if not isinstance(vit.norm, nn.Identity):
            return f"{pool} after the final norm"
        if isinstance(vit.fc_norm, nn.Identity):
            return f"{pool} without a final norm"
        return f"{pool} after the final norm" if self.has_cls else f"{pool}, then the final norm"

    def block_index(self, block: int) -> int:
        """Return the index of a block from the front, or ValueError; negative numbers count from the back."""
        if not -self.depth <= block < self.depth:
            raise ValueError(
                f"no block {block}: the model has {self.depth}, so choose {-self.depth} to {self.depth - 1}"
            )
        return block % self.depth

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns of patches of an image of this size, padding included."""
        return -(-height // self.patch_size[0]), -(-width // self.patch_size[1])

    def calls(self, images: Tensor, stop: int = -1, *, keep: int | None = None) -> list[BlockCall]:
        """Return the calls of the blocks on images [batch, channels, height, width] of any size, normalized.

        Block `stop` and later ones do not run. `keep` is the number of calls to return, the last ones.

        Raises:
            ValueError: Images of another shape or number of channels, or no such block.
        """
        if images.ndim != 4 or images.shape[1] != self.channels or 0 in images.shape:
            raise ValueError(
                f"images have shape {list(images.shape)}, expected [batch, {self.channels}, height, width]"
            )
        vit, images = _fit_to_patches(self.vit, images.to(self._first.weight.dtype))
        last, calls = self.block_index(stop), deque[BlockCall](maxlen=keep)
        recording = copy.copy(vit)  # other threads may use the model itself
        recording._modules = dict(vit._modules)
        recording.blocks = nn.Sequential(
            *(_RecordedBlock(block, calls, index == last) for index, block in enumerate(vit.blocks))
        )
        plain = vit.training or images.device.type != "cpu"  # blocks in training may be compiled
        with nullcontext() if plain else _FusedAttention(_contiguous), suppress(_Stop):
            type(vit).forward_features(recording, images)
        return list(calls)

    def norm(self, tokens: Tensor) -> Tensor:
        """Apply the final norm to tokens [..., width], also where timm's model applies it after pooling."""
        vit = self.vit
        normed: Tensor = vit.norm(tokens)
        return vit.fc_norm(normed) if hasattr(vit, "fc_norm") else normed

    def output(self, images: Tensor) -> Tensor:
        """Compute the feature that `output_title` describes: [batch, width]."""
        feature: Tensor = self.vit(images)
        return feature

    def block_tokens(self, images: Tensor, count: int) -> list[Tensor]:
        """Compute the outputs of the last `count` blocks before the final norm: [batch, tokens, width] each.

        Raises ValueError for fewer blocks, and as `calls`.
        """
        if count > self.depth:
            raise ValueError(f"the model has {self.depth} blocks, fewer than the {count} that features need")
        calls = self.calls(images, keep=count)
        return [*(call.args[0] for call in calls[1:]), calls[-1]()]

    def queries_and_keys(self, call: BlockCall) -> FusedCall:
        """Compute queries, keys and bias of a block; its attention is softmax(q · k / sqrt(d) + bias).

        Raises:
            ValueError: A model whose patches do not attend by queries and keys.
        """
        if self.summary == "class-attention":  # CaiT mixes heads after the softmax, in XCiT channels attend
            raise ValueError(
                f"the patches of a {type(self.vit).__name__} do not attend by a softmax of queries and keys: "
                "only the attention of its class token after the last block can be read"
            )
        block: Layer = call.func
        with fused_calls(block, stop=1) as calls:
            type(block).forward(block, *call.args, **call.keywords)  # also where training compiles it
        return calls[0]

    def summary_rows(self, tokens: Tensor) -> Tensor:
        """Compute the attention of the pooling query or class token after the last block, by its tokens.

        The softmax is over all tokens [batch, tokens, width]; entries of registers and a class token are left
        out: float32 [batch, heads, patches].
        """
        with fused_calls(self.vit) as calls:
            match self.summary:
                case "pooling":
                    self.vit.pool(self.vit.norm(tokens))
                case "class-attention":
                    self.vit.forward_cls(tokens)
                case "cls" | None:
                    raise ValueError("the model has no query after the last block")
        query, key, _ = calls[-1]
        return attention_of(query, key)[:, :, 0, self.prefix_tokens - tokens.shape[1] :]


class ModuleViT(ReadableViT):
    """Access to the attention of a module that fulfils `protocol.ViT`; ValueError for invalid attributes."""

    def __init__(self, vit: Any) -> None:
        kind = type(vit).__name__
        for name, least in (("heads", 1), ("patch_size", 1), ("prefix_tokens", 0)):
            if type(value := getattr(vit, name)) is not int or value < least:
                raise ValueError(f"{name} of this {kind} is {value!r}, expected an integer from {least} on")
        if not isinstance(vit.blocks, nn.ModuleList | nn.Sequential | list) or not len(vit.blocks):
            raise ValueError(
                f"blocks of this {kind} is a {type(vit.blocks).__name__}, expected an nn.ModuleList of one "
                "block or more"
            )
        layers = (layer for block in vit.blocks for layer in block.modules())
        numbers = (getattr(layer, "num_heads", None) for layer in layers)
        counts = {number for number in numbers if isinstance(number, int)}
        if counts and vit.heads not in counts:
            raise ValueError(f"heads of this {kind} is {vit.heads}, but its blocks have {min(counts)}")
        self.vit, self.title, self.heads, self.depth = vit, kind, vit.heads, len(vit.blocks)
        self.patch_size, self.prefix_tokens = (vit.patch_size, vit.patch_size), vit.prefix_tokens
        self.channels = None
        self.summary = "cls" if vit.prefix_tokens else None
        self.has_cls = self.summary == "cls"
        self.output_title = f"{'[CLS]' if self.has_cls else 'the mean of the patches'} after the final norm"

    def norm(self, tokens: Tensor) -> Tensor:
        """See `ReadableViT`."""
        normed: Tensor = self.vit.norm(tokens)
        return normed

    def output(self, images: Tensor) -> Tensor:
        """See `ReadableViT`."""
        tokens = self.norm(self.block_tokens(images, 1)[0])
        return tokens[:, 0] if self.has_cls else tokens.mean(dim=1)

    def calls(self, images: Tensor, stop: int = -1, *, keep: int | None = None) -> list[BlockCall]:
        """See `ReadableViT`."""
        side, (height, width) = self.patch_size[0], images.shape[2:]
        rows, columns = self.grid(height, width)
        prefix, padded = self.prefix_tokens, F.pad(images, (0, -width % side, 0, -height % side))
        shape = len(images), prefix + rows * columns, None
        words = f"[batch, tokens, width] with {prefix} prefix tokens and {rows} × {columns} patches"
        tokens = _expect("embed", self.vit.embed(padded), shape, words)
        calls = deque[BlockCall](maxlen=keep)
        for index in range(self.block_index(stop) + 1):
            tokens = calls[-1]() if calls else tokens
            calls.append(partial(self._run, tokens, index))
        return list(calls)

    def _run(self, tokens: Tensor, block: int) -> Tensor:
        words = f"{list(tokens.shape)}, as it received"
        return _expect(f"block {block}", self.vit.blocks[block](tokens), tokens.shape, words)

    def queries_and_keys(self, call: BlockCall) -> FusedCall:
        """See `ReadableViT`."""
        tokens, block = call.args
        pair: Any = self.vit.queries_keys(block, tokens)
        shape = [len(tokens), self.heads, tokens.shape[1]]
        words = f"queries and keys [batch, heads, tokens, d] = {shape} and d"
        parts = pair if isinstance(pair, tuple | list | Tensor) and len(pair) == 2 else (pair, pair)
        query = _expect("queries_keys", parts[0], [*shape, None], words)
        return query, _expect("queries_keys", parts[1], query.shape, words), None


def _expect(code: str, value: object, shape: Sequence[int | None], words: str) -> Tensor:
    """Return what own code gave; raise ValueError unless it is a tensor of this shape (None: any number)."""
    found = list(value.shape) if isinstance(value, Tensor) else []
    fits = [wanted in (None, own) for wanted, own in zip(shape, found, strict=False)]
    if isinstance(value, Tensor) and len(found) == len(shape) and all(fits):
        return value
    raise ValueError(f"{code} returned {found or type(value).__name__}, expected {words}")


def find_vit(model: Layer) -> ReadableViT | None:
    """Return access to the tokens of a ViT of `FAMILIES` or of `protocol.ViT`, None for another model.

    Raises ValueError for a module of the protocol with invalid attributes.
    """
    if family := family_of(model):
        return ReadableViT(model, family)
    return ModuleViT(vit) if (vit := as_protocol(model)) else None


def readable(model: Layer) -> ReadableViT:
    """Return access to the attention of a ViT of `FAMILIES` or of `protocol.ViT`.

    Raises:
        ValueError: A model or layer whose attention cannot be read, and why.
    """
    kind = type(model).__name__
    if (vit := find_vit(model)) is None:
        families = ", ".join(family.kind.__name__ for family in FAMILIES)
        raise ValueError(
            f"the attention of a {kind} cannot be read: expected one of timm's {families}, or a module that "
            f"fulfils dino_model.models.protocol.ViT, but this one lacks {', '.join(missing_names(model))}. "
            "Choose a ViT, such as 'dino_vits16'; `python -m dino_model show NAME` names a model's maps"
        )
    if (family := family_of(model)) is None:
        return vit
    embedding: Layer = model.patch_embed
    if not isinstance(embedding, PatchEmbed | xcit.ConvPatchEmbed):
        raise ValueError(
            f"the attention of this {kind} cannot be read: its patches are not cut from the image but from "
            f"the output of {type(embedding).__name__}. Choose a ViT without such a stem"
        )
    for number, block in enumerate(model.blocks):
        for layer in (block, getattr(block, "attn", None)):
            if type(layer) not in family.attention:
                raise ValueError(f"block {number} has a {type(layer).__name__}, which cannot be read")
    return vit


@torch.no_grad()
def attention_rows(model: nn.Module, images: Tensor, queries: Queries, block: int = -1) -> Tensor:
    """Compute softmax attention of chosen query tokens over all tokens, for every head of one block.

    Later blocks do not run. The precision is that of the weights or of a surrounding `torch.autocast`; the
    softmax is always fp32. Call `.eval()` on the model first.

    Args:
        model: A ViT that `readable` supports.
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
    query, key, bias = vit.queries_and_keys(vit.calls(images, block, keep=1)[0])
    count = key.shape[2]
    wrong = [number for number in queries or () if not 0 <= number < count]
    if wrong:
        raise ValueError(f"no query token {wrong[0]}: the image has {count} tokens, 0 to {count - 1}")
    return attention_of(query, key, bias, queries)


def attention_of(query: Tensor, key: Tensor, bias: Tensor | None = None, queries: Queries = None) -> Tensor:
    """Compute softmax(q · k / sqrt(d) + bias) in fp32, whatever a surrounding autocast says."""
    selected = slice(None) if queries is None else list(queries)
    with torch.autocast(key.device.type, enabled=False):
        query = query[..., selected, :].float() / math.sqrt(query.shape[-1])
        scores = query @ key.float().transpose(-2, -1)
        return (scores if bias is None else scores + bias[..., selected, :].float()).softmax(dim=-1)


@contextmanager
def fused_calls(module: nn.Module, stop: int | None = None) -> Iterator[list[FusedCall]]:
    """Collect the calls of torch's fused attention while a module of timm computes; `stop` calls end it."""
    calls: list[FusedCall] = []

    def receive(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
        calls.append((query, key, bias))
        if len(calls) == stop:
            raise _Stop
        return query, key, value

    with _FUSED_FLAGS:  # another thread would reset the flags while this one computes
        unfused = [layer for layer in module.modules() if getattr(layer, "fused_attn", None) is False]
        for layer in unfused:
            layer.fused_attn = True  # type: ignore[assignment]
        try:
            with _FusedAttention(receive), suppress(_Stop):
                yield calls
        finally:
            for layer in unfused:
                layer.fused_attn = False  # type: ignore[assignment]


def accept_any_size(model: Layer, name: str = "") -> None:
    """Let a model of timm take images of any size: padded with zeros, with resampled positions.

    It is changed in place. Its name has the mark of its family, see `PublishedFamily.positions`.
    """
    family = family_of(model)
    if family and (family.fixed_grid or family.late_class):
        model.forward_features = MethodType(_forward_features, model)
    learned = isinstance(model, VisionTransformer) and model.pos_embed is not None
    if learned and not hasattr(model, "dist_token"):
        position.install(model, position_mode(name))


def _forward_features(model: Layer, images: Tensor) -> Tensor:
    model, images = _fit_to_patches(model, images)
    tokens: Tensor = type(model).forward_features(model, images)
    return tokens


def _fit_to_patches(vit: Layer, images: Tensor) -> tuple[Layer, Tensor]:
    """Return images of whole patches, and the model or a copy for their size that shares its other weights.

    timm builds a Beit or Cait for one image size; its other families resample positions themselves.
    """
    patch = to_2tuple(vit.patch_embed.patch_size)
    grid = patch_grid(vit, *images.shape[2:])
    size = grid[0] * patch[0], grid[1] * patch[1]
    images = F.pad(images, (0, size[1] - images.shape[3], 0, size[0] - images.shape[2]))
    family = family_of(vit)
    if family is None or not family.fixed_grid:
        if getattr(vit.patch_embed, "strict_img_size", False) and size != vit.patch_embed.img_size:
            height, width = vit.patch_embed.img_size
            raise ValueError(
                f"this {type(vit).__name__} takes images of {height} × {width}, found {size[0]} × {size[1]}: "
                f"create it with dynamic_img_size=True, or choose size={height}, resize='squash'"
            )
        return vit, images
    if grid == vit.patch_embed.grid_size:
        return vit, images
    shared = {id(tensor): tensor for tensor in (*vit.parameters(), *vit.buffers())}
    sized = copy.deepcopy(vit, shared)
    if isinstance(sized, beit.Beit):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of timm, on its own indexing
            sized.set_input_size(size)
    else:
        positions = resample_abs_pos_embed(
            vit.pos_embed, grid, vit.patch_embed.grid_size, num_prefix_tokens=0
        )
        sized.pos_embed = nn.Parameter(positions, requires_grad=False)
        sized.patch_embed.set_input_size(size)
    return sized, images


class _Stop(Exception):
    """Signal that all requested blocks are computed."""


class _RecordedBlock(nn.Module):
    def __init__(self, block: nn.Module, calls: deque[BlockCall], stops: bool) -> None:
        super().__init__()
        self.block, self.calls, self.stops = block, calls, stops

    def forward(self, *arguments: Any, **options: Any) -> Tensor:
        call = partial(self.block, *arguments, **options)
        self.calls.append(call)
        if self.stops:
            raise _Stop
        return call()


class _FusedAttention(TorchFunctionMode):
    """Pass queries, keys, values and bias of torch's fused attention through a function."""

    def __init__(self, receive: Callable[..., tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.receive = receive

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention:
            args = self.receive(*args, kwargs.get("attn_mask"))
        return function(*args, **kwargs)


def _contiguous(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    """Store each head in one piece: without AMX, torch's kernel for CPUs is then 1.2 times faster."""
    return query.contiguous(), key.contiguous(), value.contiguous()
