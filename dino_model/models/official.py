"""Backbones from tensors that DINOv2 and DINOv3 publish, and from transformers' ViT under the same names.

timm's `checkpoint_filter_fn` converts the names. The architecture is read from the tensors; the heads of all
models but the largest DINOv3 are 64 wide. Source: models/vision_transformer.py of facebookresearch/dinov2 and
facebookresearch/dinov3.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import timm
from timm.layers import SwiGLUPacked
from timm.models import eva, vision_transformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model.models.checkpoints import WeightsError, load_strictly

HEAD_WIDTHS = {4096: 128}  # by width of the model, if not 64


def family(tensors: Mapping[str, Tensor]) -> str:
    """Return dinov2, dinov2_with_registers or dinov3_vit, transformers' names; empty for other tensors."""
    if "storage_tokens" in tensors:
        return "dinov3_vit"
    is_dinov2 = {"pos_embed", "mask_token", "blocks.0.ls1.gamma"} <= set(tensors)
    return ("dinov2_with_registers" if "register_tokens" in tensors else "dinov2") if is_dinov2 else ""


def load_official(
    tensors: Mapping[str, Tensor],
    where: str,
    *,
    heads: int | None = None,
    eps: float | None = None,
    theta: float = 100.0,
) -> nn.Module:
    """Build a ViT, DINOv2 or DINOv3 for images of any size from its tensors.

    Args:
        tensors: Under official names.
        where: Name of their file for messages.
        heads: Attention heads. Default: 64 wide.
        eps: Epsilon of the norms. Default: 1e-5 for DINOv3, else 1e-6.
        theta: Base of DINOv3's rotary positions.

    Raises:
        WeightsError: Tensors that describe no such model.
    """
    try:
        backbone = _empty(tensors, heads, eps, theta)
        if "storage_tokens" in tensors:
            converted = eva.checkpoint_filter_fn(dict(tensors), backbone)
        else:  # timm takes a mask token as the mark of DINOv2's names
            converted = vision_transformer.checkpoint_filter_fn({"mask_token": None, **tensors}, backbone)
    except (KeyError, ValueError, RuntimeError) as error:
        raise WeightsError(f"{where} does not describe a ViT, DINOv2 or DINOv3: {error!r}") from error
    load_strictly(backbone, converted, where)
    return backbone


def _empty(
    tensors: Mapping[str, Tensor], heads: int | None, eps: float | None, theta: float
) -> VisionTransformer | eva.Eva:
    """A ViT or DINOv2, or timm's DINOv3, with the sizes of the tensors."""
    width, channels, patch_size, _ = tensors["patch_embed.proj.weight"].shape
    first = {layer: tensors.get(f"blocks.0.mlp.{layer}.weight") for layer in ("fc1", "w12", "w1")}
    hidden = next((weight.shape[0] for weight in first.values() if weight is not None), 0)
    shape: dict[str, Any] = {
        "patch_size": patch_size,
        "in_chans": channels,
        "num_classes": 0,
        "embed_dim": width,
        "depth": 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks.")),
        "num_heads": heads or width // HEAD_WIDTHS.get(width, 64),
        "mlp_ratio": hidden / width,
        "qkv_bias": "blocks.0.attn.qkv.bias" in tensors,
        "dynamic_img_size": True,
        "dynamic_img_pad": True,
    }
    if "storage_tokens" in tensors:
        gated = first["w1"] is not None
        shape |= {"swiglu_mlp": gated, "swiglu_align_to": int(gated), "rope_temperature": theta}
        shape |= {"num_reg_tokens": tensors["storage_tokens"].shape[1], "global_pool": "token"}
        norm = partial(nn.LayerNorm, eps=eps or 1e-5)
        return timm.create_model("vit_small_patch16_dinov3", norm_layer=norm, **shape)
    if first["w12"] is not None:
        shape |= {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU}
    registers = tensors.get("register_tokens")
    return VisionTransformer(
        img_size=math.isqrt(tensors["pos_embed"].shape[1] - 1) * patch_size,
        init_values=1.0 if "blocks.0.ls1.gamma" in tensors else None,
        reg_tokens=0 if registers is None else registers.shape[1],
        no_embed_class=registers is not None,  # then positions are for patches alone
        norm_layer=partial(nn.LayerNorm, eps=eps or 1e-6),
        **shape,
    )
