"""Load backbones of timm (by its names), of Hugging Face repositories (`hf:owner/name`) and of their folders.

Two kinds of repository are read: timm's (any of its models), and transformers' ViT, DINOv2, DINOv2 with
registers and DINOv3, whose tensors have other names. None of their code is run.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from torch import Tensor, nn

from dino_model.data.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.models import position
from dino_model.models.catalogue import (
    CONFIG,
    HOSTED,
    WEIGHTS,
    WeightsError,
    hosted_file,
    hosted_files,
    read_json,
)
from dino_model.models.checkpoint import open_safetensors, read_torch
from dino_model.models.official import load_official
from dino_model.models.state_names import NetworkError, find_network

IMAGE_PROCESSOR = "preprocessor_config.json"
PICKLE = "pytorch_model.bin"
SHARDS = tuple(f"{name}.index.json" for name in (WEIGHTS, PICKLE))
KINDS = {name: name for name in ("vit", "dinov2", "dinov2_with_registers", "dinov3_vit")}
KINDS |= {"vit_mae": "vit", "vit_msn": "vit"}
"""Kind of model in transformers' config.json -> kind whose names its tensors have."""

NAMES: dict[str, tuple[str, str, str]] = {
    "cls_token": ("embeddings.cls_token",) * 3,
    "register_tokens": ("", "embeddings.register_tokens", "embeddings.register_tokens"),
    "mask_token": ("embeddings.mask_token",) * 3,
    "pos_embed": ("embeddings.position_embeddings", "embeddings.position_embeddings", ""),
    "patch_embed.proj": (*("embeddings.patch_embeddings.projection",) * 2, "embeddings.patch_embeddings"),
    "norm": ("layernorm", "layernorm", "norm"),
    "norm1": ("layernorm_before", "norm1", "norm1"),
    "norm2": ("layernorm_after", "norm2", "norm2"),
    "attn.q": ("attention.attention.query", "attention.attention.query", "attention.q_proj"),
    "attn.k": ("attention.attention.key", "attention.attention.key", "attention.k_proj"),
    "attn.v": ("attention.attention.value", "attention.attention.value", "attention.v_proj"),
    "attn.proj": ("attention.output.dense", "attention.output.dense", "attention.o_proj"),
    "mlp.fc1": ("intermediate.dense", "mlp.fc1", "mlp.up_proj"),
    "mlp.fc2": ("output.dense", "mlp.fc2", "mlp.down_proj"),
    "mlp.w12": ("", "mlp.weights_in", ""),
    "mlp.w3": ("", "mlp.weights_out", ""),
    "mlp.w1": ("", "", "mlp.gate_proj"),
    "ls1.gamma": ("", "layer_scale1.lambda1", "layer_scale1.lambda1"),
    "ls2.gamma": ("", "layer_scale2.lambda1", "layer_scale2.lambda1"),
}
"""Official name -> transformers' in a ViT, a DINOv2 and a DINOv3; empty if it has none. There, queries, keys
and values are apart."""


Hosted = tuple[nn.Module, tuple[float, ...], tuple[float, ...], str]
"""Backbone, mean, standard deviation, and source in words with timm's or transformers' architecture."""


class Repository(NamedTuple):
    """Files of a repository."""

    name: str
    place: str
    """Address or folder."""
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    processor: Mapping[str, Any]
    """Settings of the images in transformers' repositories; empty if there are none."""

    def build(self) -> Hosted:
        """Build the backbone that config.json describes, with its tensors; raises WeightsError."""
        if "architecture" in self.config:
            return _of_timm(self)
        if (kind := self.config.get("model_type")) not in KINDS:
            raise WeightsError(
                f"{self.name} holds a {kind or 'model of no named kind'}: expected a repository of timm's or "
                f"one of transformers' {', '.join(KINDS)}"
            )
        return _of_transformers(self)


def load(name: str) -> Hosted:
    """Load the backbone of a timm name or of `hf:owner/name`, downloaded once.

    Raises:
        WeightsError: As `hosted_files`; an unsupported model, or tensors that do not fit it.
        DownloadError: Files that are not on this machine and cannot be downloaded.
    """
    if not name.startswith(HOSTED):
        path = hosted_files(name)[0].fetch()
        backbone: Any = _create_timm(name, open_safetensors(path)[0], f"the timm weights in {path}", {})
        settings = backbone.pretrained_cfg
        return backbone, tuple(settings["mean"]), tuple(settings["std"]), f"timm weights {name}"
    config_file, weights = (file.fetch() for file in hosted_files(name))
    config, tensors = read_json(config_file), open_safetensors(weights)[0]
    processor: Mapping[str, Any] = {}
    if "architecture" not in config:
        processor = read_json(hosted_file(name, IMAGE_PROCESSOR, read_json).fetch())
    address = f"https://huggingface.co/{name.removeprefix(HOSTED)}"
    return Repository(name, address, config, tensors, processor).build()


def is_repository(path: Path) -> bool:
    """Return whether a folder, or that of a file of the usual name, is one of timm or transformers."""
    folder = path if path.is_dir() else path.parent
    is_shard = re.search(r"-\d+-of-\d+\.(bin|safetensors)$", path.name)
    usual = path.is_dir() or path.name in (WEIGHTS, PICKLE, *SHARDS) or is_shard
    return (
        bool(usual)
        and (folder / CONFIG).is_file()
        and not {"model_type", "architecture"}.isdisjoint(read_json(folder / CONFIG))
    )


def load_folder(folder: Path, tensors: Mapping[str, Tensor] | None = None) -> Hosted:
    """Load the backbone of a folder that timm, transformers or `export --format transformers` wrote.

    Args:
        folder: With config.json, and weights as .safetensors or pytorch_model.bin.
        tensors: Weights of a file of another name.

    Raises:
        WeightsError: As `load`, or missing files.
    """
    if not (folder / CONFIG).is_file():
        raise WeightsError(f"{folder} has no {CONFIG}, which describes tensors with transformers' names")
    file = folder / IMAGE_PROCESSOR
    processor = read_json(file) if file.is_file() else {}
    tensors = _read_weights(folder) if tensors is None else tensors
    return Repository(str(folder), str(folder), read_json(folder / CONFIG), tensors, processor).build()


def _read_weights(folder: Path) -> dict[str, Tensor]:
    if index := next((folder / name for name in SHARDS if (folder / name).is_file()), None):
        shards = sorted(set(read_json(index).get("weight_map", {}).values()))
        if missing := [shard for shard in shards if not (folder / shard).is_file()]:
            raise WeightsError(
                f"{folder} lacks {', '.join(missing[:3])}, listed in {index.name}: download again"
            )
        parts = [
            open_safetensors(path)[0] if path.suffix == ".safetensors" else read_torch(path)
            for path in map(folder.joinpath, shards)
        ]
        return {name: value for part in parts for name, value in part.items()}
    if (folder / WEIGHTS).is_file():
        return open_safetensors(folder / WEIGHTS)[0]
    if (folder / PICKLE).is_file():
        return read_torch(folder / PICKLE)
    raise WeightsError(f"{folder} has no weights: expected {WEIGHTS} or {PICKLE} next to {CONFIG}")


def split_name(name: str) -> tuple[str, str, str]:
    """Split a tensor's name into number of the block, layer, and `.weight`, `.bias` or nothing."""
    match = re.fullmatch(
        r"(?:(?:blocks|(?:encoder\.|model\.)?layer)\.(\d+)\.)?(.*?)(\.weight|\.bias)?", name, re.S
    )
    assert match
    return match[1] or "", match[2], match[3] or ""


def _official_names(tensors: Mapping[str, Tensor], where: str, kind: str) -> dict[str, Tensor]:
    """Rename transformers' tensors to official names, with queries, keys and values joined."""
    columns = {"vit": 0, "dinov2": 1, "dinov2_with_registers": 1, "dinov3_vit": 2}  # of NAMES
    is_dinov3, column = kind == "dinov3_vit", columns[kind]
    official = {names[column]: name for name, names in NAMES.items() if names[column]}
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        block, middle, end = split_name(name)
        if middle not in official:
            raise WeightsError(f"{where} has a tensor {name!r}, which no {kind} of transformers has")
        renamed[(f"blocks.{block}." if block else "") + official[middle] + end] = tensor
    if is_dinov3:
        renamed["storage_tokens"] = renamed.pop("register_tokens", torch.zeros(1, 0, 0))
        if "blocks.0.mlp.w1.weight" in renamed:  # gated
            for old, new in {".mlp.fc1.": ".mlp.w2.", ".mlp.fc2.": ".mlp.w3."}.items():
                renamed = {name.replace(old, new): tensor for name, tensor in renamed.items()}
    for name in [name for name in renamed if ".attn.q." in name]:
        parts = [name.replace(".attn.q.", f".attn.{part}.") for part in "qkv"]
        if is_dinov3 and name.endswith(".bias"):  # its keys have none
            renamed[parts[1]] = torch.zeros_like(renamed[name])
        if missing := [part for part in parts if part not in renamed]:
            raise WeightsError(f"{where} has queries without keys and values: {missing[0]} is missing")
        renamed[name.replace(".attn.q.", ".attn.qkv.")] = torch.cat([renamed.pop(part) for part in parts])
    return renamed


def _of_transformers(repository: Repository) -> Hosted:
    name, place, config, tensors, processor = repository
    kind = KINDS[config["model_type"]]
    try:
        heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
        mean, std = (
            tuple(processor[f"image_{key}"]) if processor else usual
            for key, usual in (("mean", IMAGENET_MEAN), ("std", IMAGENET_STD))
        )
        official = _official_names(find_network(tensors).tensors, name, kind)
    except NetworkError as error:
        raise WeightsError(f"{name}: {error}") from error
    except KeyError as error:
        raise WeightsError(f"{name} does not describe a {kind}: {error!r}") from error
    theta = config.get("rope_parameters", config).get("rope_theta", 100.0)
    backbone = load_official(official, name, heads=heads, eps=eps, theta=theta)
    assumed = f"; ImageNet's mean and deviation assumed: no {IMAGE_PROCESSOR}" * (not processor)
    if "position_mode" in config:  # of our own export
        position.install(backbone, config["position_mode"])
    return backbone, mean, std, f"{place} ({kind}){assumed}"


def _create_timm(
    architecture: str, tensors: Mapping[str, Tensor], where: str, described: Mapping[str, Any], **options: Any
) -> nn.Module:
    """Create a timm model, load tensors strictly, its classifier included, then remove the classifier."""
    if not tensors:  # timm would download others
        raise WeightsError(f"{where} are empty")
    options |= {"pretrained": True, "pretrained_cfg_overlay": {"state_dict": dict(tensors), **described}}
    # Images may have any size if the model supports that: only its constructor tells.
    for names in (("dynamic_img_size", "dynamic_img_pad"), ("dynamic_img_size",), ()):
        try:
            model = timm.create_model(architecture, **options, **dict.fromkeys(names, True))
        except Exception as error:  # timm and safetensors raise many kinds
            if isinstance(error, TypeError) and "dynamic_img" in str(error):
                continue
            reason = " ".join(line.strip() for line in str(error).splitlines()[:2])
            raise WeightsError(f"{where} do not fit: {reason}") from error
        model.reset_classifier(0)
        model.pretrained_cfg.pop("state_dict", None)
        return model
    raise WeightsError(f"timm cannot create {architecture}")


def _of_timm(repository: Repository) -> Hosted:
    name, place, config, tensors, _ = repository
    architecture, described = str(config["architecture"]), config.get("pretrained_cfg", {})
    if not timm.is_model(architecture):
        raise WeightsError(f"{name} holds a {architecture!r}, which timm {timm.__version__} does not have")
    if missing := {"mean", "std"} - described.keys():
        raise WeightsError(f"{name} does not describe its normalization: {missing.pop()} is missing")
    classes = {"num_classes": config.get("num_classes", 0)}
    backbone = _create_timm(
        architecture, tensors, f"the weights of {name}", classes, **config.get("model_args", {}) | classes
    )
    full_name = ".".join(filter(None, (architecture, described.get("tag"))))
    return backbone, tuple(described["mean"]), tuple(described["std"]), f"{place} (timm {full_name})"
