"""The ViTs whose tokens and attention can be read, one entry for each class of timm.

A class of another code base has an adapter in `protocol` instead, or fulfils `protocol.ViT` itself.
"""

from dataclasses import dataclass

from timm.layers import AttentionRope
from timm.models import beit, cait, eva, vision_transformer, xcit
from torch import nn


@dataclass(frozen=True)
class Family:
    """ViTs of one class of timm."""

    kind: type[nn.Module]
    title: str
    attention: tuple[type[nn.Module], ...]
    """Blocks, and the attention layers in them, that compute softmax(q · k / sqrt(d) + bias)."""
    late_class: bool = False
    """The class token joins after the last block, and patches do not attend by queries and keys."""
    fixed_grid: bool = False
    """timm builds the model for one size of images, and does not resample its positions."""


FAMILIES = (
    Family(
        vision_transformer.VisionTransformer,
        "ViT",
        (vision_transformer.Block, vision_transformer.ResPostBlock, vision_transformer.Attention),
    ),
    Family(eva.Eva, "ViT (Eva)", (eva.EvaBlock, eva.EvaBlockPostNorm, eva.EvaAttention, AttentionRope)),
    Family(beit.Beit, "BEiT", (beit.Block, beit.Attention), fixed_grid=True),
    Family(cait.Cait, "CaiT", (cait.LayerScaleBlock, cait.TalkingHeadAttn), late_class=True, fixed_grid=True),
    Family(xcit.Xcit, "XCiT", (xcit.XCABlock, xcit.XCA), late_class=True),
)
"""Eva includes EVA-02 and DINOv3."""


def family_of(model: nn.Module) -> Family | None:
    """Return the entry of a model, None for a model of no entry."""
    return next((family for family in FAMILIES if isinstance(model, family.kind)), None)
