"""Write a ViT as a folder that the classes ViT and DINOv2 of Hugging Face's transformers load."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from timm.layers import GluMlp
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from dino_model.models.catalogue import CONFIG, WEIGHTS, WeightsError
from dino_model.models.conversion import IMAGE_PROCESSOR, NAMES, split_name
from dino_model.models.load import LoadedModel
from dino_model.runtime import files

CLASSES = {"vit": "ViTModel", "dinov2": "Dinov2Model", "dinov2_with_registers": "Dinov2WithRegistersModel"}
CARD = """\
# {name}

{source}, written for `{cls}` of transformers. License: that of the source.

```python
from transformers import AutoImageProcessor, {cls}

processor = AutoImageProcessor.from_pretrained("{folder}")
model = {cls}.from_pretrained("{folder}"{options})
features = model(**processor(image, return_tensors="pt")).last_hidden_state[:, 0]  # [CLS]
```

At {size} x {size} pixels the outputs equal those of the source. At other sizes transformers resamples the
position embeddings in its own way; the source does so in mode `{mode}`.
"""


def write_transformers(model: LoadedModel, folder: Path) -> Path:
    """Write config.json, model.safetensors, preprocessor_config.json and a card; return the file of tensors.

    Args:
        model: A ViT, with layer scale or registers as in DINOv2 or without.
        folder: Created if missing.

    Raises:
        WeightsError: A model that these classes of transformers cannot hold.
    """
    vit = model.backbone
    if not isinstance(vit, VisionTransformer) or vit.cls_token is None or vit.pos_embed is None:
        raise WeightsError(
            f"{model.name} is a {type(vit).__name__}: transformers' ViT and DINOv2 hold ViTs with [CLS] and "
            "learned positions only"
        )
    scaled = "blocks.0.ls1.gamma" in vit.state_dict()
    if vit.num_reg_tokens and not scaled:
        raise WeightsError(f"{model.name} has registers but no layer scale: transformers has no such class")
    kind = "dinov2_with_registers" if vit.num_reg_tokens else "dinov2" if scaled else "vit"
    tensors = {name: tensor.contiguous().cpu() for name, tensor in _rename_tensors(vit, kind)}
    size = vit.patch_embed.img_size[0]
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "image_mean": model.mean,
        "image_std": model.std,
        "size": {"height": size, "width": size},
        "resample": 3,  # bicubic
    }
    mode: str | None = getattr(vit, "position_mode", None)
    card = CARD.format(
        name=model.name, source=model.source, cls=CLASSES[kind], folder=folder, size=size,
        options=", add_pooling_layer=False" if kind == "vit" else "", mode=mode or "timm's own",
    )  # fmt: skip
    with files.replace_file(folder / WEIGHTS) as temporary:
        safetensors.torch.save_file(tensors, temporary, {"format": "pt"})
    config = _config(vit, kind, len(model.mean))
    if mode:
        config["position_mode"] = mode  # read by `conversion` alone
    files.write_json(folder / CONFIG, config)
    files.write_text(folder / IMAGE_PROCESSOR, json.dumps(processor, indent=2) + "\n")
    files.write_text(folder / "README.md", card)
    return folder / WEIGHTS


def _config(vit: VisionTransformer, kind: str, channels: int) -> dict[str, Any]:
    block: Any = vit.blocks[0]
    hidden = block.mlp.fc2.in_features
    config: dict[str, Any] = {
        "model_type": kind,
        "architectures": [CLASSES[kind]],
        "hidden_size": vit.embed_dim,
        "num_hidden_layers": len(vit.blocks),
        "num_attention_heads": block.attn.num_heads,
        "hidden_act": "gelu",
        "layer_norm_eps": block.norm1.eps,
        "image_size": vit.patch_embed.img_size[0],
        "patch_size": vit.patch_embed.patch_size[0],
        "num_channels": channels,
        "qkv_bias": block.attn.qkv.bias is not None,
    }
    if kind == "vit":
        return config | {"intermediate_size": hidden}
    gated = isinstance(block.mlp, GluMlp)
    ratio = 4 if gated else hidden // vit.embed_dim
    # transformers derives the width of its gated layer from the ratio.
    derived = (int(4 * vit.embed_dim * 2 / 3) + 7) // 8 * 8 if gated else ratio * vit.embed_dim
    if derived != hidden:
        raise WeightsError(f"the MLP is {hidden} wide, transformers' {CLASSES[kind]} can hold {derived}")
    config |= {"use_swiglu_ffn": gated, "mlp_ratio": ratio}
    return config | {"num_register_tokens": vit.num_reg_tokens} if vit.num_reg_tokens else config


def _rename_tensors(vit: VisionTransformer, kind: str) -> Iterator[tuple[str, Tensor]]:
    """Tensors under transformers' names."""
    official = {"reg_token": "register_tokens"}
    if isinstance(vit.blocks[0].mlp, GluMlp):
        official |= {"mlp.fc1": "mlp.w12", "mlp.fc2": "mlp.w3"}
    for name, tensor in vit.state_dict().items():
        if name == "pos_embed" and vit.no_embed_class:  # [CLS] includes its position
            tensor = torch.cat([torch.zeros_like(tensor[:, :1]), tensor], dim=1)
        block, middle, end = split_name(name)
        parts = {official.get(middle, middle): tensor}
        if middle == "attn.qkv":
            parts = dict(zip(("attn.q", "attn.k", "attn.v"), tensor.chunk(3), strict=True))
        for part, rows in parts.items():
            if not (name_there := NAMES.get(part, ("", ""))[kind != "vit"]):
                raise WeightsError(f"transformers' ViT and DINOv2 have no tensor like {name!r}")
            yield (f"encoder.layer.{block}." if block else "") + name_there + end, rows
    if kind != "vit":
        yield "embeddings.mask_token", torch.zeros(1, vit.embed_dim)
