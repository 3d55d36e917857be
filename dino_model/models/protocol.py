"""Protocol of a ViT of any code base whose attention can be read, with two worked examples."""

from typing import Any, Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from timm.layers import to_2tuple
from torch import Tensor, nn

from dino_model.models.position import resample


@runtime_checkable
class ViT(Protocol):
    """A `torch.nn.Module` that every command and the page can use, by the name `MODULE:FUNCTION`.

    Errors that no shape shows are not detected: exchanged or scaled queries and keys, another order of the
    heads or patches, a norm that the blocks do not apply. Compare the maps of one block with the attention of
    your own code on `AttentionPredictor.input_tensor`.

    Attributes:
        mean, std: Normalization of its images, per channel on a scale of 0 to 1. `AttentionPredictor` also
            takes both as arguments.
        blocks: Each maps tokens [batch, tokens, width] to tokens of the same shape.
        heads: Attention heads of a block.
        patch_size: Side of a patch in pixels.
        prefix_tokens: Tokens before the patches, of which the first is [CLS]; 0 without [CLS].
    """

    blocks: Any
    heads: int
    patch_size: int
    prefix_tokens: int

    def embed(self, images: Tensor) -> Tensor:
        """Compute the tokens that enter the first block, the patches row by row.

        Args:
            images: Normalized, [batch, channels, height, width], sides in whole patches.
        """

    def queries_keys(self, block: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Compute queries and keys [batch, heads, tokens, d] of a block from the tokens that enter it.

        The attention of the block is softmax(q · k / sqrt(d)).
        """

    def norm(self, tokens: Tensor) -> Tensor:
        """Apply the final norm to the output of the last block."""


class FacebookViT(nn.Module):
    """The `VisionTransformer` of facebookresearch/dino, and of facebookresearch/dinov2."""

    def __init__(self, vit: Any) -> None:
        super().__init__()
        self.vit = vit
        chunks = (part if isinstance(part, nn.ModuleList) else [part] for part in vit.blocks)  # of DINOv2
        blocks: list[Any] = [block for chunk in chunks for block in chunk]
        self.blocks = [block for block in blocks if not isinstance(block, nn.Identity)]
        self.heads = self.blocks[0].attn.num_heads
        self.patch_size = to_2tuple(vit.patch_embed.patch_size)[0]
        self.prefix_tokens = 1 + getattr(vit, "num_register_tokens", 0)
        self.norm = vit.norm

    def embed(self, images: Tensor) -> Tensor:
        """See `ViT`."""
        prepare = getattr(self.vit, "prepare_tokens_with_masks", None) or self.vit.prepare_tokens
        return cast(Tensor, prepare(images))

    def queries_keys(self, block: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """See `ViT`."""
        layer = self.blocks[block]
        projections = layer.attn.qkv(layer.norm1(tokens)).unflatten(-1, (3, self.heads, -1))
        query, key, _ = projections.permute(2, 0, 3, 1, 4)
        usual = query.shape[-1] ** -0.5
        return query * (getattr(layer.attn, "scale", usual) / usual), key  # an own scale: its qk_scale


class TorchvisionViT(nn.Module):
    """The `VisionTransformer` of torchvision, for images of any size."""

    prefix_tokens = 1

    def __init__(self, vit: Any) -> None:
        super().__init__()
        self.vit = vit
        self.blocks = list(vit.encoder.layers)
        self.heads = self.blocks[0].num_heads
        self.patch_size = vit.patch_size
        self.norm = vit.encoder.ln

    def embed(self, images: Tensor) -> Tensor:
        """See `ViT`."""
        patches = self.vit.conv_proj(images)
        side, grid = self.vit.image_size // self.patch_size, (patches.shape[2], patches.shape[3])
        tokens = torch.cat([self.vit.class_token.expand(len(images), -1, -1), patches.flatten(2).mT], dim=1)
        return tokens + resample(self.vit.encoder.pos_embedding, (side, side), grid)

    def queries_keys(self, block: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """See `ViT`."""
        layer = self.blocks[block]
        attention = layer.self_attention
        projections = F.linear(layer.ln_1(tokens), attention.in_proj_weight, attention.in_proj_bias)
        query, key, _ = projections.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return query, key


def missing_names(model: object) -> list[str]:
    """Return the attributes and methods of `ViT` that a model lacks."""
    names = (*ViT.__annotations__, *(name for name in vars(ViT) if not name.startswith("_")))
    return [name for name in names if not hasattr(model, name)]


def as_protocol(model: nn.Module) -> Any:
    """Return a model as `ViT`: itself if it fulfils the protocol, an adapter of a known kind, else None."""
    if isinstance(model, ViT):
        return model
    if hasattr(model, "queries_keys"):  # it is meant to fulfil the protocol
        return None
    names = {name for name in dir(model) if not name.startswith("_")}
    if names >= {"blocks", "norm", "patch_embed"} and names & {"prepare_tokens", "prepare_tokens_with_masks"}:
        return FacebookViT(model)
    if names >= {"conv_proj", "class_token", "encoder", "image_size"}:
        return TorchvisionViT(model)
    return None
