"""Families of ViTs: `FAMILIES` of classes, how they are read; `PUBLISHED` of weights, what no tensor shows.

A class of another code base than timm has an adapter in `protocol`, or fulfils `protocol.ViT` itself.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from timm.layers import AttentionRope
from timm.models import beit, cait, eva, vision_transformer, xcit
from torch import Tensor, nn

from dino_model.models.catalogue import WeightsError
from dino_model.models.configs import PositionMode


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


@dataclass(frozen=True)
class PublishedFamily:
    """Published models with one mark in their files."""

    title: str
    mark: str
    """Pattern of a name in the files of the family, before prefixes are removed."""
    heads: Mapping[int, int]
    """Attention heads by width."""
    positions: Mapping[str, PositionMode] = field(default_factory=dict)
    """Way to resample positions by a pattern in timm's name, or in a Hugging Face repository's name and kind.
    The first match holds. Others are resampled to the exact grid, as MAE (util/pos_embed.py) does."""


PUBLISHED = (
    # facebookresearch/moco-v3, vits.py: the small model has 12 heads
    PublishedFamily("MoCo-v3", r"\b(base|momentum)_encoder\.", {384: 12, 768: 12}),
    # facebookresearch/mae, models_mae.py: files with the decoder
    PublishedFamily("MAE", r"\bdecoder_(embed|blocks|pos_embed)\b", {768: 12, 1024: 16, 1280: 16}),
    # facebookresearch/dinov3, hub/backbones.py
    PublishedFamily(
        "DINOv3", r"\b(storage_tokens$|rope_embed\.)", {384: 6, 768: 12, 1024: 16, 1280: 20, 4096: 32}
    ),
    # facebookresearch/dinov2, models/vision_transformer.py; hub/backbones.py: interpolate_antialias and
    # interpolate_offset are True and 0.0 with registers, False and 0.1 without
    PublishedFamily(
        "DINOv2",
        r"\bblocks\.(\d+\.)?\d+\.ls1\.gamma$",
        {384: 6, 768: 12, 1024: 16, 1536: 24},
        {r"reg\d+_dinov2|dinov2[-_]with[-_]registers|dinov2.*_reg\d*": "antialias", r"dinov2": "official"},
    ),
    # facebookresearch/deit, models.py
    PublishedFamily("DeiT", r"\bdist_token$", {192: 3, 384: 6, 768: 12}),
    # facebookresearch/ijepa, src/models/vision_transformer.py
    PublishedFamily("I-JEPA", r"\btarget_encoder\.", {768: 12, 1024: 16, 1280: 16, 1408: 16}),
    # timm, models/vision_transformer.py
    PublishedFamily(
        "timm", r"\b(reg_token$|fc_norm\.)", {192: 3, 384: 6, 512: 8, 768: 12, 1024: 16, 1280: 16}
    ),
    # facebookresearch/dino, vision_transformer.py: interpolate_pos_encoding
    PublishedFamily(
        "DINO",
        r"\b(teacher|student)[._]|\blast_layer\.weight_[gv]$",
        {192: 3, 384: 6, 768: 12},
        {r"\.dino\b|facebook/dino-|^dino_": "official"},
    ),
)
_MARKED_ONLY = {384: {12}}
"""Width -> heads of models whose files always have the mark."""


def choose_heads(
    tensors: Mapping[str, Tensor], names: Iterable[str], where: str, heads: int | None = None
) -> tuple[int, str]:
    """Choose the number of attention heads of a ViT.

    Args:
        tensors: By the backbone's names.
        names: All names in the file, which have the mark of a family of `PUBLISHED` or none.
        where: The file, for messages.
        heads: The user's choice.

    Returns:
        The number, and its origin in words; no words if the tensors or the user give it.

    Raises:
        WeightsError: No published model of this width, several, or a number that does not divide the width.
    """
    width = tensors["patch_embed.proj.weight"].shape[0]
    if heads is not None:
        if heads < 1 or width % heads:
            raise WeightsError(f"{where} has a width of {width}, which cannot be split over --heads {heads}")
        return heads, ""
    norm, periods = tensors.get("blocks.0.attn.q_norm.weight"), tensors.get("rope_embed.periods")
    size = len(norm) if norm is not None else 4 * len(periods) if periods is not None else width
    if size < width and not width % size:  # norms of queries, or DINOv3's rotation, have the width of a head
        return width // size, ""
    text = "\n".join(names)
    family = next((each for each in PUBLISHED if re.search(each.mark, text, re.MULTILINE)), None)
    if family and width in family.heads:
        return family.heads[width], f"{family.heads[width]} heads as in {family.title}"
    sizes = {each.heads[width] for each in PUBLISHED if width in each.heads} - _MARKED_ONLY.get(width, set())
    if len(sizes) == 1:
        (number,) = sizes
        return number, f"{number} heads assumed from the width {width}, --heads chooses others"
    choices = " or ".join(map(str, sorted(sizes)))
    reason = (
        f"published models of this width have {choices}" if sizes else "no published model has this width"
    )
    raise WeightsError(
        f"{where} does not say its number of attention heads: its width is {width}, and {reason}. Pass "
        "--heads N"
    )


def position_mode(name: str) -> PositionMode:
    """Return the way to resample positions of a model by its name, see `PublishedFamily.positions`."""
    ways = [pair for family in PUBLISHED for pair in family.positions.items()]
    return next((mode for pattern, mode in ways if re.search(pattern, name)), "size")
