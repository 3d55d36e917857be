"""Describe models without downloading their weights."""

from dataclasses import dataclass, field
from typing import Any

import timm
import torch
from torch import nn

from dino_model.models.attention import MAPS, readable
from dino_model.models.backbones import create_backbone
from dino_model.models.catalogue import (
    EMBEDDED,
    HOSTED,
    OFFICIAL,
    PublishedScores,
    WeightsError,
    is_local,
    kind_of,
)
from dino_model.models.load import load_model


@dataclass(frozen=True)
class ModelDescription:
    """Description of a model.

    Attributes:
        architecture: In title: blocks, width, heads, patches.
        maps: Attention maps that can be read, or why there are none.
        local: Loads without a network.
    """

    name: str
    title: str
    architecture: str
    parameters: int
    maps: str
    source: str
    license: str
    local: bool
    scores: PublishedScores = field(default_factory=PublishedScores)
    note: str = ""


def describe_model(name: str, **checkpoint: Any) -> ModelDescription:
    """Describe any model that `load_model` takes; only files, runs and the shipped models are read.

    Args:
        checkpoint: Further arguments of `load_model`.

    Raises:
        WeightsError: Unknown name, or a file that does not load.
    """
    kind, local = kind_of(name), is_local(name)
    title, scores, note = name, PublishedScores(), ""
    license = "none needed" if kind == "random" else "its maker's"
    is_timm = kind == "hosted" and not name.startswith(HOSTED)
    if kind == "hosted" and not (is_timm or local):
        raise WeightsError(
            f"{name} is not on this machine, and `show` downloads nothing: run a command with --model first"
        )
    if kind == "official":
        entry = OFFICIAL[name]
        with torch.device("meta"):
            backbone = create_backbone(entry.config)
        title, scores, note, license = entry.title, entry.scores, entry.note, "Apache-2.0"
        source = entry.file.address
    elif is_timm:
        settings = timm.get_pretrained_cfg(name)
        try:
            with torch.device("meta"):
                backbone = timm.create_model(name.partition(".")[0], pretrained=False, num_classes=0)
        except Exception as error:  # timm's constructors raise many kinds
            raise WeightsError(f"timm cannot build {name} without weights ({error!r})") from error
        source, license = f"timm, https://huggingface.co/{settings.hf_hub_id}", settings.license or "unknown"
    else:
        model = load_model(name, **checkpoint)
        backbone, source = model.backbone, model.source
    if name in EMBEDDED:
        license, note = "Apache-2.0", EMBEDDED[name].with_name("card.md").read_text(encoding="utf-8")
    return ModelDescription(name, title, *_structure(backbone), source, license, local, scores, note)


def _structure(backbone: nn.Module) -> tuple[str, int, str]:
    """Architecture in title, number of parameters, and maps that can be read."""
    kind, parameters = type(backbone).__name__, sum(tensor.numel() for tensor in backbone.parameters())
    width: int | None = getattr(backbone, "num_features", None)
    try:
        vit = readable(backbone)
    except ValueError as error:
        return f"{kind}, features of {width}", parameters, f"none: {error}"
    height, breadth = vit.patch_size
    patch = f"{height}" if height == breadth else f"{height} × {breadth}"
    registers = getattr(backbone, "reg_token", None)
    title = (
        f"{vit.title}, patches of {patch}, {vit.depth} blocks{f' × {width}' if width else ''}, "
        f"{vit.heads} heads" + ("" if registers is None else f", {registers.shape[1]} registers")
    )
    return title, parameters, MAPS[vit.summary]
