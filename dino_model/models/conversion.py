"""Backbones whose tensors have the names of DINOv2, DINOv3, DeiT, MAE, timm or Hugging Face's transformers.

Without a config.json the architecture is read from names and shapes; timm's `checkpoint_filter_fn` converts
the names of DINOv2 and DINOv3. config.json describes two kinds of folders and repositories (`hf:owner/name`):
timm's, of any of its models, and transformers' ViT, DINOv2 and DINOv3. None of their code is run.

Source: models/vision_transformer.py of facebookresearch/dinov2 and facebookresearch/dinov3.
"""

import math
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import timm
import torch
from timm.layers import SwiGLUPacked
from timm.models import deit, eva, vision_transformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model.data.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.models import attention, catalogue, position
from dino_model.models.catalogue import CONFIG, HOSTED, WEIGHTS, WeightsError, read_json
from dino_model.models.checkpoint import find_backbone, load_strictly, read_checkpoint

IMAGE_PROCESSOR = "preprocessor_config.json"
PICKLE = "pytorch_model.bin"
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
Described = tuple[nn.Module, tuple[float, ...], tuple[float, ...], str]
"""Backbone for images of any size, mean, standard deviation, and source in words."""


def load_hosted(name: str) -> Described:
    """Load the backbone of a timm name or of `hf:owner/name`, downloaded once.

    Raises:
        WeightsError: As `catalogue.hosted_files`; an unsupported model, or tensors that do not fit it.
        DownloadError: Files that are not on this machine and cannot be downloaded.
    """
    paths = [file.fetch() for file in catalogue.hosted_files(name)]
    tensors = read_checkpoint(paths[-1])[0]
    if not name.startswith(HOSTED):
        backbone: Any = _create_timm(name, tensors, f"the timm weights in {paths[0]}", {})
        settings = backbone.pretrained_cfg
        attention.accept_any_size(backbone, name)
        return backbone, tuple(settings["mean"]), tuple(settings["std"]), f"timm weights {name}"
    config, processor = read_json(paths[0]), dict[str, Any]()
    if "architecture" not in config:
        processor = read_json(catalogue.hosted_file(name, IMAGE_PROCESSOR, read_json).fetch())
    place = f"https://huggingface.co/{name.removeprefix(HOSTED)}"
    return _build_described(name, place, config, processor, tensors)


def load_described(path: Path) -> Described:
    """Load the backbone of a folder that timm, transformers or `export` wrote, or of a file in such a folder.

    Of a folder, model.safetensors is read, else pytorch_model.bin. Errors as `load_hosted`.
    """
    folder = path if path.is_dir() else path.parent
    files = [path] if path.is_file() else [folder / WEIGHTS, folder / PICKLE]
    if not (file := next((file for file in files if file.is_file()), None)):
        raise WeightsError(f"{folder} has no weights: expected {WEIGHTS} or {PICKLE} next to {CONFIG}")
    processor = folder / IMAGE_PROCESSOR
    settings = read_json(processor) if processor.is_file() else {}
    return _build_described(
        str(path), str(path), read_json(folder / CONFIG), settings, read_checkpoint(file)[0]
    )


def _build_described(
    name: str, place: str, config: dict[str, Any], processor: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> Described:
    """Build the backbone that config.json describes, with its tensors.

    `place` is its address or folder; `processor` has the settings of the images in transformers' folders.
    """
    if "architecture" in config:
        architecture, described = str(config["architecture"]), config.get("pretrained_cfg", {})
        if not timm.is_model(architecture):
            raise WeightsError(f"{name} is a {architecture!r}, which timm {timm.__version__} does not have")
        if missing := {"mean", "std"} - described.keys():
            raise WeightsError(f"{name} does not describe its normalization: {missing.pop()} is missing")
        classes = {"num_classes": config.get("num_classes", 0)}
        options = config.get("model_args", {}) | classes
        backbone = _create_timm(architecture, tensors, f"the weights of {name}", classes, **options)
        full_name = ".".join(filter(None, (architecture, described.get("tag"))))
        source = f"{place} (timm {full_name})"
        attention.accept_any_size(backbone, f"{name} {source}")
        return backbone, tuple(described["mean"]), tuple(described["std"]), source
    if (model_type := config.get("model_type")) not in KINDS:
        raise WeightsError(
            f"{name} holds a model of kind {model_type!r}: expected timm's, or {', '.join(KINDS)}"
        )
    kind, source = KINDS[model_type], f"{place} ({KINDS[model_type]})"
    if not processor:
        source += f"; ImageNet's mean and deviation assumed: no {IMAGE_PROCESSOR}"
        processor = {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD}
    try:
        heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
        mean, std = tuple(processor["image_mean"]), tuple(processor["image_std"])
    except KeyError as error:
        raise WeightsError(f"{name} does not describe a {kind}: {error!r}") from error
    theta = config.get("rope_parameters", config).get("rope_theta", 100.0)
    tensors = _rename_transformers(find_backbone(tensors, name).tensors, name, kind)
    backbone, _ = build_vit(tensors, name, heads=heads, eps=eps, theta=theta)
    if mode := config.get("position_mode"):  # of our own export
        position.install(backbone, mode)
    else:
        attention.accept_any_size(backbone, f"{name} {source}")
    return backbone, mean, std, source


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


def split_name(name: str) -> tuple[str, str, str]:
    """Split a tensor's name into number of the block, layer, and `.weight`, `.bias` or nothing."""
    match = re.fullmatch(
        r"(?:(?:blocks|(?:encoder\.|model\.)?layer)\.(\d+)\.)?(.*?)(\.weight|\.bias)?", name, re.S
    )
    assert match
    return match[1] or "", match[2], match[3] or ""


def _rename_transformers(tensors: Mapping[str, Tensor], where: str, kind: str) -> dict[str, Tensor]:
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


def build_vit(
    tensors: Mapping[str, Tensor], where: str, *, heads: int, eps: float | None = None, theta: float = 100.0
) -> tuple[nn.Module, str]:
    """Build a ViT for images of any size from its tensors.

    Args:
        tensors: Under the names of one of the families.
        where: Name of their file for messages.
        heads: Attention heads.
        eps: Epsilon of the norms. Default: 1e-5 for DINOv3, else 1e-6.
        theta: Base of DINOv3's rotary positions.

    Returns:
        The model, and transformers' word for its kind: dinov2, dinov2_with_registers, dinov3_vit or vit.

    Raises:
        WeightsError: Tensors that describe no such model.
    """
    tensors = {re.sub(r"\.gamma_([12])$", r".ls\1.gamma", name): value for name, value in tensors.items()}
    is_dinov3, positions = "storage_tokens" in tensors, tensors.get("pos_embed")
    if not is_dinov3 and (positions is None or positions.ndim != 3):
        raise WeightsError(
            f"{where} holds no ViT: it has patches and no pos_embed, as timm's Swin, BEiT and DINOv3 do. Load"
            f" those by their name, or put their {CONFIG} next to it"
        )
    width, channels, patch_size, _ = tensors["patch_embed.proj.weight"].shape
    hidden = {layer: tensors.get(f"blocks.0.mlp.{layer}.weight") for layer in ("fc1", "w12", "w1")}
    first = next((weight for weight in hidden.values() if weight is not None), None)
    shape: dict[str, Any] = {
        "patch_size": patch_size,
        "in_chans": channels,
        "num_classes": 0,
        "embed_dim": width,
        "depth": len({name.split(".")[1] for name in tensors if name.startswith("blocks.")}),
        "num_heads": heads,
        "mlp_ratio": (0 if first is None else first.shape[0]) / width,
        "qkv_bias": "blocks.0.attn.qkv.bias" in tensors,
        "dynamic_img_size": True,
        "dynamic_img_pad": True,
        "norm_layer": partial(nn.LayerNorm, eps=eps or (1e-5 if is_dinov3 else 1e-6)),
    }
    try:
        if is_dinov3:
            gated = hidden["w1"] is not None
            shape |= {"swiglu_mlp": gated, "swiglu_align_to": int(gated), "rope_temperature": theta}
            shape |= {"num_reg_tokens": tensors["storage_tokens"].shape[1], "global_pool": "token"}
            backbone = timm.create_model("vit_small_patch16_dinov3", **shape)
            converted = eva.checkpoint_filter_fn(dict(tensors), backbone)
        else:  # timm takes a mask token as the mark of DINOv2's names
            backbone = _create_plain(tensors, shape)
            converted = vision_transformer.checkpoint_filter_fn({**tensors, "mask_token": None}, backbone)
    except (KeyError, ValueError, RuntimeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise WeightsError(f"{where} does not describe a ViT, DINOv2 or DINOv3: {reason}") from error
    load_strictly(backbone, converted, where)
    if is_dinov3:
        return backbone, "dinov3_vit"
    if not {"mask_token", "blocks.0.ls1.gamma"} <= tensors.keys():
        return backbone, "vit"
    return backbone, "dinov2_with_registers" if "register_tokens" in tensors else "dinov2"


def _create_plain(tensors: Mapping[str, Tensor], shape: dict[str, Any]) -> VisionTransformer:
    """A ViT with learned positions; its prefix tokens and pooling follow from the tensors."""
    has_cls, pooled = "cls_token" in tensors, "fc_norm.weight" in tensors
    registers = tensors.get("register_tokens", tensors.get("reg_token"))
    extra = 0 if registers is None else registers.shape[1]
    prefix = has_cls + extra + ("dist_token" in tensors)
    count = tensors["pos_embed"].shape[1]
    # DINOv2's registers have no position, and [CLS] has one; in timm either all of them have, or none has.
    carried = (1,) if "register_tokens" in tensors else (prefix, 0)
    side = next(
        (math.isqrt(count - n) for n in carried if math.isqrt(max(count - n, 0)) ** 2 == count - n), 0
    )
    if not side:
        raise ValueError(f"{count} positions and {prefix} prefix tokens are no square grid")
    packed, second = tensors.get("blocks.0.mlp.fc1.weight"), tensors.get("blocks.0.mlp.fc2.weight")
    is_packed = packed is not None and second is not None and len(packed) == 2 * second.shape[1]
    gated = is_packed or "blocks.0.mlp.w12.weight" in tensors
    options: dict[str, Any] = shape | {
        "img_size": side * shape["patch_size"],
        "init_values": 1.0 if "blocks.0.ls1.gamma" in tensors else None,
        "qk_norm": "blocks.0.attn.q_norm.weight" in tensors,
        "reg_tokens": extra,
        "no_embed_class": "register_tokens" in tensors or count == side * side,
        "class_token": has_cls,
        "fc_norm": pooled,
        "global_pool": "token" if has_cls and not pooled else "avg",
        **({"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU} if gated else {}),
    }
    kind = deit.VisionTransformerDistilled if "dist_token" in tensors else VisionTransformer
    return kind(**options)
