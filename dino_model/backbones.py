"""Backbones over timm: ViTs of any patch size for pictures of any size, and ResNet-50.

Every backbone maps images [batch, channels, height, width] to one feature per image [batch, width]: the [CLS]
token after the final norm for a ViT (section 3.2 of the paper), the pooled feature map for a ResNet.
"""

from typing import Any

import timm
import torch
from timm.layers import SwiGLUPacked
from timm.models.vision_transformer import Attention, VisionTransformer
from torch import Tensor, nn

from dino_model import position
from dino_model.choices import ComputePrecision
from dino_model.configs import ARCHITECTURES, VIT_SHAPES, BackboneConfig

SWIGLU: dict[str, Any] = {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU, "mlp_ratio": 2.66667 * 2}
"""MLP of DINOv2's ViT-g, as timm builds it (`vit_giant_patch14_dinov2`)."""


def create_backbone(config: BackboneConfig) -> nn.Module:
    """Backbone with fresh weights.

    A ViT takes pictures of any height and width: what is missing to a multiple of the patch size is padded
    with zeros (the mean colour, after normalisation) at the bottom and the right, and the position embeddings
    are resampled to the grid. Its parameter names equal those of the official DINO checkpoints.

    Raises:
        ValueError: unknown architecture, or sizes that cannot be.
    """
    _check(config)
    if config.architecture == "resnet50":
        # torchvision's start, as in the official code: no branch begins at zero.
        return timm.create_model("resnet50", num_classes=0, in_chans=config.in_channels, zero_init_last=False)
    width, depth, heads = config.vit_shape()
    vit = VisionTransformer(
        img_size=config.image_size,
        patch_size=config.patch_size,
        in_chans=config.in_channels,
        num_classes=0,
        embed_dim=width,
        depth=depth,
        num_heads=heads,
        init_values=config.initial_layer_scale,
        drop_path_rate=config.drop_path,
        dynamic_img_size=True,
        dynamic_img_pad=True,
        **(SWIGLU if config.swiglu else {}),
    )
    # timm starts [CLS] at 1e-6; DINO draws it like every other weight.
    nn.init.trunc_normal_(vit.cls_token, std=0.02)
    if config.position_start == "sincos":
        position.start_as_waves(vit)
    position.install(vit, config.position_mode)
    return vit


def choose_training_attention(model: nn.Module, device: torch.device, precision: ComputePrecision) -> None:
    """Let every ViT block of `model` compute attention in the way that trains fastest; results are alike.

    In bf16 on a CPU that is writing the matrix out: there and back, torch's fused kernel takes three times as
    long at the few hundred tokens of a crop. In fp32 and on other devices it is the fused kernel.
    """
    for module in model.modules():
        if isinstance(module, Attention):
            module.fused_attn = not (device.type == "cpu" and precision == "bf16")


def feature_width(backbone: nn.Module) -> int:
    """Length of the feature a backbone gives for one image."""
    return int(backbone.num_features)  # type: ignore[arg-type]


def traits(backbone: nn.Module) -> dict[str, object]:
    """What weights depend on beside the learned grid, by the names of `BackboneConfig`."""
    if not isinstance(backbone, VisionTransformer):
        return {"architecture": type(backbone).__name__}
    return {
        "patch_size": backbone.patch_embed.patch_size[0],
        "width": backbone.embed_dim,
        "depth": len(backbone.blocks),
        "heads": backbone.blocks[0].attn.num_heads,
        "position_mode": getattr(backbone, "position_mode", None),
    }


def forward_tokens(vit: VisionTransformer, images: Tensor) -> Tensor:
    """All tokens after the final norm, prefix tokens first: [batch, tokens, width]."""
    tokens: Tensor = vit.forward_features(images)
    return tokens


def features_of_patches(backbone: nn.Module, images: Tensor, kept: Tensor | None = None) -> Tensor:
    """A backbone's features, a ViT's from some of its patches only, as if the others were not there.

    Args:
        backbone: any; `kept` needs a ViT.
        images: [batch, channels, height, width].
        kept: numbers of the patches, row by row, that each picture keeps: [batch, kept]. None: all.

    Returns:
        [batch, width].
    """
    vit: Any = backbone
    if kept is None:
        features: Tensor = vit(images)
        return features
    tokens = vit.norm_pre(vit._pos_embed(vit.patch_embed(images)))
    prefix, patches = tokens.tensor_split((vit.num_prefix_tokens,), dim=1)
    tokens = torch.cat([prefix, patches.take_along_dim(kept[..., None], dim=1)], dim=1)
    features = vit.forward_head(vit.norm(vit.blocks(tokens)))
    return features


def patch_grid(vit: VisionTransformer, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of patches that a picture of this size is cut into, padding included."""
    patch_height, patch_width = vit.patch_embed.patch_size
    return -(-height // patch_height), -(-width // patch_width)


def _check(config: BackboneConfig) -> None:
    if config.architecture not in ARCHITECTURES:
        raise ValueError(
            f"unknown architecture {config.architecture!r}: choose one of {', '.join(ARCHITECTURES)}"
        )
    found = {"in_channels": config.in_channels}
    is_vit = config.architecture in VIT_SHAPES
    if is_vit:
        width, depth, heads = config.vit_shape()
        found |= {"patch_size": config.patch_size, "width": width, "depth": depth, "heads": heads}
    for name, value in found.items():
        if value < 1:
            raise ValueError(f"{name} is {value}, expected at least 1")
    if is_vit:
        if config.image_size < config.patch_size:
            raise ValueError(
                f"image_size {config.image_size} is smaller than one patch of {config.patch_size} pixels"
            )
        if width % heads:
            raise ValueError(
                f"width {width} cannot be split over {heads} heads: choose a multiple of {heads}"
            )
    if not 0 <= config.drop_path < 1:
        raise ValueError(f"drop_path is {config.drop_path}, expected at least 0 and below 1")
