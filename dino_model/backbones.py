"""Backbones over timm: ViTs of any patch size for pictures of any size, and ResNet-50.

Every backbone maps images [batch, channels, height, width] to one feature per image [batch, width]: the [CLS]
token after the final norm for a ViT (section 3.2 of the paper), the pooled feature map for a ResNet.
"""

from functools import partial
from typing import Any

import timm
import torch
from timm.layers import SwiGLUPacked
from timm.models.eva import Eva
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
        position.init_sincos(vit)
    position.install(vit, config.position_mode)
    return vit


def build_vit(
    *,
    image_size: int,
    patch_size: int,
    channels: int,
    width: int,
    depth: int,
    heads: int,
    hidden: int,
    registers: int = 0,
    gated: bool = False,
    layer_scale: bool = False,
    qkv_bias: bool = True,
    eps: float = 1e-6,
) -> VisionTransformer:
    """Build a ViT as DINO, DINOv2 and transformers' ViT have it, for images of any size.

    Args:
        image_size: Side in pixels of the image whose patch grid the position embeddings are learned on.
        patch_size: Side of a patch in pixels.
        channels, width, depth, heads: Input channels, features per token, blocks, attention heads.
        hidden: Outputs of the first layer of each MLP; of both its halves if `gated`.
        registers: Register tokens. With them, position embeddings are for patches alone.
        gated: SwiGLU instead of GELU.
        layer_scale, qkv_bias, eps: Learned scale after each layer, bias of queries, keys and values, epsilon
            of the layer norms.
    """
    gates: dict[str, Any] = {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU} if gated else {}
    return VisionTransformer(
        img_size=image_size,
        patch_size=patch_size,
        in_chans=channels,
        num_classes=0,
        embed_dim=width,
        depth=depth,
        num_heads=heads,
        mlp_ratio=hidden / width,
        qkv_bias=qkv_bias,
        init_values=1.0 if layer_scale else None,
        reg_tokens=registers,
        no_embed_class=bool(registers),
        norm_layer=partial(nn.LayerNorm, eps=eps),
        dynamic_img_size=True,
        dynamic_img_pad=True,
        **gates,
    )


def build_dinov3(
    *,
    patch_size: int,
    channels: int,
    width: int,
    depth: int,
    heads: int,
    hidden: int,
    registers: int = 4,
    gated: bool = False,
    qkv_bias: bool = True,
    theta: float = 100.0,
    eps: float = 1e-5,
) -> Eva:
    """Build a DINOv3: rotary positions with base `theta`, layer scale; other arguments as `build_vit`."""
    return Eva(
        patch_size=patch_size,
        in_chans=channels,
        num_classes=0,
        global_pool="token",
        embed_dim=width,
        depth=depth,
        num_heads=heads,
        qkv_bias=qkv_bias,
        mlp_ratio=hidden / width,
        swiglu_mlp=gated,
        swiglu_align_to=int(gated),
        init_values=1.0,
        num_reg_tokens=registers,
        use_abs_pos_emb=False,
        use_rot_pos_emb=True,
        rope_type="dinov3",
        rope_temperature=theta,
        rope_rotate_half=True,
        use_fc_norm=False,
        norm_layer=partial(nn.LayerNorm, eps=eps),
        dynamic_img_size=True,
        dynamic_img_pad=True,
    )


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
