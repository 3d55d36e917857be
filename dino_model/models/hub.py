"""Load backbones of timm (by its names) and of Hugging Face repositories (`hf:owner/name`).

Two kinds of repository are read: timm's (any of its models), and transformers' ViT, DINOv2, DINOv2 with
registers and DINOv3, whose tensors have other names. None of their code is run.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import timm
import torch
from torch import Tensor, nn

from dino_model.models.checkpoints import WeightsError, open_safetensors, read_backbone
from dino_model.models.official import load_official
from dino_model.runtime.download import PublishedFile

PREFIX = "hf:"
WEIGHTS, CONFIG, IMAGE_PROCESSOR = "model.safetensors", "config.json", "preprocessor_config.json"
KINDS = ("vit", "dinov2", "dinov2_with_registers", "dinov3_vit")

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
_UNUSED = ("pooler.", "classifier.")


Hosted = tuple[nn.Module, tuple[float, ...], tuple[float, ...], str]
"""Backbone, mean, standard deviation, and source in words with timm's or transformers' architecture."""


def files(name: str) -> list[PublishedFile]:
    """Return the files that `load` always reads, none for other names.

    Raises:
        WeightsError: No name of a repository, or a timm name without weights as .safetensors.
    """
    if name.startswith(PREFIX):
        if not re.fullmatch(r"hf:[\w.-]+/[\w.-]+", name):
            raise WeightsError(
                f"{name!r} names no repository: write hf:owner/name, such as hf:facebook/dinov2-small"
            )
        return [_published(name, file) for file in (CONFIG, WEIGHTS)]
    return [_timm_file(name)] if timm.is_model(name) else []


def load(name: str) -> Hosted:
    """Load the backbone of a timm name or of `hf:owner/name`, downloaded once.

    Raises:
        WeightsError: As `files`; an unsupported model, or tensors that do not fit it.
        DownloadError: Files that are not on this machine and cannot be downloaded.
    """
    if not name.startswith(PREFIX):
        path = _timm_file(name).fetch()
        backbone: Any = _create_timm(name, path, f"the timm weights in {path}", {})
        settings = backbone.pretrained_cfg
        return backbone, tuple(settings["mean"]), tuple(settings["std"]), f"timm weights {name}"
    config = _json(_published(name, CONFIG).fetch())
    if "architecture" in config:
        return _of_timm(name, config)
    kind = config.get("model_type")
    if kind not in KINDS:
        raise WeightsError(
            f"{name} holds a {kind or 'model of no named kind'}: expected a repository of timm's or one of "
            f"transformers' {', '.join(KINDS)}"
        )
    return _of_transformers(name, config, str(kind))


def split_name(name: str) -> tuple[str, str, str]:
    """Split a tensor's name into number of the block, layer, and `.weight`, `.bias` or nothing."""
    match = re.fullmatch(
        r"(?:(?:blocks|(?:encoder\.|model\.)?layer)\.(\d+)\.)?(.*?)(\.weight|\.bias)?", name, re.S
    )
    assert match
    return match[1] or "", match[2], match[3] or ""


def _official_names(tensors: Mapping[str, Tensor], where: str, kind: str) -> dict[str, Tensor]:
    """Rename transformers' tensors to official names, with queries, keys and values joined."""
    is_dinov3, column = kind == "dinov3_vit", {"vit": 0, "dinov3_vit": 2}.get(kind, 1)
    official = {names[column]: name for name, names in NAMES.items() if names[column]}
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        bare = re.sub(r"^(?:vit|dinov2|dinov2_with_registers|dinov3_vit|model)\.", "", name)
        if bare.startswith(_UNUSED):
            continue
        block, middle, end = split_name(bare)
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


def _of_transformers(name: str, config: Mapping[str, Any], kind: str) -> Hosted:
    where = f"{name} ({WEIGHTS})"
    tensors = _official_names(open_safetensors(_published(name, WEIGHTS).fetch())[0], where, kind)
    processor = _json(_published(name, IMAGE_PROCESSOR).fetch())
    try:
        heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
        mean, std = tuple(processor["image_mean"]), tuple(processor["image_std"])
    except KeyError as error:
        raise WeightsError(f"{name} does not describe a {kind}: {error!r}") from error
    theta = config.get("rope_parameters", config).get("rope_theta", 100.0)
    return load_official(tensors, where, heads=heads, eps=eps, theta=theta), mean, std, _source(name, kind)


def _create_timm(
    architecture: str, path: Path, where: str, described: Mapping[str, Any], **options: Any
) -> nn.Module:
    """Create a timm model, load a file strictly, its classifier included, then remove the classifier."""
    options |= {"pretrained": True, "pretrained_cfg_overlay": {"file": str(path), **described}}
    # Images may have any size if the model supports that: only its constructor tells.
    for names in (("dynamic_img_size", "dynamic_img_pad"), ("dynamic_img_size",), ()):
        try:
            model = timm.create_model(architecture, **options, **dict.fromkeys(names, True))
        except Exception as error:  # timm and safetensors raise many kinds
            if isinstance(error, TypeError) and "dynamic_img" in str(error):
                continue
            reason = " ".join(line.strip() for line in str(error).splitlines()[:2])
            raise WeightsError(
                f"{where} do not fit ({reason}): delete the file to download it again"
            ) from error
        model.reset_classifier(0)
        return model
    raise WeightsError(f"timm cannot create {architecture}")


def _of_timm(name: str, config: Mapping[str, Any]) -> Hosted:
    architecture, described = str(config["architecture"]), config.get("pretrained_cfg", {})
    if not timm.is_model(architecture):
        raise WeightsError(f"{name} holds a {architecture!r}, which timm {timm.__version__} does not have")
    if missing := {"mean", "std"} - described.keys():
        raise WeightsError(f"{name} does not describe its normalization: {missing.pop()} is missing")
    classes = {"num_classes": config.get("num_classes", 0)}
    backbone = _create_timm(
        architecture, _published(name, WEIGHTS).fetch(), f"the weights of {name} ({WEIGHTS})", classes,
        **config.get("model_args", {}) | classes,
    )  # fmt: skip
    return backbone, tuple(described["mean"]), tuple(described["std"]), _source(name, f"timm {architecture}")


def _source(name: str, kind: str) -> str:
    return f"https://huggingface.co/{name.removeprefix(PREFIX)} ({kind})"


def _published(name: str, file: str) -> PublishedFile:
    repository = name.removeprefix(PREFIX)
    accept: Any = open_safetensors if file == WEIGHTS else _json
    address = huggingface_hub.hf_hub_url(repository, file)
    return PublishedFile(address, f"hf/{repository}/{file}", accept, repository)


def _timm_file(name: str) -> PublishedFile:
    """Weights of timm as .safetensors, never as pickles."""
    try:
        settings = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        raise WeightsError(f"timm has no such weights: {error}") from error
    if settings is None or not settings.hf_hub_id or settings.hf_hub_filename:
        raise WeightsError(f"timm publishes no .safetensors weights for {name!r}: choose another name")
    address = huggingface_hub.hf_hub_url(settings.hf_hub_id, WEIGHTS)
    return PublishedFile(address, f"{name}.safetensors", read_backbone, settings.hf_hub_id)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsError(f"{path} is no readable JSON: {error}") from error
    if not isinstance(content, dict):
        raise WeightsError(f"{path} holds a {type(content).__name__}, expected names and values")
    return content
