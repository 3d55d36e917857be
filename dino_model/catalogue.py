"""What there is to know of a model before it is used, without fetching its weights."""

from dataclasses import dataclass

import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.weights import EMBEDDED_FILE, OFFICIAL, Scores, is_local, is_path, load_model

EMBEDDED_CARD = EMBEDDED_FILE.with_name("card.md")


@dataclass(frozen=True)
class Facts:
    """A model in figures and words."""

    name: str
    title: str
    architecture: str
    """In words: blocks, width, heads, patches."""
    parameters: int
    source: str
    licence: str
    local: bool
    """Whether it loads without a network."""
    scores: Scores
    note: str = ""


def facts(name: str) -> Facts:
    """Facts of any model that `load_model` takes; only files, runs and the embedded model are read.

    Raises:
        WeightsError: unknown name, or a file that does not load.
    """
    if name in OFFICIAL:
        entry = OFFICIAL[name]
        backbone = _skeleton(entry.config)
        told = (entry.title, entry.address, entry.licence, entry.scores, entry.note)
    elif timm.is_model(name) and not is_path(name):
        here = is_local(name)  # refuses a tag that timm does not have, before anything is built
        with torch.device("meta"):
            backbone = timm.create_model(name, pretrained=False, num_classes=0)
        settings = backbone.pretrained_cfg
        source = f"timm, https://huggingface.co/{settings['hf_hub_id']}"
        licence = settings.get("license") or "not told by timm"
        return Facts(name, name, *_structure(backbone), source, licence, here, Scores())
    else:
        model = load_model(name)
        backbone = model.backbone
        told = (name, model.source, *_terms(name))
    title, source, licence, scores, note = told
    return Facts(name, title, *_structure(backbone), source, licence, is_local(name), scores, note)


def listed() -> list[Facts]:
    """Facts of every model with a name of its own: the embedded one, if it is there, and the paper's."""
    names = ["embedded"] * EMBEDDED_FILE.is_file() + list(OFFICIAL)
    return [facts(name) for name in names]


def _skeleton(config: BackboneConfig) -> nn.Module:
    """Backbone without memory for weights."""
    with torch.device("meta"):
        return create_backbone(config)


def _terms(name: str) -> tuple[str, Scores, str]:
    """Licence, scores and note of what is no published model."""
    if name == "embedded":
        card = EMBEDDED_CARD.read_text(encoding="utf-8") if EMBEDDED_CARD.is_file() else ""
        return "Apache-2.0", Scores(), card
    return ("none needed" if name.startswith("random:") else "its maker's"), Scores(), ""


def _structure(backbone: nn.Module) -> tuple[str, int]:
    """Architecture in words, and the number of parameters."""
    parameters = sum(tensor.numel() for tensor in backbone.parameters())
    if not isinstance(backbone, VisionTransformer):
        return f"{type(backbone).__name__}, features of {backbone.num_features}", parameters
    height, width = backbone.patch_embed.patch_size
    patch = f"{height}" if height == width else f"{height} × {width}"
    registers = f", {backbone.num_reg_tokens} registers" if backbone.num_reg_tokens else ""
    words = (
        f"ViT, patches of {patch}, {len(backbone.blocks)} blocks × {backbone.embed_dim}, "
        f"{backbone.blocks[0].attn.num_heads} heads{registers}"
    )
    return words, parameters
