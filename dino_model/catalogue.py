"""What there is to know of a model before it is used, without fetching its weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import timm
import torch
from torch import nn

from dino_model.attention import readable
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.checkpoints import WeightsError
from dino_model.hub import is_hosted
from dino_model.weights import EMBEDDED_FILE, OFFICIAL, Scores, is_local, is_path, load_model

FAMILIES = {"VisionTransformer": "ViT", "Beit": "BEiT", "Eva": "ViT (Eva)", "Cait": "CaiT", "Xcit": "XCiT"}
READS = {
    "cls": "maps of [CLS] and of points",
    "pooling": "maps of a pooling query after the last block, and of points",
    "class-attention": "maps of a class token after the last block",
    None: "maps of points; no [CLS]",
}
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
    elif is_hosted(name) and not is_local(name):
        raise WeightsError(
            f"{name} is not here, and nothing is fetched for this: use it as --model of any command first"
        )
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


@dataclass(frozen=True)
class Readable:
    """A model of timm's, and what of its attention can be read."""

    name: str
    architecture: str
    """In words."""
    parameters: int
    licence: str
    here: str
    """yes; no, of so many MB to fetch; or why it cannot be had."""
    reads: str
    """Whose maps there are, or why there are none."""


def of_timm(pattern: str) -> Iterator[Readable]:
    """Models that timm has weights for and whose name fits a pattern, such as `*dinov3*`. Fetches nothing.

    Raises:
        WeightsError: no such model.
    """
    names = timm.list_models(pattern, pretrained=True)
    if not names:
        raise WeightsError(
            f"timm has no weights of a name like {pattern!r}: try one with *, such as '*dino*'"
        )
    for name in names:
        words, parameters, reads = _read_of(name.partition(".")[0])
        try:
            here = "yes" if is_local(name) else f"no, {4 * parameters / 1e6:,.0f} MB"
        except WeightsError as error:
            here = f"cannot be had: {error}"
        licence = timm.get_pretrained_cfg(name).license or "not told by timm"
        yield Readable(name, words, parameters, licence, here, reads)


@cache
def _read_of(architecture: str) -> tuple[str, int, str]:
    """In words, number of parameters, and what can be read."""
    try:
        with torch.device("meta"):
            backbone = timm.create_model(architecture, pretrained=False, num_classes=0)
    except Exception as error:  # timm's constructors raise many kinds
        return architecture, 0, f"nothing: timm cannot build it without weights ({type(error).__name__})"
    words, parameters = _structure(backbone)
    try:
        return words, parameters, READS[readable(backbone).summary]
    except ValueError as error:
        return words, parameters, f"nothing: {error}"


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
    try:
        vit = readable(backbone)
    except ValueError:
        return f"{type(backbone).__name__}, features of {backbone.num_features}", parameters
    height, width = vit.patch_size
    patch = f"{height}" if height == width else f"{height} × {width}"
    registers = getattr(backbone, "reg_token", None)
    words = (
        f"{FAMILIES.get(type(backbone).__name__, type(backbone).__name__)}, patches of {patch}, "
        f"{vit.depth} blocks × {backbone.num_features}, {vit.heads} heads"
    )
    return words + ("" if registers is None else f", {registers.shape[1]} registers"), parameters
