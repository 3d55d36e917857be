"""Export models: self-describing .safetensors, .onnx with the feature and maps of [CLS], transformers."""

from pathlib import Path

import torch

from dino_model.checkpoints import WeightsError, write_safetensors
from dino_model.configs import CheckpointKey
from dino_model.onnx_export import Outputs, Weights, write_onnx
from dino_model.outputs import PROVENANCE, write_provenance
from dino_model.transformers_export import write_transformers
from dino_model.weights import load_model


def export(
    name: str,
    path: Path,
    format: str,
    dtype: Weights,
    size: int,
    outputs: Outputs = "cls",
    checkpoint_key: CheckpointKey = None,
) -> str:
    """Load a model, write it, and return where its weights came from.

    Args:
        name, checkpoint_key: As in `load_model`.
        path: File to write, a folder for transformers.
        format: safetensors, onnx or transformers.
        dtype: Type of stored weights; int8 in .onnx only.
        size: Side of the square images that an .onnx file with the outputs cls takes.
        outputs: Outputs of an .onnx file, see `write_onnx`.

    Raises:
        WeightsError: A model that cannot be loaded, or a timm model as .safetensors.
    """
    model = load_model(name, checkpoint_key=checkpoint_key)
    if format == "onnx":
        write_onnx(model.backbone, path, size=size, channels=len(model.mean), outputs=outputs, weights=dtype)
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
