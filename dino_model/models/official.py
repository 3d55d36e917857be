"""Build ViTs from bare tensors under the names of DINOv2, DINOv3, DeiT, MAE and timm.

The architecture is read from names and shapes. timm's `checkpoint_filter_fn` converts the names of DINOv2 and
DINOv3. Source: models/vision_transformer.py of facebookresearch/dinov2 and facebookresearch/dinov3.
"""

import math
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import timm
import torch
from timm.layers import SwiGLUPacked
from timm.models import deit, eva, vision_transformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model.models.catalogue import WeightsError
from dino_model.models.checkpoint import load_strictly


def family(tensors: Mapping[str, Tensor]) -> str:
    """Return dinov2, dinov2_with_registers or dinov3_vit, transformers' names; empty for other tensors."""
    if "storage_tokens" in tensors:
        return "dinov3_vit"
    is_dinov2 = {"pos_embed", "mask_token", "blocks.0.ls1.gamma"} <= set(tensors)
    return ("dinov2_with_registers" if "register_tokens" in tensors else "dinov2") if is_dinov2 else ""


def rename_timm(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of timm's DINOv3 to their official names; return other tensors as they are."""
    renamed = dict(tensors)
    if "pos_embed" in tensors or not {"reg_token", "blocks.0.gamma_1"} <= set(tensors):
        return renamed
    renamed["storage_tokens"] = renamed.pop("reg_token")
    for name in [name for name in renamed if name.endswith(".attn.q_bias")]:
        query, block = renamed.pop(name), name.removesuffix("q_bias")
        value = renamed.pop(f"{block}v_bias")
        renamed[f"{block}qkv.bias"] = torch.cat([query, torch.zeros_like(query), value])  # keys have none
    if "blocks.0.mlp.fc1_g.weight" in renamed:
        gated = {".fc1_g.": ".w1.", ".fc1_x.": ".w2.", ".fc2.": ".w3."}
        pattern = re.compile("|".join(map(re.escape, gated)))
        renamed = {pattern.sub(lambda m: gated[m[0]], name): value for name, value in renamed.items()}
    return renamed


def is_plain(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether a ViT has the parts of DINO's alone; `BackboneConfig` describes no others."""
    if "pos_embed" in tensors and tensors["pos_embed"].ndim == 3:
        count = tensors["pos_embed"].shape[1] - 1
        if count < 1 or math.isqrt(count) ** 2 != count:
            return False
    first = {name.removeprefix("blocks.0."): tensor for name, tensor in tensors.items()}
    parts = {
        name for name in first if re.match(r"ls1\.|gamma_1|attn\.q_norm|mlp\.w|(fc_norm|\w+_token)", name)
    }
    widths = [first[name].shape[-1] for name in ("mlp.fc1.weight", "mlp.fc2.weight") if name in first]
    is_usual = "attn.qkv.bias" in first and (len(widths) < 2 or widths[1] == 4 * widths[0])
    return parts <= {"cls_token", "mask_token"} and "cls_token" in first and is_usual


def load_official(
    tensors: Mapping[str, Tensor],
    where: str,
    *,
    heads: int,
    eps: float | None = None,
    theta: float = 100.0,
) -> nn.Module:
    """Build a ViT for images of any size from its tensors.

    Args:
        tensors: Under the names of one of the families.
        where: Name of their file for messages.
        heads: Attention heads.
        eps: Epsilon of the norms. Default: 1e-5 for DINOv3, else 1e-6.
        theta: Base of DINOv3's rotary positions.

    Raises:
        WeightsError: Tensors that describe no such model.
    """
    tensors = {re.sub(r"\.gamma_([12])$", r".ls\1.gamma", name): value for name, value in tensors.items()}
    try:
        backbone = _empty(tensors, heads, eps, theta)
        if "storage_tokens" in tensors:
            converted = eva.checkpoint_filter_fn(dict(tensors), backbone)
        else:  # timm takes a mask token as the mark of DINOv2's names
            converted = vision_transformer.checkpoint_filter_fn({**tensors, "mask_token": None}, backbone)
    except (KeyError, ValueError, RuntimeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise WeightsError(f"{where} does not describe a ViT, DINOv2 or DINOv3: {reason}") from error
    load_strictly(backbone, converted, where)
    return backbone


def _empty(
    tensors: Mapping[str, Tensor], heads: int, eps: float | None, theta: float
) -> VisionTransformer | eva.Eva:
    """A ViT or DINOv2, or timm's DINOv3, with the sizes of the tensors."""
    width, channels, patch_size, _ = tensors["patch_embed.proj.weight"].shape
    first = {layer: tensors.get(f"blocks.0.mlp.{layer}.weight") for layer in ("fc1", "fc2", "w12", "w1")}
    hidden = next((first[layer] for layer in ("fc1", "w12", "w1") if first[layer] is not None), None)
    shape: dict[str, Any] = {
        "patch_size": patch_size,
        "in_chans": channels,
        "num_classes": 0,
        "embed_dim": width,
        "depth": 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks.")),
        "num_heads": heads,
        "mlp_ratio": (0 if hidden is None else hidden.shape[0]) / width,
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
    packed = (
        first["fc1"] is not None
        and first["fc2"] is not None
        and len(first["fc1"]) == 2 * first["fc2"].shape[1]
    )
    if packed or first["w12"] is not None:
        shape |= {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU}
    return _plain_vit(tensors, shape, partial(nn.LayerNorm, eps=eps or 1e-6))


def _plain_vit(tensors: Mapping[str, Tensor], shape: dict[str, Any], norm: Any) -> VisionTransformer:
    """A ViT with learned positions; its prefix tokens and pooling follow from the tensors."""
    has_cls, pooled = "cls_token" in tensors, "fc_norm.weight" in tensors
    registers = tensors.get("register_tokens", tensors.get("reg_token"))
    extra = 0 if registers is None else registers.shape[1]
    prefix = has_cls + extra + ("dist_token" in tensors)
    count = tensors["pos_embed"].shape[1]
    # DINOv2's registers have no position, and [CLS] has one; in timm either all of them have, or none has.
    carried = (1,) if "register_tokens" in tensors else (prefix, 0)
    side = next(
        (math.isqrt(count - n) for n in carried if math.isqrt(max(count - n, 0)) ** 2 == count - n), 0
    )
    if not side:
        raise ValueError(f"{count} positions and {prefix} prefix tokens are no square grid")
    options: dict[str, Any] = shape | {
        "img_size": side * shape["patch_size"],
        "norm_layer": norm,
        "init_values": 1.0 if "blocks.0.ls1.gamma" in tensors else None,
        "qk_norm": "blocks.0.attn.q_norm.weight" in tensors,
        "reg_tokens": extra,
        "no_embed_class": "register_tokens" in tensors or count == side * side,
        "class_token": has_cls,
        "fc_norm": pooled,
        "global_pool": "token" if has_cls and not pooled else "avg",
    }
    kind = deit.VisionTransformerDistilled if "dist_token" in tensors else VisionTransformer
    return kind(**options)
