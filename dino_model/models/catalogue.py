"""Names of models: what a name means, and the models that have one. Torch is imported only when needed."""

import difflib
import importlib.util
import json
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Literal

import huggingface_hub
import safetensors

from dino_model.models.configs import VIT_SHAPES, BackboneConfig
from dino_model.runtime.download import PublishedFile

RANDOM, HOSTED = "random:", "hf:"
"""Start of the names of models with random weights, and of repositories of Hugging Face."""
WEIGHTS, CONFIG = "model.safetensors", "config.json"
"""Files of a repository."""
SUFFIXES = (".pth", ".pt", ".safetensors", ".ckpt", ".bin", ".tar")
NameKind = Literal["embedded", "official", "random", "path", "code", "hosted"]
"""Shipped, of the paper, random weights, file or folder, own code, of timm or Hugging Face."""
EMBEDDED = {
    name: Path(__file__).parents[1] / name.replace("-", "_") / "model.safetensors"
    for name in ("embedded", "embedded-dino")
}
"""Files of the models that ship with the package, each beside its card and its log.

`embedded` is distilled from DINOv2; `embedded-dino` is trained by DINO with terms of SimDINO. Both
have one architecture.
"""
OFFICIAL_ADDRESS = "https://dl.fbaipublicfiles.com/dino"


def embedded_parameters(name: str) -> int:
    """Count the parameters of a shipped model from the header of its file."""
    with safetensors.safe_open(EMBEDDED[name], framework="numpy") as file:
        return sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 (no mapping)


@dataclass(frozen=True)
class PublishedScores:
    """Published scores in percent; None if none is published.

    Attributes:
        knn, linear: ImageNet-1k top-1 of weighted k-NN, k = 20, and of a linear classifier.
        voc: VOC12 Jaccard of attention masks that keep 60 % of the mass.
        davis: DAVIS-2017 mean of J and F.
    """

    knn: float | None = None
    linear: float | None = None
    voc: float | None = None
    davis: float | None = None


@dataclass(frozen=True)
class OfficialWeights:
    """A model published with the paper. No checksum is published: length and strict loading are checked.

    `stem` is the name of the file without its suffix, and of its folder.
    """

    title: str
    stem: str
    config: BackboneConfig
    parameters: int
    scores: PublishedScores
    note: str

    @property
    def file(self) -> PublishedFile:
        """The weights."""
        name = f"{self.stem}.pth"
        return PublishedFile(f"{OFFICIAL_ADDRESS}/{self.stem}/{name}", name, _read)


_VIT = partial(BackboneConfig, position_mode="official")
_VITS8 = "The paper gives a VOC12 Jaccard of 44.7 for ViT-S/8, not saying for which checkpoint of two."
OFFICIAL = {
    name: OfficialWeights(title, f"dino_{stem}_pretrain", config, parameters, scores, note)
    for name, title, stem, config, parameters, scores, note in (
        ("dino_vits16", "ViT-S/16", "deitsmall16", _VIT("vit_small", 16), 21_665_664,
         PublishedScores(74.5, 77.0, 45.9, 61.8), ""),
        ("dino_vits8", "ViT-S/8", "deitsmall8", _VIT("vit_small", 8), 21_670_272,
         PublishedScores(78.3, 79.7, 44.7, 69.9), _VITS8),
        ("dino_vitb16", "ViT-B/16", "vitbase16", _VIT("vit_base", 16), 85_798_656,
         PublishedScores(76.1, 78.2, None, 62.3), ""),
        ("dino_vitb8", "ViT-B/8", "vitbase8", _VIT("vit_base", 8), 85_807_872,
         PublishedScores(77.4, 80.1, None, 71.4), ""),
        ("dino_vits8_300ep", "ViT-S/8, 300 epochs", "deitsmall8_300ep", _VIT("vit_small", 8), 21_670_272,
         PublishedScores(), f"The model behind the paper's figures. {_VITS8}"),
        ("dino_resnet50", "ResNet-50", "resnet50", BackboneConfig("resnet50"), 23_508_032,
         PublishedScores(67.5, 75.3), "No attention maps."),
    )
}  # fmt: skip
"""The models published with the paper, and the scores published for them."""


class WeightsError(ValueError):
    """A name of no model, or weights that cannot be loaded. The message is one sentence."""


def kind_of(name: str) -> NameKind:
    """Return what a name means, without reading or downloading weights.

    Raises:
        WeightsError: An unknown name, architecture or Python module.
    """
    if name in EMBEDDED:
        return "embedded"
    if name in OFFICIAL:
        return "official"
    if name.startswith(RANDOM):
        random_config(name)
        return "random"
    if file := re.fullmatch(r"(?:.*[\\/])?(\w+)\.py:(\w+)", name):
        raise WeightsError(f"{name!r} names a file, expected MODULE:NAME, such as {file[1]}:{file[2]}")
    if is_path(name):
        return "path"
    if code := own_code(name):
        if importlib.util.find_spec(code[0].partition(".")[0]) is None:
            raise WeightsError(
                f"there is no Python module {code[0]!r}: run the command in its folder, or add the folder to "
                "PYTHONPATH"
            )
        return "code"
    if hosted_files(name):
        return "hosted"
    import timm

    names = {known: known for known in (*EMBEDDED, *OFFICIAL, *timm.list_models(pretrained=True))}
    names |= {architecture: f"{RANDOM}{architecture}/16" for architecture in VIT_SHAPES}
    close = [names[match] for match in difflib.get_close_matches(name, names)]
    close = [HOSTED + name] if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) else close
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    raise WeightsError(
        f"unknown model {name!r}{hint}: give one of {', '.join((*EMBEDDED, *OFFICIAL))}, "
        "random:ARCHITECTURE/PATCH, a timm name, hf:OWNER/NAME, MODULE:FUNCTION of own code, or an existing "
        "file or training run"
    )


def check_name(name: str) -> None:
    """Raise WeightsError if `name` is no model or no file; weights are neither read nor downloaded."""
    if kind_of(name) == "path" and not Path(name).exists():
        raise WeightsError(f"no file or folder {name!r}")


def missing_files(name: str) -> list[PublishedFile]:
    """Return the files that `load_model(name)` would download; errors as `kind_of`."""
    kind, files = kind_of(name), list[PublishedFile]()
    if kind == "official":
        files = [OFFICIAL[name].file]
    elif kind == "hosted":
        files = hosted_files(name)
    return [file for file in files if file.path() is None]


def is_local(name: str) -> bool:
    """Return whether `load_model(name)` needs no network; errors as `kind_of`."""
    return not missing_files(name)


def is_path(name: str) -> bool:
    """Return whether a name means a file or folder, existing or not."""
    known = name in OFFICIAL or name in EMBEDDED or name.startswith((RANDOM, HOSTED))
    looks_like_path = name.startswith(("/", "./", "../")) or Path(name).suffix in SUFFIXES
    return not known and bool(name) and (looks_like_path or Path(name).exists())


def own_code(name: str) -> tuple[str, str] | None:
    """Return module and function of a name such as `my_vit:create`, None for other names."""
    match = re.fullmatch(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)", name)
    return (match[1], match[2]) if match and f"{match[1]}:" not in (HOSTED, RANDOM) else None


def random_config(name: str) -> BackboneConfig | None:
    """Return the configuration of a name such as `random:vit_small/16`; None for that of the shipped models.

    Raises WeightsError for no such architecture.
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


def hosted_files(name: str) -> list[PublishedFile]:
    """Return the files of a timm name or of `hf:owner/name` that are always read, none for other names.

    Raises:
        WeightsError: No name of a repository, or a timm name without weights as .safetensors.
    """
    if name.startswith(HOSTED):
        if not re.fullmatch(r"hf:[\w.-]+/[\w.-]+", name):
            raise WeightsError(
                f"{name!r} names no repository: write hf:owner/name, such as hf:facebook/dinov2-small"
            )
        return [hosted_file(name, CONFIG, read_json), hosted_file(name, WEIGHTS, _read)]
    import timm

    if not timm.is_model(name):
        return []
    try:
        settings = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        raise WeightsError(f"timm has no such weights: {error}") from error
    if settings is None or not settings.hf_hub_id or settings.hf_hub_filename:
        raise WeightsError(f"timm publishes no .safetensors weights for {name!r}: choose another name")
    address = huggingface_hub.hf_hub_url(settings.hf_hub_id, WEIGHTS)
    return [PublishedFile(address, f"{name}.safetensors", _read, settings.hf_hub_id)]


def hosted_file(name: str, file: str, accept: Callable[[Path], object]) -> PublishedFile:
    """Return a file of `hf:owner/name`; `accept` as in `PublishedFile`."""
    repository = name.removeprefix(HOSTED)
    address = huggingface_hub.hf_hub_url(repository, file)
    return PublishedFile(address, f"hf/{repository}/{file}", accept, repository)


def read_json(path: Path) -> dict[str, Any]:
    """Read names and values; raises WeightsError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{path} is no readable JSON: {error}") from error
    if not isinstance(content, dict):
        raise WeightsError(f"{path} holds a {type(content).__name__}, expected names and values")
    return content


def _read(path: Path) -> object:
    content: object = pkgutil.resolve_name("dino_model.models.checkpoint:read_checkpoint")(path)
    return content
