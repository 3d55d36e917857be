"""Backbones from the .pth files that DINOv2 and DINOv3 publish.

timm's `checkpoint_filter_fn` converts the names. The architecture is read from the tensors: patch size,
width, depth and registers. The heads of all models but the largest DINOv3 are 64 wide.
"""

import math
from collections.abc import Mapping

from timm.models import eva, vision_transformer
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model import position
from dino_model.backbones import build_dinov3, build_vit
from dino_model.checkpoints import WeightsError, load_strictly

HEAD_WIDTHS = {4096: 128}  # by width of the model, if not 64


def is_official(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether tensors have the names of a DINOv2 or DINOv3 backbone."""
    return "storage_tokens" in tensors or {"pos_embed", "mask_token", "blocks.0.ls1.gamma"} <= set(tensors)


def load_official(tensors: Mapping[str, Tensor], where: str) -> tuple[nn.Module, str]:
    """Build the backbone of an official DINOv2 or DINOv3 file, whose name for messages is `where`.

    Returns:
        Backbone for images of any size, whose positions are resampled as officially, and the family's name.

    Raises:
        WeightsError: Tensors that describe no such model.
    """
    try:
        if "storage_tokens" in tensors:
            backbone: nn.Module = _dinov3(tensors)
            converted = eva.checkpoint_filter_fn(dict(tensors), backbone)
            family = "DINOv3"
        else:
            backbone = _dinov2(tensors)
            converted = vision_transformer.checkpoint_filter_fn(dict(tensors), backbone)
            registers = "register_tokens" in tensors
            position.install(backbone, position.official_mode("reg4_dinov2" if registers else "dinov2"))
            family = "DINOv2 with registers" if registers else "DINOv2"
    except (KeyError, ValueError, RuntimeError) as error:
        raise WeightsError(f"{where} does not describe a DINOv2 or DINOv3 backbone: {error!r}") from error
    load_strictly(backbone, converted, where)
    return backbone, family


def _dinov2(tensors: Mapping[str, Tensor]) -> VisionTransformer:
    """An empty DINOv2. Source: facebookresearch/dinov2, models/vision_transformer.py."""
    width, channels, patch_size, _ = tensors["patch_embed.proj.weight"].shape
    gated = "blocks.0.mlp.w12.weight" in tensors
    return build_vit(
        image_size=math.isqrt(tensors["pos_embed"].shape[1] - 1) * patch_size,
        patch_size=patch_size,
        channels=channels,
        width=width,
        depth=_depth(tensors),
        heads=width // 64,
        hidden=tensors["blocks.0.mlp.w12.weight" if gated else "blocks.0.mlp.fc1.weight"].shape[0],
        registers=tensors["register_tokens"].shape[1] if "register_tokens" in tensors else 0,
        gated=gated,
        layer_scale=True,
    )


def _dinov3(tensors: Mapping[str, Tensor]) -> Eva:
    """An empty DINOv3. Source: facebookresearch/dinov3, models/vision_transformer.py."""
    width, channels, patch_size, _ = tensors["patch_embed.proj.weight"].shape
    gated = "blocks.0.mlp.w1.weight" in tensors
    return build_dinov3(
        patch_size=patch_size,
        channels=channels,
        width=width,
        depth=_depth(tensors),
        heads=width // HEAD_WIDTHS.get(width, 64),
        hidden=tensors["blocks.0.mlp.w1.weight" if gated else "blocks.0.mlp.fc1.weight"].shape[0],
        registers=tensors["storage_tokens"].shape[1],
        gated=gated,
        qkv_bias="blocks.0.attn.qkv.bias" in tensors,
    )


def _depth(tensors: Mapping[str, Tensor]) -> int:
    return 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks."))
