"""Build backbones with timm: ViTs of any patch and image size, and ResNet-50.

Every backbone maps images [batch, channels, height, width] to one feature per image [batch, width]: the [CLS]
token after the final norm for a ViT (section 3.2 of the paper), the pooled feature map for a ResNet.
"""

from typing import Any, NamedTuple, cast

import timm
import torch
import torch.nn.functional as F
from timm.layers import SwiGLUPacked, to_2tuple
from timm.models.vision_transformer import Attention, VisionTransformer
from torch import Tensor, nn

from dino_model.models import position
from dino_model.models.configs import ARCHITECTURES, BackboneConfig
from dino_model.runtime.precision import ComputePrecision


def create_backbone(config: BackboneConfig) -> nn.Module:
    """Create a backbone with random weights; ValueError for an unknown architecture or impossible sizes.

    A ViT takes images of any size: they are padded with zeros at the bottom and the right to whole patches.
    Parameter names equal those of the official DINO checkpoints.
    """
    if config.architecture not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {config.architecture!r}: choose {', '.join(ARCHITECTURES)}")
    if config.architecture == "resnet50":
        # torchvision's start, as in the official code: no branch begins at zero.
        return timm.create_model("resnet50", num_classes=0, in_chans=config.in_channels, zero_init_last=False)
    width, depth, heads = config.vit_shape()
    sizes = {"in_channels": config.in_channels, "patch_size": config.patch_size}
    for name, value in (sizes | {"width": width, "depth": depth, "heads": heads}).items():
        if value < 1:
            raise ValueError(f"{name} is {value}, expected at least 1")
    if config.image_size < config.patch_size:
        raise ValueError(f"image_size {config.image_size} is smaller than one patch of {config.patch_size}")
    if width % heads:
        raise ValueError(f"width {width} cannot be split over {heads} heads: choose a multiple of {heads}")
    if not 0 <= config.drop_path < 1:
        raise ValueError(f"drop_path is {config.drop_path}, expected at least 0 and below 1")
    is_giant, layer_scale, swiglu = config.architecture == "vit_giant", config.layer_scale, dict[str, Any]()
    if layer_scale is None:
        layer_scale = 1e-5 if is_giant else 0.0
    if config.mlp == "swiglu" or (config.mlp == "auto" and is_giant):  # as timm's `vit_giant_patch14_dinov2`
        swiglu = {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU, "mlp_ratio": 2.66667 * 2}
    vit = VisionTransformer(
        img_size=config.image_size,
        patch_size=config.patch_size,
        in_chans=config.in_channels,
        num_classes=0,
        embed_dim=width,
        depth=depth,
        num_heads=heads,
        init_values=layer_scale or None,
        drop_path_rate=config.drop_path,
        dynamic_img_size=True,
        dynamic_img_pad=True,
        **swiglu,
    )
    # timm starts [CLS] at 1e-6; DINO draws it like every other weight.
    nn.init.trunc_normal_(vit.cls_token, std=0.02)
    if config.position_start == "sincos":
        rows, columns = vit.patch_embed.grid_size
        embedding = position.sincos_embedding(rows, columns, width)
        vit.pos_embed.data[0, 1:] = 0.7 * embedding  # 0.7: the scale of patch tokens
    position.install(vit, config.position_mode)
    return vit


def choose_training_attention(model: nn.Module, device: torch.device, precision: ComputePrecision) -> None:
    """Choose the faster attention for training: explicit in bf16 on a CPU, fused elsewhere.

    At the few hundred tokens of a crop, torch's fused bf16 kernel for CPUs takes three times as long.
    """
    for module in model.modules():
        if isinstance(module, Attention):
            module.fused_attn = not (device.type == "cpu" and precision == "bf16")


def traits(backbone: nn.Module) -> dict[str, object]:
    """Return the settings that weights depend on, except the learned grid, by names of `BackboneConfig`."""
    if not isinstance(backbone, VisionTransformer):
        return {"architecture": type(backbone).__name__}
    return {
        "patch_size": backbone.patch_embed.patch_size[0],
        "width": backbone.embed_dim,
        "depth": len(backbone.blocks),
        "heads": backbone.blocks[0].attn.num_heads,
        "position_mode": getattr(backbone, "position_mode", None),
    }


class Features(NamedTuple):
    """Output of a backbone; leading axes are those of the images."""

    cls: Tensor
    """The feature of each image: [CLS] of a ViT, the pooled map of a ResNet [..., width]."""
    patches: Tensor
    """Patches of a ViT after the final norm, or positions of a ResNet's last map [..., patches, width]."""


class MaskedPatches(NamedTuple):
    """Patches that a token replaces before the first block."""

    masked: Tensor
    """bool [batch, patches]."""
    token: Tensor
    """[width]."""


def compute_features(
    backbone: nn.Module, images: Tensor, visible: Tensor | None = None, masked: MaskedPatches | None = None
) -> Features:
    """Compute the features of images [batch, channels, height, width]: of [CLS] and of every patch.

    Args:
        backbone: A ViT if `visible` or `masked` is given.
        images: Images of one size.
        visible: Numbers of the patches that each image keeps, row by row: [batch, visible]. The others are
            left out, as if they did not exist. None: all.
        masked: Patches that are replaced. None: none.
    """
    network: Any = backbone
    if not hasattr(backbone, "blocks"):
        maps = network.forward_features(images)
        return Features(network.forward_head(maps), maps.flatten(2).mT)
    tokens = network.norm(network.blocks(embed_patches(network, images, visible, masked)))
    return Features(network.forward_head(tokens), tokens[:, network.num_prefix_tokens :])


def embed_patches(
    vit: Any, images: Tensor, visible: Tensor | None = None, masked: MaskedPatches | None = None
) -> Tensor:
    """Compute the input of a ViT's first block, [batch, tokens, width]; arguments as `compute_features`."""
    embedded = project_patches(vit.patch_embed, images)  # [batch, rows, columns, width]
    if masked is not None:
        where = masked.masked.unflatten(1, embedded.shape[1:-1])[..., None]
        embedded = torch.where(where, masked.token.to(embedded.dtype), embedded)
    tokens: Tensor = vit.norm_pre(vit._pos_embed(embedded))
    if visible is None:
        return tokens
    prefix, patches = tokens.tensor_split((vit.num_prefix_tokens,), dim=1)
    return torch.cat([prefix, patches.take_along_dim(visible[..., None], dim=1)], dim=1)


def project_patches(embedding: Any, images: Tensor) -> Tensor:
    """Compute timm's PatchEmbed, [batch, rows, columns, width]; under autocast as a product of patches.

    The convolutions of cuDNN and oneDNN take longer in half precision.
    """
    device, (rows, columns) = images.device.type, embedding.patch_size
    if not torch.is_autocast_enabled(device) or images.shape[-2] % rows or images.shape[-1] % columns:
        return cast(Tensor, embedding(images))
    reduced = images.to(torch.get_autocast_dtype(device))
    grid = reduced.unflatten(3, (-1, columns)).unflatten(2, (-1, rows)).permute(0, 2, 4, 1, 3, 5)
    projected = F.linear(grid.flatten(3), embedding.proj.weight.flatten(1), embedding.proj.bias)
    return cast(Tensor, embedding.norm(projected))


def patch_grid(vit: Any, height: int, width: int) -> tuple[int, int]:
    """Return the rows and columns of patches of an image of this size, padding included."""
    patch_height, patch_width = to_2tuple(vit.patch_embed.patch_size)
    return -(-height // patch_height), -(-width // patch_width)
