"""Export models: self-describing .safetensors, .onnx with the feature and maps of [CLS], transformers."""

import importlib.util
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from dino_model import files
from dino_model.attention import readable
from dino_model.checkpoints import WeightsError, write_safetensors
from dino_model.configs import CheckpointKey
from dino_model.outputs import PROVENANCE, write_provenance
from dino_model.transformers_export import write_transformers
from dino_model.weights import load_model

NEEDED = ("onnx", "onnxscript")


def export(
    name: str, path: Path, format: str, dtype: str, size: int, checkpoint_key: CheckpointKey = None
) -> str:
    """Load a model, write it, and return where its weights came from.

    Args:
        name, checkpoint_key: As in `load_model`.
        path: File to write, a folder for transformers.
        format: safetensors, onnx or transformers.
        dtype: fp32 or fp16, the type of stored weights in .safetensors.
        size: Side of the square images that an .onnx file takes.

    Raises:
        WeightsError: A model that cannot be loaded, or a timm model as .safetensors.
    """
    model = load_model(name, checkpoint_key=checkpoint_key)
    if format == "onnx":
        write_onnx(model.backbone, path, size=size, channels=len(model.mean))
    elif format == "transformers":
        write_transformers(model, path)
        settings = {"model": name, "precision": "fp32", "checkpoint_key": checkpoint_key}
        contents = sorted(entry.name for entry in path.iterdir())
        write_provenance(path / PROVENANCE, settings, contents=contents)
    elif model.config is None:
        raise WeightsError(
            f"{name} is timm's, whose files describe it already: choose --format onnx or transformers"
        )
    else:
        stored = {"fp32": torch.float32, "fp16": torch.float16}[dtype]
        statistics = {"mean": model.mean, "std": model.std}
        write_safetensors(model.backbone, path, config=model.config, dtype=stored, **statistics)
    return model.source


class FeatureAndAttention(nn.Module):
    """A ViT that outputs [CLS] after the final norm and the attention of [CLS] in the last block."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone  # so that its parameters are this module's
        self.vit = readable(backbone)
        if self.vit.summary != "cls":
            raise ValueError("the model has no [CLS] token, so there is no attention of [CLS] to export")

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images [batch, channels, size, size] -> feature [batch, width], [batch, heads, rows, columns]."""
        vit, last, grid = self.vit, self.vit.depth - 1, self.vit.grid(images)
        tokens = vit.run(vit.embed(images), grid, 0, last)
        attention = vit.rows(last, tokens, grid, [0])[:, :, 0, vit.prefix_tokens :].unflatten(-1, grid)
        feature = vit.vit.forward_head(vit.norm(vit.run(tokens, grid, last, last + 1)))
        return feature, attention


def write_onnx(backbone: nn.Module, path: Path, *, size: int, channels: int = 3) -> None:
    """Write a backbone as .onnx, for normalized square images of `size` pixels in batches of any length.

    Outputs are `feature` and, for a ViT, `cls_attention`; see `FeatureAndAttention`.

    Raises:
        ValueError: Missing packages, or a size below 1.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise WeightsError(f"ONNX needs {' and '.join(missing)}: run `pip install {' '.join(NEEDED)}` first")
    if size < 1:
        raise ValueError(f"size is {size}, expected at least 1")
    is_vit = hasattr(backbone, "blocks")
    model = FeatureAndAttention(backbone).eval() if is_vit else backbone.eval()
    with files.replacing(path) as beside, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, on its own workings
        torch.onnx.export(
            model,
            (torch.zeros(2, channels, size, size),),
            beside,
            input_names=["images"],
            output_names=["feature", "cls_attention"][: 1 + is_vit],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            external_data=False,
            verbose=False,
        )
