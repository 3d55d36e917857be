"""Meaning of a model's name: `kind_of` decides, once for loading, checking, listing and downloading."""

import difflib
import importlib.util
import re
from pathlib import Path
from typing import Literal

import timm

from dino_model.models import hub
from dino_model.models.checkpoints import SUFFIXES, WeightsError
from dino_model.models.configs import VIT_SHAPES, BackboneConfig
from dino_model.models.published import EMBEDDED, OFFICIAL
from dino_model.runtime.download import PublishedFile

RANDOM = "random:"
"""Start of the names of models with random weights."""
Kind = Literal["embedded", "official", "random", "path", "code", "hosted"]
"""Shipped, of the paper, random weights, file or folder, own code, of timm or Hugging Face."""


def kind_of(name: str) -> Kind:
    """Return what a name means, without reading or downloading weights.

    Raises:
        WeightsError: An unknown name.
    """
    if name in EMBEDDED:
        return "embedded"
    if name in OFFICIAL:
        return "official"
    if name.startswith(RANDOM):
        return "random"
    if is_path(name):
        return "path"
    if own_code(name):
        return "code"
    if hub.files(name):
        return "hosted"
    names = {known: known for known in (*EMBEDDED, *OFFICIAL, *timm.list_models(pretrained=True))}
    names |= {architecture: f"{RANDOM}{architecture}/16" for architecture in VIT_SHAPES}
    close = [names[match] for match in difflib.get_close_matches(name, names)]
    close = hub.similar_names(name) or close
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    raise WeightsError(
        f"unknown model {name!r}{hint}: give one of {', '.join((*EMBEDDED, *OFFICIAL))}, "
        "random:ARCHITECTURE/PATCH, a timm name, hf:OWNER/NAME, MODULE:FUNCTION of own code, or an existing "
        "file or training run"
    )


def check_name(name: str) -> None:
    """Raise WeightsError if `name` is no model or no file; weights are neither read nor downloaded."""
    match kind_of(name):
        case "path" if not Path(name).exists():
            raise WeightsError(f"no file or folder {name!r}")
        case "random":
            random_config(name)
        case "code":
            check_module(name)
        case "embedded" | "official" | "path" | "hosted":
            pass


def missing_files(name: str) -> list[PublishedFile]:
    """Return the files that `load_model(name)` would download.

    Raises:
        WeightsError: As `kind_of`.
    """
    match kind_of(name):
        case "official":
            files = [OFFICIAL[name].file]
        case "hosted":
            files = hub.files(name)
        case "embedded" | "random" | "path" | "code":
            files = []
    return [file for file in files if file.path() is None]


def is_local(name: str) -> bool:
    """Return whether `load_model(name)` needs no network; errors as `kind_of`."""
    return not missing_files(name)


def is_path(name: str) -> bool:
    """Return whether a name means a file or folder, existing or not."""
    known = name in OFFICIAL or name in EMBEDDED or name.startswith((RANDOM, hub.PREFIX))
    looks_like_path = name.startswith(("/", "./", "../")) or Path(name).suffix in SUFFIXES
    return not known and bool(name) and (looks_like_path or Path(name).exists())


def own_code(name: str) -> tuple[str, str] | None:
    """Return module and function of a name such as `my_vit:create`, None for other names."""
    match = re.fullmatch(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)", name)
    return (match[1], match[2]) if match and f"{match[1]}:" not in (hub.PREFIX, RANDOM) else None


def check_module(name: str) -> None:
    """Raise WeightsError for own code whose Python module does not exist; nothing is imported."""
    module = name.partition(":")[0]
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        raise WeightsError(
            f"there is no Python module {module!r}: run the command in its folder, or add the folder to "
            "PYTHONPATH"
        )


def random_config(name: str) -> BackboneConfig | None:
    """Return the configuration of a name such as `random:vit_small/16`; None for that of the shipped models.

    Raises:
        WeightsError: No such architecture.
    """
    architecture, _, patch = name.removeprefix(RANDOM).partition("/")
    if architecture == "embedded" and not patch:
        return None
    if architecture == "resnet50" and not patch:
        return BackboneConfig("resnet50")
    if architecture in VIT_SHAPES and patch.isdecimal():
        return BackboneConfig(architecture, int(patch))
    raise WeightsError(
        f"{name!r} names no architecture: write random:embedded, random:resnet50, or random:vit_small/16 with"
        f" one of {', '.join(VIT_SHAPES)} and a patch size"
    )
