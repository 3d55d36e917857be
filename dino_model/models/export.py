"""Write a model for other programs: ONNX files, and folders for Hugging Face's transformers."""

import copy
import importlib.util
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors.torch
import torch
from timm.layers import GluMlp
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model.models import position
from dino_model.models.attention import fused_calls
from dino_model.models.catalogue import CONFIG, WEIGHTS, WeightsError
from dino_model.models.configs import PositionMode
from dino_model.models.conversion import IMAGE_PROCESSOR, NAMES, split_name
from dino_model.models.load import LoadedModel
from dino_model.runtime import files

NEEDED = ("onnx", "onnxscript")
SMALLEST = 1024
"""Weights with fewer elements stay in fp32 in compressed files."""

StoredType = Literal["fp32", "fp16", "int8"]
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


class QueriesAndKeys(nn.Module):
    """A plain ViT that returns features, and queries and keys of every block, for images of any size.

    Position embeddings are resampled inside of the graph, in the way of the model's family.
    """

    def __init__(self, vit: nn.Module) -> None:
        super().__init__()
        if type(vit) is not VisionTransformer or vit.cls_token is None or vit.pos_embed is None:
            raise WeightsError(
                f"a {type(vit).__name__} has no [CLS] token with learned positions: .onnx is for DINO, DINOv2"
                " and plain ViTs of timm"
            )
        self.vit: Any = copy.deepcopy(vit).eval()
        mode: Any = vit.position_mode
        position.install(self.vit, mode, _resample)
        embedding: Any = self.vit.patch_embed
        embedding.dynamic_img_pad = False

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Encode one normalized image [1, channels, height, width] of whole patches.

        Returns:
            [CLS] feature [1, width] and patch features [1, rows * columns, width] after the final norm;
            queries and keys [blocks, 2, heads, tokens, d].
        """
        with fused_calls(self.vit) as calls:
            tokens = self.vit.forward_features(images)
        queries_keys = torch.stack([torch.cat([query, key]) for query, key, _ in calls])
        return tokens[:, 0], tokens[:, self.vit.num_prefix_tokens :], queries_keys


def _resample(
    embedding: Tensor, learned: tuple[int, int], grid: tuple[int, int], prefix: int, mode: PositionMode
) -> Tensor:
    """Resample as `position.resample` does, in operations that take sizes unknown when the graph is traced.

    Bicubic interpolation is one product with a matrix of weights for each axis.
    """
    rows, columns = grid
    patches = embedding[:, prefix:].unflatten(1, learned)
    wanted = [torch.ones(count).sum() for count in (rows, columns)]  # tensors, which traced code may compare
    factors = [(n + 0.1 * (mode == "official")) / m for n, m in zip(wanted, learned, strict=True)]
    if mode == "official":  # a square grid of the learned number of patches keeps its embedding
        keep = (wanted[0] == learned[0]) & (wanted[1] == learned[1]) & (wanted[0] == wanted[1])
        factors = [torch.where(keep, 1.0, factor) for factor in factors]
    antialias = mode == "antialias"
    vertical = _cubic_weights(learned[0], rows, factors[0], antialias)
    horizontal = _cubic_weights(learned[1], columns, factors[1], antialias)
    resampled = torch.einsum("ij,bjkw->bikw", vertical, patches)
    resampled = torch.einsum("lk,bikw->bilw", horizontal, resampled).flatten(1, 2)
    return torch.cat([embedding[:, :prefix], resampled], dim=1)


def _cubic_weights(learned: int, wanted: int, factor: Tensor, antialias: bool) -> Tensor:
    """Compute the matrix [wanted, learned] of bicubic interpolation along one axis, as PyTorch defines it."""
    places = (torch.arange(wanted) + 0.5) / factor - 0.5
    if antialias:
        stretch = (1 / factor).clamp(min=1)
        weights = _cubic((places[:, None] - torch.arange(learned)) / stretch, -0.5)
        return weights / weights.sum(1, keepdim=True)
    weights = torch.zeros(1)
    for tap in range(-1, 3):
        source = places.floor() + tap
        inside = source.clamp(0, learned - 1)[:, None] == torch.arange(learned)
        weights = weights + inside * _cubic(places - source, -0.75)[:, None]
    return weights


def _cubic(distance: Tensor, a: float) -> Tensor:
    """Evaluate the cubic convolution kernel (Keys 1981)."""
    x = distance.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x <= 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def write_onnx(backbone: nn.Module, path: Path, weights: StoredType = "fp32") -> None:
    """Write a backbone as .onnx: `cls`, `patches` and `queries_keys` of one image, see `QueriesAndKeys`.

    Args:
        backbone: A plain ViT.
        path: File to write.
        weights: Type of the stored weights; the graph computes in fp32. int8 has a scale for every row.

    Raises:
        WeightsError: Missing packages, or another model.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise WeightsError(f"ONNX needs {' and '.join(missing)}: run `pip install {' '.join(NEEDED)}` first")
    model = QueriesAndKeys(backbone)
    height, width = model.vit.patch_embed.patch_size
    rows, columns = torch.export.Dim("rows", min=1), torch.export.Dim("columns", min=1)
    # Traced at 3 x 4 patches: no size may become a special case.
    images = torch.zeros(1, model.vit.patch_embed.proj.in_channels, 3 * height, 4 * width)
    options: Any = {"dynamic_shapes": ({2: height * rows, 3: width * columns},), "input_names": ["images"]}
    options["output_names"] = ["cls", "patches", "queries_keys"]
    with files.replace_file(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from the exporter, about itself
        program = torch.onnx.export(model.eval(), (images,), dynamo=True, verbose=False, **options)
        assert program is not None  # it is None only without dynamo
        proto = program.model_proto
        if weights != "fp32":
            _compress(proto, weights)
        temporary.write_bytes(proto.SerializeToString())


def _compress(model: Any, weights: StoredType) -> None:
    """Store the large weights of an ONNX model in fewer bits; nodes in front of the graph restore fp32."""
    from onnx import helper, numpy_helper

    graph, nodes = model.graph, []
    for tensor in list(graph.initializer):
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < SMALLEST:
            continue
        graph.initializer.remove(tensor)
        name = tensor.name
        if weights == "fp16":
            stored = {f"{name}_fp16": values.astype(np.float16)}
            nodes.append(helper.make_node("Cast", list(stored), [name], to=1))
        elif weights == "int8":
            axis = 1 if values.ndim == 2 else 0
            others = tuple(i for i in range(values.ndim) if i != axis)
            scale = np.maximum(np.abs(values).max(axis=others, keepdims=True), 1e-12) / 127
            rounded = np.round(values / scale).astype(np.int8)
            stored = {f"{name}_int8": rounded, f"{name}_scale": scale.astype(np.float32).ravel()}
            nodes.append(helper.make_node("DequantizeLinear", list(stored), [name], axis=axis))
        graph.initializer.extend(numpy_helper.from_array(array, key) for key, array in stored.items())
    for node in reversed(nodes):
        graph.node.insert(0, node)


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
