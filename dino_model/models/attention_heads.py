"""Number of attention heads of a bare checkpoint, whose tensors do not show it.

The table lists published models. A family is recognized by names in its files, before prefixes are removed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from dino_model.models.state_names import NetworkError


@dataclass(frozen=True)
class Family:
    """Published models with one mark in their files."""

    title: str
    mark: str
    """Pattern of a name in the files of the family."""
    heads: Mapping[int, int]
    """Attention heads by width."""


FAMILIES = (
    # facebookresearch/moco-v3, vits.py: the small model has 12 heads
    Family("MoCo-v3", r"\b(base|momentum)_encoder\.", {384: 12, 768: 12}),
    # facebookresearch/mae, models_mae.py: files with the decoder
    Family("MAE", r"\bdecoder_(embed|blocks|pos_embed)\b", {768: 12, 1024: 16, 1280: 16}),
    # facebookresearch/dinov3, hub/backbones.py; timm's have the gate fc1_g
    Family(
        "DINOv3", r"\b(storage_tokens$|rope_embed\.|fc1_g\.)", {384: 6, 768: 12, 1024: 16, 1280: 20, 4096: 32}
    ),
    # facebookresearch/dinov2, models/vision_transformer.py
    Family("DINOv2", r"\bblocks\.(\d+\.)?\d+\.ls1\.gamma$", {384: 6, 768: 12, 1024: 16, 1536: 24}),
    # facebookresearch/deit, models.py
    Family("DeiT", r"\bdist_token$", {192: 3, 384: 6, 768: 12}),
    # facebookresearch/ijepa, src/models/vision_transformer.py
    Family("I-JEPA", r"\btarget_encoder\.", {768: 12, 1024: 16, 1280: 16, 1408: 16}),
    # timm, models/vision_transformer.py
    Family("timm", r"\b(reg_token$|fc_norm\.)", {192: 3, 384: 6, 512: 8, 768: 12, 1024: 16, 1280: 16}),
    # facebookresearch/dino, vision_transformer.py
    Family("DINO", r"\b(teacher|student)[._]|\blast_layer\.weight_[gv]$", {192: 3, 384: 6, 768: 12}),
)
_MARKED_ONLY = {384: {12}}
"""Width -> heads of models whose files always have the mark."""
SIZES = {
    width: {family.heads[width] for family in FAMILIES if width in family.heads}
    - _MARKED_ONLY.get(width, set())
    for width in sorted({width for family in FAMILIES for width in family.heads})
}
"""Width -> numbers of heads of published models that a file without a mark may hold."""


def find_family(names: Iterable[str]) -> Family | None:
    """Return the family whose mark is in the full names of a file, None without a mark."""
    text = "\n".join(names)
    return next((family for family in FAMILIES if re.search(family.mark, text, re.MULTILINE)), None)


def choose_heads(
    tensors: Mapping[str, Tensor], family: Family | None, heads: int | None = None
) -> tuple[int, str]:
    """Choose the number of attention heads of a ViT.

    Args:
        tensors: By the backbone's names.
        family: Of the file.
        heads: The user's choice.

    Returns:
        The number, and its origin in words; no words if the tensors or the user give it.

    Raises:
        NetworkError: Published models of this width have several numbers of heads, or there are none; or the
            number does not divide the width.
    """
    width = tensors["patch_embed.proj.weight"].shape[0]
    if heads is not None:
        if heads < 1 or width % heads:
            raise NetworkError(f"has a width of {width}, which cannot be split over --heads {heads}")
        return heads, ""
    if counted := _count(tensors, width):
        return counted, ""
    if family and width in family.heads:
        return family.heads[width], f"{family.heads[width]} heads as in {family.title}"
    sizes = SIZES.get(width, set())
    if len(sizes) == 1:
        (number,) = sizes
        return number, f"{number} heads assumed from the width {width}, --heads chooses others"
    choices = " or ".join(map(str, sorted(sizes)))
    reason = (
        f"published models of this width have {choices}" if sizes else "no published model has this width"
    )
    raise NetworkError(
        f"does not say its number of attention heads: its width is {width}, and {reason}. Pass --heads N"
    )


def _count(tensors: Mapping[str, Tensor], width: int) -> int | None:
    """Number of heads where a tensor has the width of a head: norms of queries, or DINOv3's rotation."""
    norm, periods = tensors.get("blocks.0.attn.q_norm.weight"), tensors.get("rope_embed.periods")
    size = len(norm) if norm is not None else 4 * len(periods) if periods is not None else width
    return width // size if size < width and not width % size else None
