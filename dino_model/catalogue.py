"""Describe models without downloading their weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import timm
import torch
from torch import nn

from dino_model.attention import readable
from dino_model.backbones import create_backbone
from dino_model.checkpoints import WeightsError
from dino_model.hub import is_hosted
from dino_model.weights import EMBEDDED_FILE, OFFICIAL, Scores, is_local, is_path, load_model

FAMILIES = {"VisionTransformer": "ViT", "Beit": "BEiT", "Eva": "ViT (Eva)", "Cait": "CaiT", "Xcit": "XCiT"}
MAPS = {
    "cls": "maps of [CLS] and of points",
    "pooling": "maps of a pooling query after the last block, and of points",
    "class-attention": "maps of a class token after the last block",
    None: "maps of points; no [CLS]",
}


@dataclass(frozen=True)
class Facts:
    """Description of a model.

    Attributes:
        architecture: In words: blocks, width, heads, patches.
        local: Loads without a network.
    """

    name: str
    title: str
    architecture: str
    parameters: int
    source: str
    licence: str
    local: bool
    scores: Scores
    note: str = ""


def facts(name: str) -> Facts:
    """Describe any model that `load_model` takes; only files, runs and the embedded model are read.

    Raises:
        WeightsError: Unknown name, or a file that does not load.
    """
    if name in OFFICIAL:
        entry = OFFICIAL[name]
        with torch.device("meta"):
            backbone = create_backbone(entry.config)
        described = (entry.title, entry.address, entry.licence, entry.scores, entry.note)
    elif timm.is_model(name) and not is_path(name):
        local = is_local(name)  # refuses a tag that timm does not have, before anything is built
        with torch.device("meta"):
            backbone = timm.create_model(name, pretrained=False, num_classes=0)
        settings = backbone.pretrained_cfg
        source = f"timm, https://huggingface.co/{settings['hf_hub_id']}"
        licence = settings.get("license") or "unknown"
        return Facts(name, name, *_structure(backbone), source, licence, local, Scores())
    elif is_hosted(name) and not is_local(name):
        raise WeightsError(
            f"{name} is not on this machine, and `show` downloads nothing: run a command with --model first"
        )
    else:
        model = load_model(name)
        backbone = model.backbone
        described = (name, model.source, *_terms(name))
    title, source, licence, scores, note = described
    return Facts(name, title, *_structure(backbone), source, licence, is_local(name), scores, note)


def listed() -> list[Facts]:
    """Describe every model with a name of its own: the embedded one, if it exists, and the paper's."""
    return [facts(name) for name in ["embedded"] * EMBEDDED_FILE.is_file() + list(OFFICIAL)]


@dataclass(frozen=True)
class TimmModel:
    """Description of a timm model.

    Attributes:
        here: yes; no, with the size of the download in MB; or why it cannot be downloaded.
        reads: Attention maps that can be read, or why there are none.
    """

    name: str
    architecture: str
    parameters: int
    licence: str
    here: str
    reads: str


def of_timm(pattern: str) -> Iterator[TimmModel]:
    """Describe timm's models whose name matches a pattern, such as `*dinov3*`. Downloads nothing.

    Raises:
        WeightsError: No such model with weights.
    """
    names = timm.list_models(pattern, pretrained=True)
    if not names:
        raise WeightsError(
            f"timm has no weights whose name matches {pattern!r}: try a pattern with *, such as '*dino*'"
        )
    for name in names:
        words, parameters, reads = _describe_timm(name.partition(".")[0])
        try:
            here = "yes" if is_local(name) else f"no, {4 * parameters / 1e6:,.0f} MB"
        except WeightsError as error:
            here = f"unavailable: {error}"
        licence = timm.get_pretrained_cfg(name).license or "unknown"
        yield TimmModel(name, words, parameters, licence, here, reads)


@cache
def _describe_timm(architecture: str) -> tuple[str, int, str]:
    """Architecture in words, number of parameters, and maps that can be read."""
    try:
        with torch.device("meta"):
            backbone = timm.create_model(architecture, pretrained=False, num_classes=0)
    except Exception as error:  # timm's constructors raise many kinds
        return architecture, 0, f"nothing: timm cannot build it without weights ({type(error).__name__})"
    words, parameters = _structure(backbone)
    try:
        return words, parameters, MAPS[readable(backbone).summary]
    except ValueError as error:
        return words, parameters, f"nothing: {error}"


def _terms(name: str) -> tuple[str, Scores, str]:
    """Licence, scores and note of a model that is not published."""
    if name == "embedded":
        card = EMBEDDED_FILE.with_name("card.md")
        return "Apache-2.0", Scores(), card.read_text(encoding="utf-8") if card.is_file() else ""
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
