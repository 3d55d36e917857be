"""ONNX files with features, and with queries and keys of every block, for images of any size."""

import copy
import importlib.util
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dino_model.models import position
from dino_model.models.attention import fused_calls
from dino_model.models.catalogue import WeightsError
from dino_model.models.configs import PositionMode
from dino_model.runtime import files

NEEDED = ("onnx", "onnxscript")
SMALLEST = 1024
"""Weights with fewer elements stay in fp32 in compressed files."""

StoredType = Literal["fp32", "fp16", "int8"]


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
